"""A denial in words for whoever proposed: every reason, and what would be possible instead."""

from __future__ import annotations

from typing import Protocol

from vademecum.governance.model import Agent, Intent, May, ValidationResult

MAX_ALTERNATIVES = 20


class Knows(Protocol):
    """Knows what an agent could do now, and what it may read."""

    def feasible(self, agent: Agent) -> list[str]:
        """The skills that are possible."""
        ...

    def may_read(self, agent: Agent) -> May:
        """Which keys of the state the agent may read."""
        ...


def feedback(knows: Knows, agent: Agent, intent: Intent, result: ValidationResult) -> str:
    """The text that a model gets on a denial; it holds no value that its role may not read."""
    lines = [f"'{intent.skill_id}' was not done:"]
    lines += [f"- {reason.message}" for reason in result.reasons_for(knows.may_read(agent))]
    possible = [name for name in knows.feasible(agent) if name != intent.skill_id]
    shown = ", ".join(possible[:MAX_ALTERNATIVES])
    more = f" and {len(possible) - MAX_ALTERNATIVES} more" if len(possible) > MAX_ALTERNATIVES else ""
    lines.append(f"Possible now: {shown}{more}." if possible else "Nothing else is possible now.")
    return "\n".join(lines)
