"""What the broker works with: an engine that acts, an auditor that writes down, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from vademecum.governance.changes import Change
from vademecum.governance.charter import Charter
from vademecum.governance.ledger import Ledger
from vademecum.governance.model import MISSING, Agent, Intent, Reason, ValidationResult


class Engine(Protocol):
    """Carries out what was approved. It changes the agent's state and the shared one, and nothing else.

    Only these two are watched: what it does to other agents, or to objects that lead back to a whole
    simulation, the charter does not see. It does not propose by itself while it acts.
    ``Functions`` and ``Scripts`` are two; anything with this method is one.

    >>> class Diary:
    ...     def call(self, mapping, agent, parameters):
    ...         agent.state["did"] = mapping
    >>> from vademecum.governance import Actor, Broker, SkillDefinition, SkillRegistry
    >>> rest = SkillDefinition("rest", allowed_state_changes=["did"], implementation_mapping="sleep")
    >>> agent = Actor("a1", "resident")
    >>> Broker(SkillRegistry([rest]), None, Diary()).propose(agent, "rest").executed, agent.state
    ('rest', {'did': 'sleep'})
    """

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> Any:
        """Do what ``implementation_mapping`` names; what is raised is a failure, and is rolled back."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """How a broker deals with denials.

    ``retries`` is how often whoever proposes is asked again about what it can correct. ``fallback`` runs the
    charter's default skill where nothing else came about. ``feedback`` writes a text for the model on each
    denial. ``shadow`` decides and records, and enforces nothing.

    >>> BrokerPolicy(shadow=True)
    BrokerPolicy(retries=1, fallback=True, feedback=True, shadow=True)
    """

    retries: int = 1
    fallback: bool = True
    feedback: bool = True
    shadow: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}: write 0 to ask only once.")


class Outcome(Struct, frozen=True):
    """What came of an intent. What was proposed, whether it was approved and what was executed stay apart.

    ``charged`` is the purse that the charter itself took the cost from: that change is the charter's own.

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
        """Everything that spoke against it, before or after it was executed."""
        return self.result.reasons

    def to_json(self) -> dict[str, Any]:
        """The outcome as the commands print it."""
        return {
            "step": self.step,
            "agent": self.agent_id,
            "agent_type": self.agent_type,
            "proposed": {"skill_id": self.proposed.skill_id, "parameters": dict(self.proposed.parameters)},
            "approved": self.approved,
            "executed": self.executed,
            "rolled_back": self.rolled_back,
            "reasons": [reason.to_json() for reason in self.reasons],
            "changes": changes_json(self.changes),
            "feedback": self.feedback,
        }


def changes_json(changes: tuple[Change, ...]) -> dict[str, list[Any]]:
    """A difference as JSON: before and after; nothing is ``null``."""
    return {key: [None if value is MISSING else value for value in (old, new)] for key, old, new in changes}


class Auditor(Protocol):
    """Is told of the charter that holds and of every outcome, in their order."""

    def charter(self, charter: Charter, past: Ledger | None = None) -> None:
        """A charter holds from here on; ``past`` is what was done that nobody told of before."""
        ...

    def outcome(self, outcome: Outcome, state: Mapping[str, Any]) -> None:
        """Something came of an intent; ``state`` is what the charter looked at before it decided."""
        ...

    def flush(self) -> None:
        """Make sure that everything told so far is written down."""
        ...
