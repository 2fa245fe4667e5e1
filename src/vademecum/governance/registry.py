"""The registry: which skills there are, who is eligible, what must hold before, and what carries them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vademecum.errors import CharterRefused
from vademecum.governance.clauses import TYPE, UNKNOWN, Clauses, Seen
from vademecum.governance.evaluate import EMPTY
from vademecum.governance.ledger import NOTHING_DONE, NOTHING_KNOWN
from vademecum.governance.model import (
    MAX_CONDITIONS,
    MISSING,
    VALID,
    Reason,
    SkillDefinition,
    ValidationResult,
)
from vademecum.governance.program import Program
from vademecum.governance.roles import refusal
from vademecum.governance.rules import Rules, eligible, rules_of
from vademecum.governance.words import shown


class SkillRegistry:
    """All skills of a charter. With ``compat`` a field is plainly true or false, and a missing one is false.

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
        compat: bool = False,
    ) -> None:
        self.compat = compat
        self.revision = 0
        self._default = default_skill
        self._skills: dict[str, SkillDefinition] = {}
        self._preconditions: dict[str, Program] = {}
        for skill in skills:
            self.register(skill)

    @property
    def skills(self) -> dict[str, SkillDefinition]:
        """All definitions by their ids, as they are now."""
        return dict(self._skills)

    def register(self, skill: SkillDefinition) -> None:
        """Add a skill; a definition that cannot be used, or an id that is taken, is refused."""
        if not skill.skill_id:
            raise CharterRefused("A skill has no skill_id: give it one.")
        if skill.skill_id in self._skills:
            raise CharterRefused(f"The skill {skill.skill_id!r} is there already: choose another skill_id.")
        if len(skill.preconditions) > MAX_CONDITIONS:
            most = f"{MAX_CONDITIONS} preconditions"
            raise CharterRefused(f"The skill {skill.skill_id!r} has more than {most}: join some with and.")
        rules_of(skill)
        self._skills[skill.skill_id] = skill.frozen()
        self.revision += 1

    def get(self, skill_id: str) -> SkillDefinition | None:
        """The definition of a skill, if there is one."""
        return self._skills.get(skill_id)

    def check_eligibility(self, skill_id: str, agent_type: str) -> ValidationResult:
        """Whether a skill exists and is for a type of agents."""
        skill = self._skills.get(skill_id)
        if skill is None:
            return not_found(skill_id)
        types = eligible(skill)
        if agent_type in types:
            return VALID
        seen = Seen(agent_type, EMPTY, 0, 0, None, (0, 0, 0), (), (), ())
        return ValidationResult(TYPE, Clauses(Rules(skill_id, types=types)), seen)

    def check_preconditions(self, skill_id: str, agent_state: Mapping[str, Any]) -> ValidationResult:
        """Whether everything holds that a skill asks of a state; ``world`` in it is the shared state."""
        program = self._preconditions.get(skill_id)
        if program is None:
            skill = self._skills.get(skill_id)
            if skill is None:
                return not_found(skill_id)
            only = Rules(skill_id, conditions=rules_of(skill).conditions)
            program = self._preconditions[skill_id] = Program(only, compat=self.compat)
        world = agent_state.get("world", EMPTY)
        world = world if isinstance(world, Mapping) else EMPTY
        return program.check("", agent_state, world, EMPTY, NOTHING_DONE, 0, NOTHING_KNOWN)

    def get_execution_mapping(self, skill_id: str) -> str | None:
        """What carries a skill out: a function of the engine, or a script of a skill directory."""
        skill = self._skills.get(skill_id)
        return None if skill is None else skill.implementation_mapping

    def get_default_skill(self) -> str | None:
        """The skill for an agent that has no other, if the charter names one."""
        return self._default


def not_found(skill_id: str) -> ValidationResult:
    """The answer for a skill that does not exist."""
    text = f"Skill {shown(skill_id)} not found in registry"
    return refusal(Reason("not-found", "skills", MISSING, skill_id, text), bits=UNKNOWN)
