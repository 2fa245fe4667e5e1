"""What is wrong between the parts of a charter: names that lead nowhere, rules that can never matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vademecum.governance import expression as ex
from vademecum.governance.circles import circles
from vademecum.governance.contradictions import always, never
from vademecum.governance.keys import covered
from vademecum.governance.model import EVERYBODY, SkillDefinition
from vademecum.governance.reading import Draft, Placed
from vademecum.governance.roles import Role, RoleEnforcer
from vademecum.governance.rules import ALL, Allowed, Condition, conditions_of, constraints_of, eligible
from vademecum.wildcards import is_plain, matches_exactly

SCRIPT = re.compile(r"skill:(?P<skill>[^/\s]+)/(?P<script>scripts/\S.*)")
TOOL = re.compile(r"tool:(?P<tool>\w+)")
FUNCTION = re.compile(r"[^\W\d_]\w*", re.UNICODE)

MAX_SHOWN_SKILLS = 12

Skills = Mapping[str, Placed]


def lint(draft: Draft) -> None:
    """Add to a draft's problems everything that only shows when its parts are put side by side."""
    skills = {placed.definition.skill_id: placed for placed in reversed(draft.skills)}
    users = _users(skills, draft)
    _duplicates(draft)
    possible = {}
    for placed in draft.skills:
        _references(placed, skills, draft)
        _mapping(placed, draft)
        possible[placed.definition.skill_id] = _conditions(placed, draft)
    _default(skills, users, draft)
    _circles(skills, draft)
    _roles(skills, draft)
    _writes(skills, users, draft)
    _reach(skills, users, draft)
    _feasible(skills, {name: who for name, who in users.items() if possible[name]}, draft)
    draft.problems.sort(key=lambda problem: problem.line or 0)


def _users(skills: Skills, draft: Draft) -> dict[str, Allowed]:
    """The types that may both propose a skill and are eligible for it."""
    roles = None if draft.roles is None else RoleEnforcer(draft.roles)
    return {
        name: eligible(placed.definition) & (ALL if roles is None else roles.proposers(name))
        for name, placed in skills.items()
    }


def _duplicates(draft: Draft) -> None:
    first: dict[str, int] = {}
    for placed in draft.skills:
        name, line = placed.definition.skill_id, placed.line("skill_id")
        if name in first:
            text = f"The skill {name!r} is there already, on line {first[name]}: choose another skill_id."
            draft.wrong("duplicate-id", text, line)
        first.setdefault(name, line)


def _references(placed: Placed, skills: Skills, draft: Draft) -> None:
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


def _conditions(placed: Placed, draft: Draft) -> bool:
    """Whether the conditions of a skill, and its cost, can ever hold."""
    conditions = conditions_of(placed.definition, _nothing)
    for condition in conditions:
        if always(condition):
            text = f"The condition {condition.text!r} always holds: remove it."
            draft.wrong("always-true", text, _line(placed, condition), severity="warning")
    found = never([*conditions, *_cost(placed.definition)], compat=draft.compat)
    if found is None:
        return True
    place, why = found
    line = _line(placed, conditions[place]) if place < len(conditions) else placed.line("cost")
    draft.wrong("contradiction", f"{why}: the skill can never be used.", line)
    return False


def _line(placed: Placed, condition: Condition) -> int:
    return placed.line(f"preconditions[{condition.number}]")


def _cost(skill: SkillDefinition) -> Iterator[Condition]:
    """A cost that is a number, as a condition on the purse."""
    constraints = constraints_of(skill.institutional_constraints, _nothing)
    if constraints.cost is not None and isinstance(constraints.cost.tree, ex.Constant):
        tree = ex.Compare(">=", constraints.purse, constraints.cost.tree)
        yield Condition(f"cost {constraints.cost.text}", tree)


def _nothing(key: str, code: str, text: str) -> None:
    """Said before, when the file was read."""


def _default(skills: Skills, users: Mapping[str, Allowed], draft: Draft) -> None:
    name, line = draft.default_skill, draft.default_line
    if name is None:
        return
    if name not in skills:
        text = f"default_skill names {name!r}, which is not a skill of this charter."
        draft.wrong("unknown-reference", text, line)
        return
    for key, parameter in skills[name].definition.output_schema.items():
        if parameter.required:
            text = f"default_skill {name!r} requires the parameter {key!r}: nobody would give it."
            draft.wrong("contradiction", text, line)
    left = [type_ for type_ in _types(skills, draft) if type_ not in users[name]]
    if left:
        shown = ", ".join(left[:MAX_SHOWN_SKILLS])
        text = f"default_skill {name!r} is not open to {shown}: they have no default."
        draft.wrong("unreachable", text, line, severity="warning")


def _circles(skills: Skills, draft: Draft) -> None:
    needs = {
        name: [other for other in placed.definition.depends_on if other in skills and other != name]
        for name, placed in skills.items()
    }
    for circle in circles(needs):
        for place, name in enumerate(circle):
            way = [*circle[place:], *circle[:place], name]
            if len(way) > MAX_SHOWN_SKILLS:
                way = [*way[: MAX_SHOWN_SKILLS - 2], "…", name]
            text = f"depends_on leads in a circle ({' → '.join(way)}): none of them can ever be first."
            draft.wrong("contradiction", text, skills[name].line("depends_on"))


def _roles(skills: Skills, draft: Draft) -> None:
    for name, role in (draft.roles or {}).items():
        for number, pattern in enumerate(role.skills):
            line = draft.role_lines.get(f"{name}.skills[{number}]", draft.role_lines[name])
            plain = is_plain(pattern)
            if not (pattern in skills if plain else any(matches_exactly(pattern, skill) for skill in skills)):
                text = f"The role {name!r} names the skill {pattern!r}, which does not exist."
                draft.wrong("unknown-reference", text, line)
            elif plain and name != EVERYBODY and name not in eligible(skills[pattern].definition):
                text = (
                    f"The role {name!r} may propose {pattern!r}, but is not among its eligible_agent_types."
                )
                draft.wrong("unreachable", text, line, severity="warning")


def _writes(skills: Skills, users: Mapping[str, Allowed], draft: Draft) -> None:
    """Which skills change only what nobody who may use them may write."""
    for name, placed in skills.items():
        allowed = placed.definition.allowed_state_changes
        roles = [role for type_, role in (draft.roles or {}).items() if type_ in users[name]]
        if allowed and roles and not any(_may_meet(key, role) for key in allowed for role in roles):
            text = f"No role that may use {name!r} may write anything of its allowed_state_changes."
            draft.wrong("unreachable", text, placed.line("allowed_state_changes"), severity="warning")


def _may_meet(key: str, role: Role) -> bool:
    """Whether some key can be among both; in doubt it can."""
    return any(
        not (is_plain(key) or is_plain(pattern)) or covered(key, [pattern]) or covered(pattern, [key])
        for pattern in role.writes
    )


def _reach(skills: Skills, users: Mapping[str, Allowed], draft: Draft) -> None:
    """Which skills nobody can ever use."""
    for name, placed in skills.items():
        if not users[name]:
            text = f"No agent type can ever use {name!r}: no role that may propose it is eligible for it."
            draft.wrong("unreachable", text, placed.line("skill_id"))
            continue
        for number, other in enumerate(placed.definition.depends_on):
            if other in skills and not users[name] & users[other]:
                text = f"{name!r} depends on {other!r}, which nobody who may use {name!r} can ever do."
                draft.wrong("unreachable", text, placed.line(f"depends_on[{number}]"))


def _feasible(skills: Skills, users: Mapping[str, Allowed], draft: Draft) -> None:
    """Which types can never do anything."""
    left = dict.fromkeys(_types(skills, draft))
    for who in users.values():
        for type_ in [type_ for type_ in left if type_ in who] if who.everybody_but else who.types:
            left.pop(type_, None)
    first = {
        name: placed.line(f"eligible_agent_types[{number}]")
        for placed in reversed(list(skills.values()))
        for number, name in reversed(list(enumerate(placed.definition.eligible_agent_types)))
    }
    for type_ in left if skills else ():
        text = f"The agent type {type_!r} has no feasible skill: give it one, such as doing nothing."
        draft.wrong("no-feasible-skill", text, draft.role_lines.get(type_) or first.get(type_, 1))


def _types(skills: Skills, draft: Draft) -> list[str]:
    """Every agent type that the charter speaks of."""
    return list(dict.fromkeys(_named_types(skills, draft)))


def _named_types(skills: Skills, draft: Draft) -> Iterator[str]:
    yield from (name for name in draft.roles or {} if name != EVERYBODY)
    for placed in skills.values():
        yield from (name for name in placed.definition.eligible_agent_types if name != EVERYBODY)
