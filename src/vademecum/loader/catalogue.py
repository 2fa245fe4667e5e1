"""Skills → the list a model chooses from, within a budget: descriptions, shorter ones, names, a count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from html import escape
from json.encoder import encode_basestring
from typing import Literal

from msgspec import Struct

from vademecum.skill.skill import Skill

Form = Literal["list", "xml", "json"]

# Enough for several hundred skills, and 2 % of a context window of a million tokens.
DEFAULT_BUDGET = 80_000
LEAST_DESCRIPTION = 20  # characters; below that, names are more useful
_ELLIPSIS = "…"


class Catalogue(Struct, frozen=True):
    """The text, how many descriptions were shortened or left out for it, and how many skills it omits."""

    text: str
    shortened: int
    unlisted: int = 0


class _Layout(Struct, frozen=True):
    """One form: what stands before, between and after the rows, a row, a row without description, and how
    text is written in it.
    """

    head: str
    row: Callable[[str, str, str], str]
    name: Callable[[str], str]
    between: str
    note: str
    tail: str
    written: Callable[[str], str]


def _xml(text: str) -> str:
    return escape(text, quote=False) if "&" in text or "<" in text or ">" in text else text


def _json(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    encoded: str = encode_basestring(text)
    return encoded[1:-1]


# The XML form is the one that models know, with the source in place of a path: a skill is loaded by name.
_LAYOUTS: dict[Form, _Layout] = {
    "list": _Layout(
        head="Available Skills:\n",
        row=lambda name, source, text: f"- name={name} | source={source} | description={text}",
        name=lambda name: f"- name={name}",
        between="\n",
        note="\n({})",
        tail="",
        written=str,
    ),
    "xml": _Layout(
        head="<available_skills>\n",
        row=lambda name, source, text: (
            f"<skill>\n<name>\n{name}\n</name>\n<description>\n{text}\n</description>\n"
            f"<source>\n{source}\n</source>\n</skill>"
        ),
        name=lambda name: f"<skill>\n<name>\n{name}\n</name>\n</skill>",
        between="\n",
        note="\n<!-- {} -->",
        tail="\n</available_skills>",
        written=_xml,
    ),
    "json": _Layout(
        head='{"available_skills":[',
        row=lambda name, source, text: f'{{"name":"{name}","description":"{text}","source":"{source}"}}',
        name=lambda name: f'{{"name":"{name}"}}',
        between=",",
        note='],"note":"{}"}}',
        tail="]}",
        written=_json,
    ),
}


def render_catalogue(
    skills: Sequence[Skill],
    *,
    form: Form = "list",
    budget: int = DEFAULT_BUDGET,
    whole: Collection[str] = (),
) -> Catalogue:
    """Render the catalogue in at most ``budget`` characters, sorted by name.

    If the budget is short, descriptions are shortened; if that is not enough, they are left out, then skills
    are. The catalogue says how many, and that search_skills finds them. The skills named in ``whole`` keep
    their descriptions longest. Without skills the text is empty.

    >>> render_catalogue([])
    Catalogue(text='', shortened=0, unlisted=0)
    """
    if not skills:
        return Catalogue("", 0)
    layout = _LAYOUTS[form]
    ordered = sorted(skills, key=lambda skill: (skill.name, skill.source))
    texts = [layout.written(_on_one_line(skill.description)) for skill in ordered]
    rows = [layout.row(skill.name, skill.source, text) for skill, text in zip(ordered, texts, strict=True)]
    between = len(layout.between)
    frame = len(layout.head) + len(layout.tail)
    if frame + sum(map(len, rows)) + between * (len(rows) - 1) <= budget:
        return Catalogue(layout.head + layout.between.join(rows) + layout.tail, 0)
    room = budget - len(layout.head) - len(_ending(layout, len(rows), len(rows), len(rows)))
    first = [n for n, skill in enumerate(ordered) if skill.name in whole]
    cost = sum(len(rows[n]) + between for n in first)
    if cost > room:
        first, cost = [], 0
    others = sorted(set(range(len(rows))).difference(first))
    shown = {n: rows[n] for n in first}
    fitted = _shortened(layout, [ordered[n] for n in others], room - cost)
    if fitted is None:
        fitted = _names(layout, [ordered[n] for n in others], room - cost)
    shown.update(zip(others, fitted, strict=False))
    changed = sum(row != rows[n] for n, row in shown.items())
    unlisted = len(rows) - len(shown)
    text = layout.between.join(shown[n] for n in sorted(shown))
    return Catalogue(
        layout.head + text + _ending(layout, changed, unlisted, len(rows)), changed + unlisted, unlisted
    )


def _shortened(layout: _Layout, skills: Sequence[Skill], room: int) -> list[str] | None:
    """Return rows with shortened descriptions, or nothing if hardly anything would be left of them."""
    frames = sum(len(layout.row(skill.name, skill.source, "")) + len(layout.between) for skill in skills)
    if room - frames < LEAST_DESCRIPTION * len(skills):
        return None
    whole = [_on_one_line(skill.description) for skill in skills]
    costs = [len(layout.written(text)) for text in whole]
    rows = []
    for skill, text, cost, share in zip(skills, whole, costs, _shares(costs, room - frames), strict=True):
        kept = layout.written(text) if cost <= share else _cut(text, share, layout.written)
        rows.append(layout.row(skill.name, skill.source, kept))
    return rows


def _names(layout: _Layout, skills: Sequence[Skill], room: int) -> list[str]:
    """Return rows with nothing but names, as many as there is room for."""
    rows = []
    for skill in skills:
        row = layout.name(skill.name)
        room -= len(row) + len(layout.between)
        if room < 0:
            break
        rows.append(row)
    return rows


def _on_one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\t" in text or "  " in text else text


def _shares(costs: list[int], budget: int) -> list[int]:
    """Share the budget round-robin: a short description gets all it needs, the rest is split evenly.

    >>> _shares([3, 10, 10], 13)
    [3, 5, 5]
    """
    shares = [0] * len(costs)
    left, waiting = max(0, budget), len(costs)
    for place in sorted(range(len(costs)), key=costs.__getitem__):
        shares[place] = min(costs[place], left // waiting)
        left -= shares[place]
        waiting -= 1
    return shares


def _cut(text: str, share: int, written: Callable[[str], str]) -> str:
    """Cut a description to its share, ending in an ellipsis."""
    room = share - len(_ELLIPSIS)
    if room <= 0:
        return ""
    kept = text[:room].rstrip()
    while kept and len(written(kept)) > room:  # what is escaped takes more than one character
        kept = kept[: -max(1, (len(written(kept)) - room) // 8)]
    return f"{written(kept)}{_ELLIPSIS}" if kept else ""


def _ending(layout: _Layout, shortened: int, unlisted: int, count: int) -> str:
    said = []
    if shortened:
        said.append(f"{shortened:,} of {count:,} descriptions are shortened or left out")
    if unlisted:
        said.append(f"{unlisted:,} of {count:,} skills are not listed")
    note = layout.note.format(f"{'; '.join(said)}; search_skills looks through all.")
    return note if note.startswith("]") else note + layout.tail
