"""Remember which agent last did which skill at which step, and compute what an intent costs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from vademecum.governance.check import SkillCheck
from vademecum.governance.state import Change, State, equal

NOTHING_DONE: Mapping[str, int] = {}


@dataclass(slots=True)
class Ledger:
    """Hold, for each agent, the step at which it last did each skill: what cooldowns depend on.

    Brokers that share a ledger decide one proposal at a time, under its ``lock``. ``busy`` is true while an
    engine acts.

    >>> ledger = Ledger()
    >>> ledger.add("move", agent_id="h1", step=3)
    >>> ledger.agents
    {'h1': {'move': 3}}
    """

    agents: dict[str, dict[str, int]] = field(default_factory=dict)
    busy: bool = field(default=False, compare=False)
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def add(self, skill_id: str, *, agent_id: str, step: int) -> None:
        """Note that an agent did a skill."""
        self.agents.setdefault(agent_id, {})[skill_id] = step

    def take_back(self, skill_id: str, *, agent_id: str, step: int, before: int | None) -> None:
        """Undo ``add``, unless the agent has done the skill again; ``before`` is its former last step."""
        last = self.agents[agent_id]
        if last.get(skill_id) != step:
            return
        if before is not None:
            last[skill_id] = before
            return
        del last[skill_id]
        if not last:
            del self.agents[agent_id]


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


def charge_of(check: SkillCheck, state: State, world: State, params: Mapping[str, Any]) -> Charge | None:
    """Return the charge of a skill that the agent can pay, or ``None`` if it is free."""
    if check.rules.cost is None:
        return None
    *shared, key = check.rules.purse.parts
    purse, cost = (world if shared else state), check.cost(state, world, params)
    before = purse[key]
    return Charge(purse, key, str(check.rules.purse), before, before - cost, cost) if cost else None
