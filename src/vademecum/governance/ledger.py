"""What was done by whom and when: the memory that cooldowns, limits, conflicts and dependencies go by."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    >>> ledger = Ledger()
    >>> ledger.add("move", agent_id="h1", agent_type="household", step=3)
    >>> ledger.of("h1").last
    {'move': 3}
    """

    agents: dict[str, History] = field(default_factory=dict)
    types: dict[str, Uses] = field(default_factory=dict)
    population: Uses = field(default_factory=dict)

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
        history = self.of(agent_id)
        history.last[skill_id] = step
        if window is None:
            return
        for uses in (history.used, self.types.setdefault(agent_type, {}), self.population):
            uses[skill_id] = (window, uses_in(uses, skill_id, window) + 1)


def uses_in(uses: Uses, skill_id: str, window: int) -> int:
    """How often something was done in a window of steps.

    >>> uses_in({"move": (3, 2)}, "move", 3), uses_in({"move": (3, 2)}, "move", 4)
    (2, 0)
    """
    found = uses.get(skill_id)
    return found[1] if found is not None and found[0] == window else 0


NOTHING_DONE = History()
NOTHING_KNOWN = Ledger()
