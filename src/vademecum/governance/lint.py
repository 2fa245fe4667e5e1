"""What is wrong between the parts of a charter: names that lead nowhere, rules that can never matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vademecum.governance import expression as ex
from vademecum.governance.contradictions import always, never
from vademecum.governance.model import EVERYBODY, SkillDefinition
from vademecum.governance.reading import Draft, Placed
from vademecum.governance.roles import RoleEnforcer
from vademecum.governance.rules import ALL, Allowed, Condition, conditions_of, constraints_of, eligible
from vademecum.wildcards import is_plain, matches_exactly

SCRIPT = re.compile(r"skill:(?P<skill>[^/\s]+)/(?P<script>scripts/\S.*)")
TOOL = re.compile(r"tool:(?P<tool>\w+)")
FUNCTION = re.compile(r"[^\W\d_]\w*", re.UNICODE)


def lint(draft: Draft) -> None:
    """Add to a draft's problems everything that only shows when its parts are put side by side."""
    skills = {placed.definition.skill_id: placed for placed in reversed(draft.skills)}
    _duplicates(draft)
    for placed in draft.skills:
        _references(placed, skills, draft)
        _mapping(placed, draft)
        _conditions(placed, draft)
    _default(skills, draft)
    _cycles(skills, draft)
    _roles(skills, draft)
    _reach(skills, draft)
    draft.problems.sort(key=lambda problem: problem.line or 0)


def _duplicates(draft: Draft) -> None:
    first: dict[str, int] = {}
    for placed in draft.skills:
        name, line = placed.definition.skill_id, placed.line("skill_id")
        if name in first:
            text = f"The skill {name!r} is there already, on line {first[name]}: choose another skill_id."
            draft.wrong("duplicate-id", text, line)
        first.setdefault(name, line)


def _references(placed: Placed, skills: Mapping[str, Placed], draft: Draft) -> None:
    skill = placed.definition
    for key in ("conflicts_with", "depends_on"):
        for number, other in enumerate(getattr(skill, key)):
            line = placed.line(f"{key}[{number}]")
            if other not in skills:
                draft.wrong(
                    "unknown-reference", f"{key} names {other!r}, which is not a skill of this charter.", line
                )
            elif other == skill.skill_id:
                draft.wrong("contradiction", f"{key} names the skill itself: remove it.", line)


def _mapping(placed: Placed, draft: Draft) -> None:
    mapping = placed.definition.implementation_mapping
    if not mapping or any(form.fullmatch(mapping) for form in (SCRIPT, TOOL, FUNCTION)):
        return
    forms = "a function's name, skill:NAME/scripts/FILE or tool:NAME"
    text = f"implementation_mapping is {mapping!r}: write {forms}."
    draft.wrong("value", text, placed.line("implementation_mapping"))


def _conditions(placed: Placed, draft: Draft) -> None:
    conditions = conditions_of(placed.definition, _nothing)
    for condition in conditions:
        if always(condition):
            text = f"The condition {condition.text!r} always holds: remove it."
            draft.wrong("always-true", text, _line(placed, condition), severity="warning")
    found = impossible(placed.definition, compat=draft.compat)
    if found is not None:
        place, why = found
        line = _line(placed, conditions[place]) if place < len(conditions) else placed.line("cost")
        draft.wrong("contradiction", f"{why}: the skill can never be used.", line)


def _line(placed: Placed, condition: Condition) -> int:
    return placed.line(f"preconditions[{condition.number}]")


def impossible(skill: SkillDefinition, *, compat: bool) -> tuple[int, str] | None:
    """Which condition of a skill, the cost being the last one, can never hold, and why."""
    conditions = conditions_of(skill, _nothing)
    constraints = constraints_of(skill.institutional_constraints, _nothing)
    if constraints.cost is not None and isinstance(constraints.cost.tree, ex.Constant):
        tree = ex.Compare(">=", constraints.purse, constraints.cost.tree)
        conditions.append(Condition(f"cost {constraints.cost.text}", tree))
    return never(conditions, compat=compat)


def _nothing(key: str, code: str, text: str) -> None:
    """Said before, when the file was read."""


def _default(skills: Mapping[str, Placed], draft: Draft) -> None:
    if draft.default_skill is not None and draft.default_skill not in skills:
        text = f"default_skill names {draft.default_skill!r}, which is not a skill of this charter."
        draft.wrong("unknown-reference", text, draft.default_line)


def _cycles(skills: Mapping[str, Placed], draft: Draft) -> None:
    for name, placed in skills.items():
        way, here = [name], name
        while here in skills and len(way) <= len(skills):
            needs = [other for other in skills[here].definition.depends_on if other != here]
            if not needs:
                break
            here = needs[0] if name not in needs else name
            way.append(here)
            if here == name:
                text = f"depends_on leads in a circle ({' → '.join(way)}): none of them can ever be first."
                draft.wrong("contradiction", text, placed.line("depends_on"))
                break


def _roles(skills: Mapping[str, Placed], draft: Draft) -> None:
    for name, role in (draft.roles or {}).items():
        for number, pattern in enumerate(role.skills):
            line = draft.role_lines.get(f"{name}.skills[{number}]", draft.role_lines[name])
            matching = [skill for skill in skills if matches_exactly(pattern, skill)]
            if not matching:
                text = f"The role {name!r} names the skill {pattern!r}, which does not exist."
                draft.wrong("unknown-reference", text, line)
            elif is_plain(pattern) and name != EVERYBODY and name not in eligible(skills[pattern].definition):
                text = (
                    f"The role {name!r} may propose {pattern!r}, but is not among its eligible_agent_types."
                )
                draft.wrong("unreachable", text, line, severity="warning")


def _reach(skills: Mapping[str, Placed], draft: Draft) -> None:
    """Which skills nobody can ever use, and which types can never do anything."""
    who = {name: _users(placed.definition, draft) for name, placed in skills.items()}
    types = _types(skills, draft)
    for name, placed in skills.items():
        users = [type_ for type_ in types if type_ in who[name]]
        if not who[name].proposers.meets(who[name].types):
            text = f"No agent type can ever use {name!r}: no role that may propose it is eligible for it."
            draft.wrong("unreachable", text, placed.line("skill_id"))
        for number, other in enumerate(placed.definition.depends_on):
            if other in skills and users and not any(type_ in who[other] for type_ in users):
                text = f"{name!r} depends on {other!r}, which nobody who may use {name!r} can ever do."
                draft.wrong("unreachable", text, placed.line(f"depends_on[{number}]"))
    possible = [
        name for name, placed in skills.items() if impossible(placed.definition, compat=draft.compat) is None
    ]
    for type_ in types:
        if skills and not any(type_ in who[name] for name in possible):
            line = draft.role_lines.get(type_) or _first_line(type_, skills)
            text = f"The agent type {type_!r} has no feasible skill: give it one, such as doing nothing."
            draft.wrong("no-feasible-skill", text, line)


@dataclass(frozen=True, slots=True)
class _Users:
    """The types that may both propose a skill and are eligible for it."""

    proposers: Allowed
    types: Allowed

    def __contains__(self, agent_type: str) -> bool:
        return agent_type in self.proposers and agent_type in self.types


def _users(skill: SkillDefinition, draft: Draft) -> _Users:
    proposers = ALL if draft.roles is None else RoleEnforcer(draft.roles).proposers(skill.skill_id)
    return _Users(proposers, eligible(skill))


def _types(skills: Mapping[str, Placed], draft: Draft) -> list[str]:
    """Every agent type that the charter speaks of."""
    return list(dict.fromkeys(_named_types(skills, draft)))


def _named_types(skills: Mapping[str, Placed], draft: Draft) -> Iterator[str]:
    yield from (name for name in draft.roles or {} if name != EVERYBODY)
    for placed in skills.values():
        yield from (name for name in placed.definition.eligible_agent_types if name != EVERYBODY)


def _first_line(agent_type: str, skills: Mapping[str, Placed]) -> int:
    for placed in skills.values():
        for number, name in enumerate(placed.definition.eligible_agent_types):
            if name == agent_type:
                return placed.line(f"eligible_agent_types[{number}]")
    return 1
