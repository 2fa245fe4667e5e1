"""Combine the checks of all skills with roles, load both from a file, and decide about intents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from vademecum.errors import CharterRefused, FileRefused
from vademecum.files import read_capped
from vademecum.governance.check import CONSTRAINTS, LIKE, SkillCheck, not_found
from vademecum.governance.conditions import Facts
from vademecum.governance.definitions import (
    EMPTY,
    HIDDEN,
    VALID,
    Clause,
    GovernedAgent,
    MayRead,
    Reason,
    SkillDefinition,
    ValidationResult,
    shown,
)
from vademecum.governance.reading import read_draft
from vademecum.governance.roles import UNRESTRICTED, Role, RoleEnforcer, covered
from vademecum.governance.state import WORLD, Change, Ledger
from vademecum.nearest import nearest
from vademecum.skill.skill import Problem

if TYPE_CHECKING:
    from vademecum.governance.guard import CharterGuard

CHARTER_FILE = "skill_registry.yaml"
MAX_CHARTER_BYTES = 64 * 1024 * 1024
_NOTHING = Ledger()


class SkillRegistry:
    """The definitions of all skills. It checks eligibility and preconditions.

    ``default_skill`` is the skill for an agent that can do nothing else.

    By default a field counts as true or false as in Python, and a missing field is false. With ``strict``
    a missing field denies, and so does one that is neither a boolean nor a number.

    >>> registry = SkillRegistry([SkillDefinition("relocate", "Move.", ["resident"], ["not is_flooded"])])
    >>> registry.check_eligibility("relocate", "government").message
    "Agent type 'government' not eligible for skill 'relocate'"
    >>> registry.check_preconditions("relocate", {"is_flooded": True}).message
    "Precondition failed: 'not is_flooded' (field is True)"
    """

    def __init__(
        self,
        skills: Iterable[SkillDefinition] = (),
        *,
        default_skill: str | None = None,
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self.checks: dict[str, SkillCheck] = {}
        self.default_skill = default_skill
        for skill in skills:
            self.register(skill)
        if default_skill is not None and default_skill not in self.checks:
            raise CharterRefused(
                f"default_skill names {default_skill!r}, which is not a skill of this charter."
            )

    @classmethod
    def load(cls, path: str | Path) -> SkillRegistry:
        """Return the registry of a ``skill_registry.yaml``, or raise ``CharterRefused``.

        Roles in the file are not part of it; ``load_charter`` returns both.

        >>> rest = '{skill_id: rest, eligible_agent_types: ["*"], implementation_mapping: rest}'
        >>> _ = Path("skill_registry.yaml").write_text(f"skills: [{rest}]")
        >>> SkillRegistry.load("skill_registry.yaml").get_execution_mapping("rest")
        'rest'
        """
        return load_charter(path).registry

    @property
    def skills(self) -> dict[str, SkillDefinition]:
        """Return all definitions by id, in the order of registration."""
        return {name: check.skill for name, check in list(self.checks.items())}

    def register(self, skill: SkillDefinition) -> None:
        """Add a skill, or raise ``CharterRefused`` if its id is taken or its definition is wrong."""
        if skill.skill_id in self.checks:
            raise CharterRefused(f"The skill {skill.skill_id!r} exists already: choose another skill_id.")
        check = SkillCheck(skill, strict=self.strict)
        wrong = [text for _, _, text in check.problems]
        for key in skill.institutional_constraints:
            if key not in CONSTRAINTS and (near := nearest(key, CONSTRAINTS, like=LIKE)):
                wrong.append(f"There is no constraint {key!r}: did you mean {near!r}?")
        if wrong:
            raise CharterRefused(f"The definition of {skill.skill_id!r} is wrong: {' '.join(wrong)}")
        self.checks[skill.skill_id] = check

    def get(self, skill_id: str) -> SkillDefinition | None:
        """Return the definition of a skill, or ``None``."""
        found = self.skill_check(skill_id)
        return None if found is None else found.skill

    def skill_check(self, skill_id: Any) -> SkillCheck | None:
        """Return the check of a skill, or ``None``; a model can send any value as an id."""
        return self.checks.get(skill_id) if isinstance(skill_id, str) else None

    def check_eligibility(self, skill_id: str, agent_type: str) -> ValidationResult:
        """Check whether a skill exists and is for an agent type."""
        return self._check(Clause.TYPE, skill_id, agent_type, EMPTY)

    def check_preconditions(self, skill_id: str, agent_state: Mapping[str, Any]) -> ValidationResult:
        """Check whether a state meets a skill's preconditions; its key ``world`` is the shared state."""
        return self._check(Clause.CONDITIONS, skill_id, "", agent_state)

    def _check(self, bits: int, skill_id: str, agent_type: str, state: Mapping[str, Any]) -> ValidationResult:
        found = self.skill_check(skill_id)
        if found is None:
            return not_found(skill_id)
        world = state.get(WORLD)
        shared = world if isinstance(world, Mapping) else EMPTY
        return found.check(agent_type, (state, shared, EMPTY), EMPTY, 0).only(bits)

    def get_execution_mapping(self, skill_id: str) -> str | None:
        """Return the implementation of a skill: a function of the engine, a script or a tool."""
        skill = self.get(skill_id)
        return None if skill is None else skill.implementation_mapping


class Charter:
    """A registry and roles, which decide about intents. Without roles, only eligibility limits agents.

    >>> from vademecum.governance import Actor
    >>> move = SkillDefinition("move", preconditions=["age < 70", "savings > 10"])
    >>> charter = Charter(SkillRegistry([move]))
    >>> charter.check("move", Actor("h1", "household", {"age": 71, "savings": 5})).message
    "Precondition failed: 'age < 70' (age is 71); Precondition failed: 'savings > 10' (savings is 5)"
    >>> charter.feasible(Actor("h2", "household", {"age": 40, "savings": 50}))
    ['move']
    """

    def __init__(self, registry: SkillRegistry, roles: RoleEnforcer | None = None) -> None:
        self.registry = registry
        self.roles = roles
        self.rights = UNRESTRICTED if roles is None else roles
        self._by_role = cache(self.rights.check_skill)

    def guard(
        self, agent_type: str, state: dict[str, Any] | None = None, *, name: str = "default"
    ) -> CharterGuard:
        """Return this charter as the guard of an agent: ``Agent(…, guard=charter.guard("clerk", state))``.

        Costs are charged to ``state``.
        """
        from vademecum.governance.guard import CharterGuard  # noqa: PLC0415 - only agents need it

        return CharterGuard(self, agent_type, state, name=name)

    @property
    def skills(self) -> dict[str, SkillDefinition]:
        """Return all definitions by id, in the order of registration."""
        return self.registry.skills

    @property
    def digest(self) -> str:
        """Return the hash of everything that the decisions depend on."""
        return digest_of(self.to_json())

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Charter:
        """Return the charter from the form that ``to_json`` writes.

        A document without ``strict`` is from a version in which strict was the default.
        """
        skills, roles = map(SkillDefinition.from_json, document["skills"]), document.get("roles")
        default = document.get("default_skill")
        strict = bool(document.get("strict", not document.get("compat", False)))
        registry = SkillRegistry(skills, default_skill=default, strict=strict)
        found = RoleEnforcer({name: Role(**role) for name, role in (roles or {}).items()})
        return cls(registry, None if roles is None else found)

    def to_json(self) -> dict[str, Any]:
        """Return the charter in the form of a record."""
        whole: dict[str, Any] = {"skills": [skill.to_json() for skill in self.skills.values()]}
        if self.registry.default_skill is not None:
            whole["default_skill"] = self.registry.default_skill
        whole["strict"] = self.registry.strict
        if self.roles is not None:
            whole["roles"] = self.roles.to_json()
        return whole

    def decide(
        self, skill_id: str, agent_type: str, facts: Facts, last: Mapping[str, int], step: int
    ) -> ValidationResult:
        """Check everything that must hold before a skill is executed: existence, role, type, parameters,
        preconditions, cost and cooldown.
        """
        found = self.registry.skill_check(skill_id)
        if found is None:
            return not_found(skill_id)
        result = found.check(agent_type, facts, last, step)
        role = self._by_role(agent_type, skill_id)
        return role.plus(result) if role.bits else result

    def check(  # noqa: PLR0913 - what a check depends on
        self,
        skill_id: str,
        agent: GovernedAgent,
        parameters: Mapping[str, Any] = EMPTY,
        *,
        world: Mapping[str, Any] = EMPTY,
        step: int = 0,
        ledger: Ledger = _NOTHING,
    ) -> ValidationResult:
        """Check one skill for one agent."""
        last = ledger.agents.get(agent.id, EMPTY)
        return self.decide(skill_id, agent.type, (agent.state, world, parameters), last, step)

    def feasible(
        self,
        agent: GovernedAgent,
        *,
        world: Mapping[str, Any] = EMPTY,
        step: int = 0,
        ledger: Ledger = _NOTHING,
    ) -> list[str]:
        """Return the skills that an agent can carry out now with suitable parameters."""
        check = partial(self.check, world=world, step=step, ledger=ledger)
        found = list(self.registry.checks.items())  # another thread can register a skill meanwhile
        return [name for name, each in found if not check(name, agent).bits & ~each.correctable]

    def objections(self, agent_type: str, skill_id: str, changes: Sequence[Change]) -> ValidationResult:
        """Return a reason for each change that the skill does not list, or that the role may not write."""
        listed = tuple(self.registry.checks[skill_id].skill.allowed_state_changes)
        writes = tuple(self.rights.role_of(agent_type).writes)

        def explain(_bits: int, _observed: tuple[Any, ...], may: MayRead) -> Iterator[Reason]:
            for key, old, new in changes:
                what = f"{shown(old)} → {shown(new)}" if may(key) else HIDDEN
                if not covered(key, listed):
                    text = f"State change not allowed: {key!r} ({what})"
                    yield Reason("state-change", "allowed_state_changes", key, list(listed), text)
                elif not covered(key, writes):
                    text = f"Agent type {agent_type!r} may not write {key!r} ({what})"
                    yield Reason("write-permission", "roles: writes", key, list(writes), text)

        allowed = all(covered(key, listed) and covered(key, writes) for key, _, _ in changes)
        return VALID if allowed else ValidationResult(Clause.AFTERWARDS, explain)


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the hash of a charter's JSON document."""
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, default=str)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


class Linted(Struct, frozen=True):
    """The result of reading a charter: all problems, and without an error the registry and roles.

    >>> _ = Path("skill_registry.yaml").write_text("skills: [{skill_id: rest, eligible_agent_types: all}]")
    >>> found = lint_charter("skill_registry.yaml")
    >>> found.valid, found.skills, found.problems[0].message
    (False, 1, 'eligible_agent_types is not a list: write each of its values after a dash.')
    """

    registry: SkillRegistry | None
    roles: RoleEnforcer | None
    problems: tuple[Problem, ...]
    skills: int = 0

    @property
    def valid(self) -> bool:
        """Return whether the charter can be used."""
        return self.registry is not None

    def to_json(self) -> dict[str, Any]:
        """Return the result as ``vade govern lint`` prints it."""
        problems = [problem.to_json() for problem in self.problems]
        return {"valid": self.valid, "skills": self.skills, "problems": problems}


def load_charter(path: str | Path) -> Charter:
    """Return the charter of a file, or raise ``CharterRefused`` with the first error.

    >>> rest = '{skill_id: rest, eligible_agent_types: ["*"], implementation_mapping: rest}'
    >>> _ = Path("skill_registry.yaml").write_text(f"skills: [{rest}]")
    >>> list(load_charter("skill_registry.yaml").skills)
    ['rest']
    """
    linted = lint_charter(path)
    if linted.registry is None:
        first, *more = (problem for problem in linted.problems if problem.severity == "error")
        rest = f" (and {len(more)} more: vade govern lint {path})" if more else ""
        raise CharterRefused(f"{path}, line {first.line}: {first.message}{rest}")
    return Charter(linted.registry, linted.roles)


def lint_charter(path: str | Path) -> Linted:
    """Read a charter file and return all its problems.

    >>> _ = Path("skill_registry.yaml").write_text("skills: [{skill_id: rest, colour: blue}]")
    >>> [(problem.code, problem.severity) for problem in lint_charter("skill_registry.yaml").problems]
    [('unknown-key', 'warning'), ('missing-key', 'warning'), ('missing-key', 'error')]
    """
    path = Path(path)
    file = path / CHARTER_FILE if path.is_dir() else path
    try:
        text = read_capped(file, cap=MAX_CHARTER_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise CharterRefused(
            f"There is no charter at {file}: name a {CHARTER_FILE}.", code="no-charter"
        ) from error
    except (OSError, FileRefused, UnicodeDecodeError) as error:
        raise CharterRefused(f"The charter {file} cannot be read ({error}): make it a text file.") from error
    return lint_text(text)


def lint_text(text: str) -> Linted:
    """Read a charter's text and return all its problems."""
    draft = read_draft(text)
    registry = roles = None
    if all(problem.severity != "error" for problem in draft.problems):
        skills = (check.skill for check in draft.skills.values())
        registry = SkillRegistry(skills, default_skill=draft.default_skill, strict=draft.strict)
        roles = None if draft.roles is None else RoleEnforcer(draft.roles)
    return Linted(registry, roles, tuple(draft.problems), len(draft.skills))
