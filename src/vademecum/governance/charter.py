"""The charter: a registry and roles as they were at one moment, compiled, with one hash for all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from vademecum.governance.clauses import PARAMETERS
from vademecum.governance.evaluate import EMPTY
from vademecum.governance.ledger import NOTHING_DONE, NOTHING_KNOWN, Ledger
from vademecum.governance.model import Agent, SkillDefinition, ValidationResult
from vademecum.governance.program import Program
from vademecum.governance.registry import SkillRegistry, not_found
from vademecum.governance.roles import Role, RoleEnforcer
from vademecum.governance.rules import ALL, rules_of

if TYPE_CHECKING:
    from vademecum.governance.guard import CharterGuard


class CheckNow(Protocol):
    """A charter's check at one moment."""

    def __call__(
        self, skill_id: str, agent: Agent, parameters: Mapping[str, Any] = EMPTY, /
    ) -> ValidationResult:
        """Say whether an agent may do a skill."""
        ...


class Charter:
    """Decides. What is registered later is for the next charter.

    Without roles there is no such layer, and eligibility alone says who may propose.

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
        self.revision = registry.revision
        self.roles = roles
        self.compat = registry.compat
        self.default_skill = registry.get_default_skill()
        self.skills: Mapping[str, SkillDefinition] = MappingProxyType(registry.skills)
        self._programs: dict[str, Program] = {}
        self._by_type: dict[str, tuple[str, ...]] = {}

    def guard(
        self, agent_type: str, state: dict[str, Any] | None = None, *, name: str = "default"
    ) -> CharterGuard:
        """Return this charter as the guard of an agent: ``Agent(…, guard=charter.guard("clerk", state))``.

        Costs are charged to ``state``.
        """
        from vademecum.governance.guard import CharterGuard  # noqa: PLC0415 - only agents need it

        return CharterGuard(self, agent_type, state, name=name)

    @cached_property
    def digest(self) -> str:
        """The hash of everything that decides."""
        return digest_of(self.to_json())

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Charter:
        """What ``to_json`` gave, read again as it is: it was good enough to decide by."""
        skills = map(SkillDefinition.from_json, document["skills"])
        default, compat = document.get("default_skill"), bool(document.get("compat"))
        roles = document.get("roles")
        enforcer = (
            None if roles is None else RoleEnforcer({name: Role(**role) for name, role in roles.items()})
        )
        return cls(SkillRegistry(skills, default_skill=default, compat=compat), enforcer)

    def to_json(self) -> dict[str, Any]:
        """The charter as a file has it."""
        whole: dict[str, Any] = {"skills": [skill.to_json() for skill in self.skills.values()]}
        if self.default_skill is not None:
            whole["default_skill"] = self.default_skill
        if self.compat:
            whole["compat"] = True
        if self.roles is not None:
            whole["roles"] = self.roles.to_json()
        return whole

    def program(self, skill_id: str) -> Program | None:
        """A skill's compiled rules, made when they are first needed."""
        try:
            program = self._programs.get(skill_id)
        except TypeError:  # a caller in Python may name anything
            return None
        if program is None and (skill := self.skills.get(skill_id)) is not None:
            roles = ALL if self.roles is None else self.roles.proposers(skill_id)
            rules = rules_of(skill, roles=roles, conflicts=self._conflicting.get(skill_id, ()))
            program = self._programs[skill_id] = Program(
                rules, compat=self.compat, mapping=skill.implementation_mapping
            )
        return program

    @cached_property
    def _conflicting(self) -> dict[str, tuple[str, ...]]:
        """Who names a skill as a conflict: it holds both ways."""
        found: dict[str, tuple[str, ...]] = {}
        for skill in self.skills.values():
            for other in skill.conflicts_with:
                found[other] = (*found.get(other, ()), skill.skill_id)
        return found

    def check(  # noqa: PLR0913 - what a check depends on
        self,
        skill_id: str,
        agent: Agent,
        parameters: Mapping[str, Any] = EMPTY,
        *,
        world: Mapping[str, Any] = EMPTY,
        step: int = 0,
        ledger: Ledger = NOTHING_KNOWN,
    ) -> ValidationResult:
        """Everything that is asked before a skill is executed: existence, role, type, parameters,
        preconditions, cost, cooldown and limits, conflicts and dependencies.
        """
        return self.at(world=world, step=step, ledger=ledger)(skill_id, agent, parameters)

    def at(
        self, *, world: Mapping[str, Any] = EMPTY, step: int = 0, ledger: Ledger = NOTHING_KNOWN
    ) -> CheckNow:
        """The check at one moment, for many agents: what does not change within a step is given once."""
        programs, compiled, histories = self._programs, self.program, ledger.agents

        def check(skill_id: str, agent: Agent, parameters: Mapping[str, Any] = EMPTY) -> ValidationResult:
            try:
                program = programs[skill_id]
            except (KeyError, TypeError):  # unknown, or nothing that could be a name
                found = compiled(skill_id)
                if found is None:
                    return not_found(skill_id)
                program = found
            history = histories.get(agent.id, NOTHING_DONE)
            return program.check(agent.type, agent.state, world, parameters, history, step, ledger)

        return check

    def feasible(
        self,
        agent: Agent,
        *,
        world: Mapping[str, Any] = EMPTY,
        step: int = 0,
        ledger: Ledger = NOTHING_KNOWN,
    ) -> list[str]:
        """The skills that an agent could carry out now, whatever parameters they may need."""
        found, check = [], self.at(world=world, step=step, ledger=ledger)
        for skill_id in self.open_to(agent.type):
            result = check(skill_id, agent)
            if not result.bits or not result.bits & ~self._by_parameters(skill_id):
                found.append(skill_id)
        return found

    def open_to(self, agent_type: str) -> tuple[str, ...]:
        """The skills that a type may ever propose and is eligible for."""
        found = self._by_type.get(agent_type)
        if found is None:
            found = self._by_type[agent_type] = tuple(
                filter(lambda name: self._is_open(name, agent_type), self.skills)
            )
        return found

    def _is_open(self, skill_id: str, agent_type: str) -> bool:
        program = self.program(skill_id)
        return program is not None and agent_type in program.rules.roles and agent_type in program.rules.types

    def _by_parameters(self, skill_id: str) -> int:
        """The bits of a skill that depend on what the intent says."""
        program = self.program(skill_id)
        return PARAMETERS if program is None else program.said_bits


def digest_of(document: Mapping[str, Any]) -> str:
    """The hash of a charter as a file has it."""
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, default=str)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"
