"""Skills → the list a model chooses from, within a budget: descriptions, shorter ones, names, a count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    shortened: int = 0
    unlisted: int = 0


class _Layout(Struct, frozen=True):
    """One form: its beginning, a row, a row without description, the character between rows, the end with a
    note and without, and how text is written.
    """

    head: str
    row: Callable[[str, str, str], str]
    name: Callable[[str], str]
    between: str
    note: str
    tail: str
    written: Callable[[str], str]


def _xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(text: str) -> str:
    return (
        text if text.isprintable() and '"' not in text and "\\" not in text else encode_basestring(text)[1:-1]
    )


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
        note="\n<!-- {} -->\n</available_skills>",
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
    skills: Sequence[Skill], *, form: Form = "list", budget: int = DEFAULT_BUDGET
) -> Catalogue:
    """Render the catalogue in at most ``budget`` characters, sorted by name.

    If the budget is short, descriptions are shortened; if that is not enough, they are left out, then skills
    are. The catalogue says how many, and that search_skills finds them. Without skills the text is empty.

    >>> render_catalogue([])
    Catalogue(text='', shortened=0, unlisted=0)
    """
    if not skills:
        return Catalogue("")
    layout, count = _LAYOUTS[form], len(skills)
    ordered = sorted(skills, key=lambda skill: (skill.name, skill.source))
    texts = [" ".join(skill.description.split()) for skill in ordered]
    written = list(map(layout.written, texts))
    rows = [layout.row(skill.name, skill.source, text) for skill, text in zip(ordered, written, strict=True)]
    whole = layout.head + layout.between.join(rows) + layout.tail
    if len(whole) <= budget:
        return Catalogue(whole)
    room = budget - len(layout.head) - len(_ending(layout, count, count, count))
    costs = list(map(len, written))
    left = room - sum(map(len, rows)) - count + sum(costs)
    if left >= LEAST_DESCRIPTION * count:
        shares = zip(ordered, texts, _shares(costs, left), strict=True)
        shown = [layout.row(s.name, s.source, _cut(text, share, layout.written)) for s, text, share in shares]
    else:
        shown = _names(layout, ordered, room)
    changed = sum(row != other for row, other in zip(shown, rows, strict=False))
    unlisted = count - len(shown)
    text = layout.head + layout.between.join(shown)
    return Catalogue(text + _ending(layout, changed, unlisted, count), changed + unlisted, unlisted)


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
    """Cut a description to its share, if it takes more, ending in an ellipsis."""
    if len(text) <= share and len(written(text)) <= share:
        return written(text)
    room = share - len(_ELLIPSIS)
    kept = text[: max(0, room)].rstrip()
    while kept and len(written(kept)) > room:  # what is escaped takes more than one character
        kept = kept[: -max(1, (len(written(kept)) - room) // 8)]
    return f"{written(kept)}{_ELLIPSIS}" if kept else ""


def _ending(layout: _Layout, shortened: int, unlisted: int, count: int) -> str:
    said = []
    if shortened:
        said.append(f"{shortened:,} of {count:,} descriptions are shortened or left out")
    if unlisted:
        said.append(f"{unlisted:,} of {count:,} skills are not listed")
    return layout.note.format(f"{'; '.join(said)}; search_skills looks through all.")
