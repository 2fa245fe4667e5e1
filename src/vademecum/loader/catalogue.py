"""Render the list of skills that a model chooses from, within a budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from vademecum.errors import ConfigError
from vademecum.nearest import there_is_no
from vademecum.skill.skill import Skill

Form = Literal["list", "xml"]

# Enough for several hundred skills, and 2 % of a context window of a million tokens.
DEFAULT_BUDGET = 80_000
LEAST_DESCRIPTION = 20  # characters; below that, names are more useful
_ELLIPSIS = "…"
# The rest of an escaped character that was cut.
_BROKEN_ESCAPE = re.compile("&(?:amp?|a|[lg]t?)?$")


class Catalogue(Struct, frozen=True):
    """The text, and the number of skills that are shortened or left out."""

    text: str
    shortened: int = 0


class _Layout(Struct, frozen=True):
    """One form: its beginning, a row, a row without description, and the end with and without a note."""

    head: str
    row: str
    name: str
    note: str
    tail: str


def _xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# Models know the XML form. It has the source instead of a path, because skills are loaded by name.
_LAYOUTS: dict[Form, _Layout] = {
    "list": _Layout(
        head="Available Skills:\n",
        row="- name={} | source={} | description={}",
        name="- name={}",
        note="\n({})",
        tail="",
    ),
    "xml": _Layout(
        head="<available_skills>\n",
        row="<skill>\n<name>\n{0}\n</name>\n<description>\n{2}\n</description>\n"
        "<source>\n{1}\n</source>\n</skill>",
        name="<skill>\n<name>\n{}\n</name>\n</skill>",
        note="\n<!-- {} -->\n</available_skills>",
        tail="\n</available_skills>",
    ),
}


def render_catalogue(
    skills: Sequence[Skill], *, form: Form = "list", budget: int = DEFAULT_BUDGET
) -> Catalogue:
    """Render the catalogue in at most ``budget`` characters, sorted by name.

    If the budget is too small, descriptions are shortened, then left out, then whole skills are. The
    catalogue says how many, and that search_skills finds them. Without skills the text is empty.

    >>> render_catalogue([])
    Catalogue(text='', shortened=0)
    """
    if not skills:
        return Catalogue("")
    if form not in _LAYOUTS:
        raise ConfigError(there_is_no("form", form, _LAYOUTS))
    layout, count = _LAYOUTS[form], len(skills)
    ordered = sorted(skills, key=lambda skill: (skill.name, skill.source))
    texts = [" ".join(skill.description.split()) for skill in ordered]
    if form == "xml":
        texts = list(map(_xml, texts))
    row = layout.row.format
    rows = [row(skill.name, skill.source, text) for skill, text in zip(ordered, texts, strict=True)]
    whole = layout.head + "\n".join(rows) + layout.tail
    if len(whole) <= budget:
        return Catalogue(whole)
    room = budget - len(layout.head) - len(_ending(layout, count, count, count))
    costs = list(map(len, texts))
    left = room - sum(map(len, rows)) - count + sum(costs)
    if left >= LEAST_DESCRIPTION * count:
        shares = zip(ordered, texts, _shares(costs, left), strict=True)
        shown = [row(skill.name, skill.source, _cut(text, share)) for skill, text, share in shares]
    else:  # only names, as many as fit
        names = [layout.name.format(skill.name) for skill in ordered]
        used = accumulate(len(name) + 1 for name in names)
        shown = names[: sum(chars <= room for chars in used)]
    changed = sum(row != other for row, other in zip(shown, rows, strict=False))
    unlisted = count - len(shown)
    text = layout.head + "\n".join(shown)
    return Catalogue(text + _ending(layout, changed, unlisted, count), changed + unlisted)


def _shares(costs: list[int], budget: int) -> list[int]:
    """Share the budget: short descriptions get all they need, the rest is split evenly.

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


def _cut(text: str, share: int) -> str:
    """Cut a description that is longer than its share, with an ellipsis at the end."""
    if len(text) <= share:
        return text
    kept = _BROKEN_ESCAPE.sub("", text[: max(0, share - len(_ELLIPSIS))]).rstrip()
    return f"{kept}{_ELLIPSIS}" if kept else ""


def _ending(layout: _Layout, shortened: int, unlisted: int, count: int) -> str:
    said = []
    if shortened:
        said.append(f"{shortened:,} of {count:,} descriptions are shortened or left out")
    if unlisted:
        said.append(f"{unlisted:,} of {count:,} skills are not listed")
    return layout.note.format(f"{'; '.join(said)}; search_skills looks through all.")
