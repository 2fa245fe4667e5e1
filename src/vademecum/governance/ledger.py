"""What was done by whom and when: the memory that cooldowns, limits, conflicts and dependencies go by."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Longer ago than any cooldown.
NEVER = -(2**62)

# How often in which window of steps.
Uses = dict[str, tuple[int, int]]


@dataclass(slots=True)
class History:
    """What one agent did: the step of the last time of each skill, and how often in the present window."""

    last: dict[str, int] = field(default_factory=dict)
    used: Uses = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """The histories of all agents, and the counts of each type and of the whole population.

    Skills that conflict exclude each other within a step, or from the step ``since`` on. Brokers that share a
    ledger decide one proposal at a time, by its ``lock``; ``busy`` while one is carried out. ``revision`` is
    how often something was added.

    >>> ledger = Ledger()
    >>> ledger.add("move", agent_id="h1", agent_type="household", step=3)
    >>> ledger.of("h1").last
    {'move': 3}
    """

    agents: dict[str, History] = field(default_factory=dict)
    types: dict[str, Uses] = field(default_factory=dict)
    population: Uses = field(default_factory=dict)
    since: int | None = None
    revision: int = field(default=0, compare=False)
    busy: bool = field(default=False, compare=False)
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies, which have a lock of their own."""
        return Ledger, (self.agents, self.types, self.population, self.since)

    def of(self, agent_id: str) -> History:
        """The history of one agent, empty at first."""
        found = self.agents.get(agent_id)
        if found is None:
            found = self.agents[agent_id] = History()
        return found

    def add(
        self, skill_id: str, *, agent_id: str, agent_type: str, step: int, window: int | None = None
    ) -> None:
        """Note that something was executed; without a window there is no limit to count for."""
        self.revision += 1
        history = self.agents.get(agent_id) or self.of(agent_id)
        history.last[skill_id] = step
        if window is None:
            return
        for uses in (history.used, self.types.setdefault(agent_type, {}), self.population):
            uses[skill_id] = (window, uses_in(uses, skill_id, window) + 1)

    def conflicts_from(self, step: int) -> int:
        """The first step whose acts count as done together with those of this one."""
        return step if self.since is None else self.since

    def to_json(self) -> dict[str, Any]:
        """The ledger as a record has it; empty where there is nothing to say."""
        agents = {str(name): [each.last, each.used] for name, each in self.agents.items()}
        whole = {"agents": agents, "types": self.types, "population": self.population, "since": self.since}
        return {key: value for key, value in whole.items() if value not in ({}, None)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ledger:
        """What ``to_json`` gave, read again."""
        agents = {
            name: History(dict(last), _uses(used))
            for name, (last, used) in document.get("agents", {}).items()
        }
        types = {name: _uses(used) for name, used in document.get("types", {}).items()}
        return cls(agents, types, _uses(document.get("population", {})), document.get("since"))


def _uses(written: Mapping[str, Any]) -> Uses:
    return {skill_id: (window, count) for skill_id, (window, count) in written.items()}


def uses_in(uses: Uses, skill_id: str, window: int) -> int:
    """How often something was done in a window of steps.

    >>> uses_in({"move": (3, 2)}, "move", 3), uses_in({"move": (3, 2)}, "move", 4)
    (2, 0)
    """
    found = uses.get(skill_id)
    return found[1] if found is not None and found[0] == window else 0


NOTHING_DONE = History()
NOTHING_KNOWN = Ledger()
