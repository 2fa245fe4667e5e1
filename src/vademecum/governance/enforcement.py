"""Charge the cost of a skill, and compare what changed with what may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from vademecum.governance.charter import Charter
from vademecum.governance.definitions import MayRead, Reason, may_read_all, shown
from vademecum.governance.roles import EVERYTHING, MAX_REMEMBERED, covered
from vademecum.governance.rules.check import HIDDEN, SkillCheck
from vademecum.governance.rules.conditions import FAILURES
from vademecum.governance.state import Change, State, equal

# Makes reasons for a reader.
Words = Callable[[MayRead], tuple[Reason, ...]]


class Charge(Struct, frozen=True, gc=False):
    """A cost: the dictionary and key that it is taken from, and the value before and after."""

    purse: State
    key: str
    path: str
    before: Any
    left: Any
    cost: Any

    def without(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Return the changes that the charge did not make; a purse that is full again was filled."""
        after = next((new for key, _, new in changes if key == self.path), self.before)
        others = tuple(change for change in changes if change[0] != self.path)
        return others if equal(after, self.left) else ((self.path, self.left, after), *others)

    def first(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return the changes, that of the purse first, also if the purse is full again."""
        after = next((new for key, _, new in changes if key == self.path), self.before)
        return ((self.path, self.before, after), *(each for each in changes if each[0] != self.path))


def charge_of(
    check: SkillCheck, state: State, world: State, params: Mapping[str, Any]
) -> Charge | Words | None:
    """Return the charge of a skill, ``None`` if it is free, or the reason why it cannot be paid."""
    if check.rules.cost is None:
        return None
    *shared, key = check.rules.purse.parts
    purse, path = (world if shared else state), str(check.rules.purse)
    cost, before = check.cost(state, world, params), purse[key]
    try:
        left = before - cost
        if left >= 0:  # false for infinity minus infinity
            return Charge(purse, key, path, before, left, cost) if cost else None
    except FAILURES:
        pass

    def cannot_pay(may: MayRead) -> tuple[Reason, ...]:
        there = f"{shown(cost)} cannot be taken from {shown(before)}" if may(path) else HIDDEN
        return (Reason("cost", "cost", before, cost, f"Cost cannot be paid out of {path!r} ({there})"),)

    return cannot_pay


class Writable:
    """Compare changes with what a skill lists and what the proposing role may write."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[tuple[str, str, str], bool] = {}

    def objections(self, agent_type: str, skill_id: str, changes: Sequence[Change]) -> list[Change]:
        """Return the changes that are not allowed."""
        found = []
        for change in changes:
            asked = (agent_type, skill_id, change[0])
            allowed = self._known.get(asked)
            if allowed is None:
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                patterns = (self._listed(skill_id), self._writes(agent_type))
                allowed = self._known[asked] = all(covered(change[0], each) for each in patterns)
            if not allowed:
                found.append(change)
        return found

    def reason(self, agent_type: str, skill_id: str, change: Change, may: MayRead = may_read_all) -> Reason:
        """Return why a change is not allowed."""
        key, old, new = change
        what = f"({shown(old)} → {shown(new)})" if may(key) else f"({HIDDEN})"
        if covered(key, self._listed(skill_id)):
            text = f"Agent type {agent_type!r} may not write {key!r} {what}"
            return Reason("write-permission", "roles: writes", key, list(self._writes(agent_type)), text)
        text = f"State change not allowed: {key!r} {what}"
        return Reason("state-change", "allowed_state_changes", key, list(self._listed(skill_id)), text)

    def _listed(self, skill_id: str) -> Sequence[str]:
        return self._charter.skills[skill_id].allowed_state_changes

    def _writes(self, agent_type: str) -> Sequence[str]:
        roles = self._charter.roles
        return EVERYTHING if roles is None else roles.role_of(agent_type).writes
