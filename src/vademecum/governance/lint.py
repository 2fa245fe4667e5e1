"""Find problems between the parts of a charter: names that do not exist, and rules without effect."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vademecum.governance.check import ALL, Allowed
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
    skills = {placed.definition.skill_id: placed for placed in reversed(draft.skills)}
    roles = None if draft.roles is None else RoleEnforcer(draft.roles)
    users = {
        name: placed.rules.types & (ALL if roles is None else roles.proposers(name))
        for name, placed in skills.items()
    }
    _duplicates(draft)
    for placed in draft.skills:
        _mapping(placed, draft)
    _references(skills, draft)
    _reach(skills, users, draft)
    _strictness(draft)
    draft.problems.sort(key=lambda problem: problem.line or 0)


def _duplicates(draft: Draft) -> None:
    first: dict[str, int] = {}
    for placed in draft.skills:
        name, place = placed.definition.skill_id, f"{placed.place}.skill_id"
        if name in first:
            text = f"The skill {name!r} is there already, on line {first[name]}: choose another skill_id."
            draft.wrong("duplicate-id", text, place)
        first.setdefault(name, draft.lines[place])


def _mapping(placed: Placed, draft: Draft) -> None:
    mapping = placed.definition.implementation_mapping
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


def _reach(skills: Skills, users: Mapping[str, Allowed], draft: Draft) -> None:
    """Find skills that no type can use, and types that can use no skill."""
    eligible = (name for placed in skills.values() for name in placed.definition.eligible_agent_types)
    left = dict.fromkeys([*(draft.roles or ()), *eligible])  # every type that the charter names
    left.pop(EVERYBODY, None)
    for name, placed in skills.items():
        if not users[name]:
            text = f"No agent type can ever use {name!r}: no role that may propose it is eligible for it."
            draft.wrong("unreachable", text, f"{placed.place}.skill_id")
        for type_ in list(left) if users[name].all_except else users[name].types:
            if type_ in users[name]:
                left.pop(type_, None)
    first = {
        name: f"{placed.place}.eligible_agent_types[{number}]"
        for placed in reversed(list(skills.values()))
        for number, name in reversed(list(enumerate(placed.definition.eligible_agent_types)))
    }
    for type_ in left if skills else ():
        text = f"The agent type {type_!r} has no feasible skill: give it one, such as doing nothing."
        place = f"roles.{type_}" if type_ in (draft.roles or {}) else first[type_]
        draft.wrong("no-feasible-skill", text, place)


def _strictness(draft: Draft) -> None:
    """Say which conditions ``strict: true`` could decide differently."""
    if draft.strict:
        return
    places = [
        f"{placed.place}.preconditions[{number}]"
        for placed in draft.skills
        for number, text in enumerate(placed.definition.preconditions)
        if any(each.text == text and strict_differs(each.tree) for each in placed.rules.conditions)
    ]
    if places:
        lines = dict.fromkeys(str(draft.lines[place]) for place in places[:MAX_SHOWN])
        shown = ", ".join(lines) + (" …" if len(places) > MAX_SHOWN else "")
        text = f"strict: true could deny more, where a field is missing or not a boolean: lines {shown}."
        draft.wrong("not-strict", text, places[0], severity="warning")
