"""Find problems between the parts of a charter: names that do not exist, and rules without effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vademecum.governance.conditions import strict_differs
from vademecum.governance.definitions import EVERYBODY
from vademecum.governance.reading import Draft, Placed
from vademecum.governance.roles import RoleEnforcer
from vademecum.wildcards import matches_exactly

SCRIPT = re.compile(r"skill:(?P<skill>[^/\s]+)/(?P<script>scripts/\S.*)")
TOOL = re.compile(r"tool:(?P<tool>\w+)")
FUNCTION = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*")

MAX_SHOWN = 12

Skills = Mapping[str, Placed]


def lint(draft: Draft) -> None:
    """Add to a draft every problem that shows only when its parts are compared."""
    skills = {placed.check.skill.skill_id: placed for placed in reversed(draft.skills)}
    _duplicates(draft)
    for placed in draft.skills:
        _mapping(placed, draft)
    _references(skills, draft)
    _reach(skills, draft)
    _strictness(draft)
    draft.problems.sort(key=lambda problem: problem.line or 0)


def _duplicates(draft: Draft) -> None:
    first: dict[str, int] = {}
    for placed in draft.skills:
        name, place = placed.check.skill.skill_id, f"{placed.place}.skill_id"
        if name in first:
            text = f"The skill {name!r} is there already, on line {first[name]}: choose another skill_id."
            draft.wrong("duplicate-id", text, place)
        first.setdefault(name, draft.lines[place])


def _mapping(placed: Placed, draft: Draft) -> None:
    mapping = placed.check.skill.implementation_mapping
    if mapping and not any(form.fullmatch(mapping) for form in (SCRIPT, TOOL, FUNCTION)):
        forms = "a function's name, skill:NAME/scripts/FILE or tool:NAME"
        text = f"implementation_mapping is {mapping!r}: write {forms}."
        draft.wrong("value", text, f"{placed.place}.implementation_mapping")


def _references(skills: Skills, draft: Draft) -> None:
    """Find names of skills that do not exist."""
    name = draft.default_skill
    if name is not None and name not in skills:
        text = f"default_skill names {name!r}, which is not a skill of this charter."
        draft.wrong("unknown-reference", text, "default_skill")
    for name, role in (draft.roles or {}).items():
        for number, pattern in enumerate(role.skills):
            if pattern not in skills and not any(matches_exactly(pattern, skill) for skill in skills):
                text = f"The role {name!r} names the skill {pattern!r}, which does not exist."
                draft.wrong("unknown-reference", text, f"roles.{name}.skills[{number}]")


def _reach(skills: Skills, draft: Draft) -> None:
    """Find skills that no type can use, and types that can use no skill."""
    roles = None if draft.roles is None else RoleEnforcer(draft.roles)
    first: dict[str, str] = {}  # every type that the charter names, with its place
    for placed in draft.skills:
        for number, name in enumerate(placed.check.skill.eligible_agent_types):
            first.setdefault(name, f"{placed.place}.eligible_agent_types[{number}]")
    first |= {name: f"roles.{name}" for name in draft.roles or ()}
    used: set[str] = set()
    for type_, place in first.items():
        own = {name for name in _proposed(type_, roles, skills) if skills[name].check.is_for(type_)}
        used |= own
        if not own and type_ != EVERYBODY and skills:
            text = f"The agent type {type_!r} has no feasible skill: give it one, such as doing nothing."
            draft.wrong("no-feasible-skill", text, place)
    for name in skills.keys() - used:
        text = f"No agent type can ever use {name!r}: no role that may propose it is eligible for it."
        draft.wrong("unreachable", text, f"{skills[name].place}.skill_id")


def _proposed(agent_type: str, roles: RoleEnforcer | None, skills: Skills) -> Iterator[str]:
    """Yield the skills that a type may propose."""
    for pattern in ("*",) if roles is None else roles.role_of(agent_type).skills:
        if pattern in skills:
            yield pattern
        else:
            yield from (name for name in skills if matches_exactly(pattern, name))


def _strictness(draft: Draft) -> None:
    """Say which conditions ``strict: true`` could decide differently."""
    if draft.strict:
        return
    places = [
        f"{placed.place}.preconditions[{number}]"
        for placed in draft.skills
        for number, text in enumerate(placed.check.skill.preconditions)
        if any(each.text == text and strict_differs(each.tree) for each in placed.check.conditions)
    ]
    if places:
        lines = dict.fromkeys(str(draft.lines[place]) for place in places[:MAX_SHOWN])
        shown = ", ".join(lines) + (" …" if len(places) > MAX_SHOWN else "")
        text = f"strict: true could deny more, where a field is missing or not a boolean: lines {shown}."
        draft.wrong("not-strict", text, places[0], severity="warning")
