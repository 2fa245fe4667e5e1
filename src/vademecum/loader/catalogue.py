"""Skills → the list a model chooses from: names always, descriptions as far as the budget goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Literal

from msgspec import Struct

from vademecum.skill.skill import Skill

Form = Literal["list", "xml", "json"]

# Enough for 100 skills with long descriptions, and 2 % of a context window of a million tokens.
DEFAULT_BUDGET = 80_000
_ELLIPSIS = "…"


class Catalogue(Struct, frozen=True):
    """The text, and how many descriptions had to be shortened for it."""

    text: str
    shortened: int


def render_catalogue(
    skills: Sequence[Skill], *, form: Form = "list", budget: int = DEFAULT_BUDGET
) -> Catalogue:
    """Render the catalogue in at most ``budget`` characters, names excepted; no skills, no catalogue.

    >>> render_catalogue([])
    Catalogue(text='', shortened=0)
    """
    if not skills:
        return Catalogue("", 0)
    descriptions = [" ".join(skill.description.split()) for skill in skills]
    frame = len(_text(skills, [""] * len(skills), form, 0))
    shares = _shares([_cost(description, form) for description in descriptions], budget - frame)
    shown = [
        text if share >= _cost(text, form) else _cut(text, share, form)
        for text, share in zip(descriptions, shares, strict=True)
    ]
    shortened = sum(text != whole for text, whole in zip(shown, descriptions, strict=True))
    return Catalogue(_text(skills, shown, form, shortened), shortened)


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


def _cost(description: str, form: Form) -> int:
    return len(_escaped(description, form))


def _cut(text: str, share: int, form: Form) -> str:
    """As much of a description as its share holds, ending in an ellipsis."""
    room = share - len(_ELLIPSIS)
    if room <= 0:
        return ""
    kept = text[:room]
    while _cost(kept, form) > room:  # escapes take more than one character
        kept = kept[: -max(1, (_cost(kept, form) - room) // 8)]
    return f"{kept.rstrip()}{_ELLIPSIS}"


def _escaped(text: str, form: Form) -> str:
    match form:
        case "xml":
            return escape(text, quote=False)
        case "json":
            return json.dumps(text, ensure_ascii=False)[1:-1]
        case "list":
            return text


def _text(skills: Sequence[Skill], descriptions: list[str], form: Form, shortened: int) -> str:
    note = f"{shortened:,} of {len(skills):,} descriptions are shortened; search_skills looks through all."
    match form:
        case "list":
            rows = [
                f"- name={skill.name} | source={skill.source} | description={text}"
                for skill, text in zip(skills, descriptions, strict=True)
            ]
            return "\n".join(["Available Skills:", *rows, *([f"({note})"] if shortened else [])])
        case "xml":
            entries = [_xml(skill, text) for skill, text in zip(skills, descriptions, strict=True)]
            comment = [f"<!-- {note} -->"] if shortened else []
            return "\n".join(["<available_skills>", *entries, *comment, "</available_skills>"])
        case "json":
            found = [
                {"name": skill.name, "description": text, "source": skill.source}
                for skill, text in zip(skills, descriptions, strict=True)
            ]
            extra = {"note": note} if shortened else {}
            return json.dumps({"available_skills": found, **extra}, ensure_ascii=False, separators=(",", ":"))


def _xml(skill: Skill, description: str) -> str:
    # The form that models know, with the source in place of a path: a skill is loaded by its name.
    return (
        f"<skill>\n<name>\n{escape(skill.name)}\n</name>\n"
        f"<description>\n{escape(description, quote=False)}\n</description>\n"
        f"<source>\n{skill.source}\n</source>\n</skill>"
    )
