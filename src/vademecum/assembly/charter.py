"""A charter for the agent loop: what the loop wants to do becomes an intent, and the broker decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, cast

from vademecum.agent.base import Kind
from vademecum.agent.doing import Done
from vademecum.errors import Denied
from vademecum.governance.audit import Audit
from vademecum.governance.broker import Broker
from vademecum.governance.charter import Charter
from vademecum.governance.feedback import feedback
from vademecum.governance.ledger import Ledger
from vademecum.governance.model import Actor, Agent, Intent, ValidationResult
from vademecum.governance.registry import not_found
from vademecum.masking import Secrets
from vademecum.runs.record import Record

T = TypeVar("T")


class _Failed(Exception):
    """An act came to nothing; what was charged for it is given back."""

    def __init__(self, done: Done) -> None:
        super().__init__(done.code)
        self.done = done


class _NoEngine:
    """The loop acts by itself; nothing else does."""

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        raise Denied(f"{mapping!r} is not carried out here.")


class Past:
    """Who acts under the charter, and what it did so far; a run and its children share it."""

    def __init__(self, name: str, agent_type: str, state: dict[str, Any]) -> None:
        self.actor = Actor(name, agent_type, state)
        self.ledger = Ledger()
        self.steps = 0


class Chartered:
    """Asks a charter at each selection, script and tool call. Every act is a step.

    A skill may be selected if the charter has a definition for it that is possible now. A script is what the
    definition with the mapping ``skill:NAME/scripts/FILE`` says, a tool what the one with ``tool:NAME`` says.
    """

    def __init__(self, charter: Charter, past: Past, record: Record, *, secrets: Secrets) -> None:
        self._charter = charter
        self._agent = past.actor
        self._record = record
        self._audit = Audit(record, secrets=secrets)
        self._broker = Broker(
            charter.registry,
            charter.roles,
            _NoEngine(),
            audit=self._audit,
            ledger=past.ledger,
            step=past.steps,
        )
        self._past = past
        self._by_mapping = {skill.implementation_mapping: name for name, skill in charter.skills.items()}

    def act(self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do it if the charter lets this agent; else raise ``Denied`` with every reason."""
        # A child may have acted meanwhile.
        self._broker.step = self._past.steps
        self._past.steps = self._broker.advance()
        if kind == "skill":
            return self._select(name, do)
        skill_id = self._by_mapping.get(f"{'skill' if kind == 'script' else 'tool'}:{name}", name)
        schema = self._charter.skills[skill_id].output_schema if skill_id in self._charter.skills else {}
        said = {key: value for key, value in parameters.items() if key in schema}
        try:
            outcome = self._broker.propose(self._agent, Intent(skill_id, said), act=lambda: _done(do()))
        except _Failed as failed:
            return cast("T", failed.done)  # it is what `do` gave
        finally:
            self._audit.flush()
        if outcome.executed is None:
            raise Denied(outcome.feedback)
        found: T = outcome.output
        return found

    def _select(self, name: str, do: Callable[[], T]) -> T:
        own = [
            skill_id
            for skill_id, skill in self._charter.skills.items()
            if skill_id == name or skill.implementation_mapping.startswith(f"skill:{name}/")
        ]
        possible = set(self._broker.feasible(self._agent))
        allowed = not possible.isdisjoint(own)
        result = not_found(name) if not own else self._check(own[0])
        reasons = [] if allowed else [reason.to_json() for reason in result.reasons]
        self._record.add("charter_asked", skill=name, allowed=allowed, reasons=reasons)
        if not allowed:
            raise Denied(feedback(self._broker, self._agent, Intent(name), result))
        return do()

    def _check(self, skill_id: str) -> ValidationResult:
        broker = self._broker
        return self._charter.check(skill_id, self._agent, step=broker.step, ledger=broker.ledger)


def _done(value: T) -> T:
    if isinstance(value, Done) and value.code:
        raise _Failed(value)
    return value
