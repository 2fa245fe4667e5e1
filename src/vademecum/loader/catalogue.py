"""Skills → the list a model chooses from: names always, descriptions as far as the budget goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from json.encoder import encode_basestring
from typing import Literal

from msgspec import Struct

from vademecum.skill.skill import Skill

Form = Literal["list", "xml", "json"]

# Enough for several hundred skills, and 2 % of a context window of a million tokens.
DEFAULT_BUDGET = 80_000
_ELLIPSIS = "…"


class Catalogue(Struct, frozen=True):
    """The text, and how many descriptions had to be shortened for it."""

    text: str
    shortened: int


class _Layout(Struct, frozen=True):
    """One form: what stands before, between and behind, one row, and how text is written in it."""

    head: str
    row: Callable[[str, str, str], str]
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
        between="\n",
        note="\n<!-- {} -->",
        tail="\n</available_skills>",
        written=_xml,
    ),
    "json": _Layout(
        head='{"available_skills":[',
        row=lambda name, source, text: f'{{"name":"{name}","description":"{text}","source":"{source}"}}',
        between=",",
        note='],"note":"{}"}}',
        tail="]}",
        written=_json,
    ),
}


def render_catalogue(
    skills: Sequence[Skill], *, form: Form = "list", budget: int = DEFAULT_BUDGET
) -> Catalogue:
    """Render the catalogue in at most ``budget`` characters, names excepted; no skills, no catalogue.

    >>> render_catalogue([])
    Catalogue(text='', shortened=0)
    """
    if not skills:
        return Catalogue("", 0)
    layout = _LAYOUTS[form]
    around = len(layout.row("", "", "")) + len(layout.between)
    names = sum(len(skill.name) + len(skill.source) for skill in skills)
    room = budget - len(layout.head) - len(layout.tail) - names - around * len(skills)
    # Room for the note is kept back; only where something is cut, it is needed.
    note = len(_ending(layout, len(skills), len(skills))) - len(layout.tail)
    shown, shortened = _fitted(
        [skill.description for skill in skills], room, note=note, written=layout.written
    )
    rows = [layout.row(skill.name, skill.source, text) for skill, text in zip(skills, shown, strict=True)]
    text = layout.head + layout.between.join(rows) + _ending(layout, shortened, len(skills))
    return Catalogue(text, shortened)


def _fitted(
    descriptions: list[str], room: int, *, note: int, written: Callable[[str], str]
) -> tuple[list[str], int]:
    """The descriptions as they are written, shortened to fit the room, and how many were."""
    if room <= 0:
        return [""] * len(descriptions), len(descriptions)
    whole = [_on_one_line(text) for text in descriptions]
    shown = [written(text) for text in whole]
    shortened = 0
    if sum(map(len, shown)) > room:
        for place, share in enumerate(_shares([len(text) for text in shown], room - note)):
            if share < len(shown[place]):
                shown[place] = _cut(whole[place], share, written)
                shortened += 1
    return shown, shortened


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
    """As much of a description as its share holds, ending in an ellipsis."""
    room = share - len(_ELLIPSIS)
    if room <= 0:
        return ""
    kept = text[:room].rstrip()
    while kept and len(written(kept)) > room:  # what is escaped takes more than one character
        kept = kept[: -max(1, (len(written(kept)) - room) // 8)]
    return f"{written(kept)}{_ELLIPSIS}" if kept else ""


def _ending(layout: _Layout, shortened: int, count: int) -> str:
    if not shortened:
        return layout.tail
    note = layout.note.format(
        f"{shortened:,} of {count:,} descriptions are shortened; search_skills looks through all."
    )
    return note if note.startswith("]") else note + layout.tail
