"""Charge costs, and remember which agent last did which skill at which step: what cooldowns depend on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from vademecum.governance.check import SkillCheck
from vademecum.governance.conditions import FAILURES
from vademecum.governance.definitions import HIDDEN, MayRead, Reason, shown
from vademecum.governance.state import Change, State, equal

# Makes reasons for a reader.
Words = Callable[[MayRead], tuple[Reason, ...]]


@dataclass(slots=True)
class Ledger:
    """Hold, for each agent, the step at which it last did each skill.

    Brokers that share a ledger decide one proposal at a time, under its ``lock``. ``busy`` is true while an
    engine acts; ``revision`` counts the changes.

    >>> ledger = Ledger()
    >>> ledger.add("move", agent_id="h1", step=3)
    >>> ledger.agents
    {'h1': {'move': 3}}
    """

    agents: dict[str, dict[str, int]] = field(default_factory=dict)
    revision: int = field(default=0, compare=False)
    busy: bool = field(default=False, compare=False)
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Give a copy a lock of its own."""
        return Ledger, (self.agents,)

    def add(self, skill_id: str, *, agent_id: str, step: int) -> None:
        """Note that an agent did a skill."""
        self.revision += 1
        self.agents.setdefault(agent_id, {})[skill_id] = step

    def take_back(self, skill_id: str, *, agent_id: str, step: int, before: int | None) -> None:
        """Undo ``add``, unless the agent has done the skill again; ``before`` is its former last step."""
        last = self.agents[agent_id]
        if last.get(skill_id) != step:
            return
        self.revision += 1
        if before is not None:
            last[skill_id] = before
            return
        del last[skill_id]
        if not last:
            del self.agents[agent_id]

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as a record has it, empty if nothing was done."""
        agents = {str(name): dict(last) for name, last in self.agents.items()}
        return {"agents": agents} if agents else {}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ledger:
        """Return the ledger that ``to_json`` wrote; earlier versions wrote a list with more counts."""
        agents = document.get("agents", {})
        return cls({name: dict(last[0] if isinstance(last, list) else last) for name, last in agents.items()})


NOTHING_DONE: Mapping[str, int] = {}


class Charge(Struct, frozen=True, gc=False):
    """A cost: the dictionary and key that it is taken from, and the value before and after."""

    purse: State
    key: str
    path: str
    before: Any
    left: Any
    cost: Any

    def split(self, changes: Sequence[Change]) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """Return the changes with that of the purse first, and those that the charge did not make.

        A purse that is full again was filled.
        """
        after = next((new for key, _, new in changes if key == self.path), self.before)
        others = tuple(change for change in changes if change[0] != self.path)
        by_engine = others if equal(after, self.left) else ((self.path, self.left, after), *others)
        return ((self.path, self.before, after), *others), by_engine


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
