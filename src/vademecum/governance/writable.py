"""Which changes a skill may bring about: those it lists, as far as the role of whoever proposed may write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vademecum.governance.changes import Change, covered
from vademecum.governance.charter import Charter
from vademecum.governance.clauses import shown
from vademecum.governance.evaluate import Facts
from vademecum.governance.model import EVERYBODY, Reason
from vademecum.governance.program import Program
from vademecum.governance.roles import RoleEnforcer


class Charge(NamedTuple):
    """What the charter itself takes: out of which purse, how much, and what is left in it."""

    purse: str
    cost: Any
    left: Any


def charge_of(program: Program, facts: Facts) -> Charge | None:
    """What a skill costs in a state, where it costs anything."""
    if program.is_free:
        return None
    cost = program.cost(facts.state, facts.world, facts.params)
    purse = facts.world if program.is_shared else facts.state
    return Charge(program.purse, cost, purse[program.purse_key] - cost)


class Writable:
    """Compares differences with what one charter allows; what was found out once is remembered."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[tuple[str, str, str], bool] = {}

    def objections(
        self, agent_type: str, skill_id: str, changes: tuple[Change, ...], charge: Charge | None
    ) -> Iterator[Reason]:
        """Everything that changed and may not."""
        for key, old, new in changes:
            if charge is not None and key == charge.purse and new == charge.left:
                continue  # the charter's own doing
            known = self._known.get((agent_type, skill_id, key))
            if known is None:
                known = self._known[agent_type, skill_id, key] = self._allows(agent_type, skill_id, key)
            if not known:
                yield self._objection(agent_type, skill_id, key, f"({shown(old)} → {shown(new)})")

    def _allows(self, agent_type: str, skill_id: str, key: str) -> bool:
        return covered(key, self._listed(skill_id)) and covered(key, self._writes(agent_type))

    def _listed(self, skill_id: str) -> list[str]:
        return list(self._charter.skills[skill_id].allowed_state_changes)

    def _writes(self, agent_type: str) -> list[str]:
        roles: RoleEnforcer | None = self._charter.roles
        return [EVERYBODY] if roles is None else list(roles.role_of(agent_type).writes)

    def _objection(self, agent_type: str, skill_id: str, key: str, change: str) -> Reason:
        if covered(key, self._listed(skill_id)):
            text = f"Agent type {agent_type!r} may not write {key!r} {change}"
            return Reason("write-permission", "roles: writes", key, self._writes(agent_type), text)
        text = f"State change not allowed: {key!r} {change}"
        return Reason("state-change", "allowed_state_changes", key, self._listed(skill_id), text)
