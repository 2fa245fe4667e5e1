"""Define what a broker works with: the engine, the auditor, its policy and the outcome of an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from vademecum.governance.charter import Charter
from vademecum.governance.definitions import (
    MISSING,
    GovernedAgent,
    Intent,
    Reason,
    ValidationResult,
)
from vademecum.governance.state import Change


class Engine(Protocol):
    """Carry out what was approved: change the agent's state and the shared state, and nothing else.

    Only these two are compared; the states of other agents are not. An engine does not propose while it acts.
    An engine that takes parameters also has ``execute(func_name, agent, parameters)``, as ``Functions`` has.

    >>> class Diary:
    ...     def call(self, func_name, agent):
    ...         agent.state["did"] = func_name
    >>> from vademecum.governance import Actor, Broker, SkillDefinition, SkillRegistry
    >>> rest = SkillDefinition("rest", allowed_state_changes=["did"], implementation_mapping="sleep")
    >>> agent = Actor("a1", "resident")
    >>> Broker(SkillRegistry([rest]), None, Diary()).propose(agent, "rest").executed, agent.state
    ('rest', {'did': 'sleep'})
    """

    def call(self, func_name: str, agent: GovernedAgent, /) -> Any:
        """Do what ``implementation_mapping`` names; an exception is a failure, and is undone."""
        ...


class ParameterEngine(Engine, Protocol):
    """Carry out what was approved, with the intent's parameters."""

    def execute(self, func_name: str, agent: GovernedAgent, parameters: Mapping[str, Any], /) -> Any:
        """Do what ``implementation_mapping`` names, with parameters."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """Say how a broker handles denials.

    ``retries`` is how often ``negotiate`` asks again for an intent that can be corrected. With ``fallback``
    the charter's default skill runs if nothing else did. With ``feedback`` each denial has a text for a
    model. With ``shadow`` the broker decides and records, and enforces nothing.

    >>> BrokerPolicy(shadow=True)
    BrokerPolicy(retries=1, fallback=True, feedback=True, shadow=True)
    """

    retries: int = 1
    fallback: bool = True
    feedback: bool = True
    shadow: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative number of retries."""
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}: write 0 to ask only once.")


class ActionOutcome(Struct, frozen=True):
    """The result of an intent: the proposal, whether it was approved, and the action that was executed.

    ``charged`` is the state key that the charter took the cost from.

    >>> from vademecum.governance import Actor, Broker, Functions, SkillRegistry
    >>> outcome = Broker(SkillRegistry(), None, Functions({})).propose(Actor("a1", "resident"), "fly")
    >>> outcome.proposed.skill_id, outcome.approved, outcome.executed, outcome.reasons[0].message
    ('fly', False, None, "Skill 'fly' not found in registry")
    """

    step: int
    agent_id: str
    agent_type: str
    proposed: Intent
    approved: bool
    executed: str | None
    result: ValidationResult
    changes: tuple[Change, ...] = ()
    output: Any = None
    feedback: str = ""
    correctable: bool = False
    rolled_back: bool = False
    shadow: bool = False
    charged: str | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return every reason against it, found before or after it was executed."""
        return self.result.reasons

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the commands print it."""
        changes = {
            key: [None if each is MISSING else each for each in (old, new)] for key, old, new in self.changes
        }
        return {
            "step": self.step,
            "agent": self.agent_id,
            "agent_type": self.agent_type,
            "proposed": {"skill_id": self.proposed.skill_id, "parameters": dict(self.proposed.parameters)},
            "approved": self.approved,
            "executed": self.executed,
            "rolled_back": self.rolled_back,
            "reasons": [reason.to_json() for reason in self.reasons],
            "changes": changes,
            "feedback": self.feedback,
        }


class Auditor(Protocol):
    """Is told which charter is in force and every outcome, in order."""

    def charter(self, charter: Charter, past: Mapping[str, Any] | None = None) -> None:
        """Take a charter that is in force from now on; ``past`` is the ledger if it is not on record."""
        ...

    def outcome(self, outcome: ActionOutcome, state: Mapping[str, Any]) -> None:
        """Take an outcome, and the values that the charter read before it decided."""
        ...

    def flush(self) -> None:
        """Write everything taken so far."""
        ...
