"""A charter as the guard of a session: what an agent wants to do becomes an intent for the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, cast

from vademecum.errors import Denied
from vademecum.governance.audit import Audit
from vademecum.governance.broker import Broker
from vademecum.governance.charter import Charter
from vademecum.governance.feedback import feedback
from vademecum.governance.ledger import Ledger
from vademecum.governance.lint import SCRIPT, TOOL
from vademecum.governance.model import Actor, Agent, Intent, ValidationResult
from vademecum.governance.registry import not_found
from vademecum.runs.record import Record
from vademecum.session.base import Kind, Result

T = TypeVar("T")

# With these codes a tool says that it did not even begin. After any other something may have happened.
NOT_BEGUN = frozenset(
    {
        "arguments", "changed", "declined", "denied", "dependencies", "file-refused", "header", "interpreter",
        "load-refused", "missing", "no-tool", "not-a-directory", "not-a-file", "not-text", "path-refused",
        "pattern", "sandbox-failed", "skill-not-found", "too-large", "tool-refused", "unusable", "url",
    }
)  # fmt: skip


class _NotBegun(Exception):
    """An act came to nothing; what was charged for it is given back."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.code)
        self.result = result


class _NoEngine:
    """The loop acts by itself; nothing else does."""

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        raise Denied(f"{mapping!r} is not carried out here.")


class CharterGuard:
    """Asks a charter about each selection, script and tool call of one agent, and charges its state.

    A skill may be selected if a definition of it is possible now. A script is what the definitions with the
    mapping ``skill:NAME/scripts/FILE`` say, a tool what those with ``tool:NAME`` say, and one that allows it
    is enough. Every script and every tool call that was carried out is a step. A run and its children share
    one guard: what conflicts with something that was done stays so.
    """

    def __init__(
        self, charter: Charter, agent_type: str, state: dict[str, Any] | None = None, *, name: str = "default"
    ) -> None:
        self.agent = Actor(name, agent_type, {} if state is None else state)
        self._given = charter
        self.ledger = Ledger(since=0)
        self.steps = 0
        self._brokers: dict[Record, tuple[Broker, Audit]] = {}
        self._broker: Broker  # of the run that acts now

    def act(
        self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T], *, record: Record
    ) -> T:
        """Do it if the charter lets this agent; else raise ``Denied`` with every reason."""
        with self.ledger.lock:  # children may run beside it
            if record not in self._brokers:
                self._brokers = {each: kept for each, kept in self._brokers.items() if not each.is_closed}
                self._brokers[record] = self._broker_for(record)
            self._broker, audit = self._brokers[record]
            self._broker.step = self.steps
            if kind == "skill":
                return self._select(name, do, record)
            try:
                return self._carry_out(kind, name, dict(parameters), do)
            except _NotBegun as failed:
                return cast("T", failed.result)  # it is what `do` gave
            finally:
                audit.flush()

    def _broker_for(self, record: Record) -> tuple[Broker, Audit]:
        audit, charter = Audit(record, secrets=record.secrets), self._given
        return Broker(charter.registry, charter.roles, _NoEngine(), audit=audit, ledger=self.ledger), audit

    @property
    def _charter(self) -> Charter:
        return self._broker.charter

    def _carry_out(self, kind: Kind, name: str, said: dict[str, object], do: Callable[[], T]) -> T:
        """Propose a script or a tool call, and let it happen if it was approved."""
        mapping = f"{'skill' if kind == 'script' else 'tool'}:{name}"
        intent = Intent(self._definition(mapping, said) or self._unknown(name, mapping), said)
        outcome = self._broker.propose(self.agent, intent, act=lambda: _begun(do()))
        if outcome.executed is None:
            raise Denied(outcome.feedback)
        self.steps = self._broker.advance()
        found: T = outcome.output
        return found

    def _definition(self, mapping: str, said: Mapping[str, object]) -> str | None:
        """The first definition of a mapping that allows it; else the first that is for this agent at all."""
        skills = self._charter.skills
        known = [name for name, skill in skills.items() if skill.implementation_mapping == mapping]
        open_ = set(self._charter.open_to(self.agent.type))
        # What is for this agent comes first, each in the order of the charter.
        known.sort(key=lambda name: name not in open_)
        return next((name for name in known if self._check(name, said)), known[0] if known else None)

    def _unknown(self, name: str, mapping: str) -> str:
        """A name that no definition has: an id alone lets nobody use what it does not map to."""
        while name in self._charter.skills:
            name = mapping if name != mapping else f"{mapping}?"
            mapping = f"{mapping}?"
        return name

    def _select(self, name: str, do: Callable[[], T], record: Record) -> T:
        """Let a skill be selected if one of its definitions is possible now."""
        own = [skill_id for skill_id in self._charter.skills if self._is_of(skill_id, name)]
        possible = set(self._broker.feasible(self.agent))
        allowed = not possible.isdisjoint(own)
        result = not_found(name) if not own else self._check(own[0], {})
        reasons = [] if allowed else [reason.to_json() for reason in result.reasons]
        record.add("charter_asked", skill=name, allowed=allowed, reasons=reasons)
        if not allowed:
            raise Denied(feedback(self._broker, self.agent, Intent(name), result))
        return do()

    def _is_of(self, skill_id: str, name: str) -> bool:
        """Whether a definition is one of a skill: by its script, or by its id where it maps to no other."""
        mapping = self._charter.skills[skill_id].implementation_mapping
        script = SCRIPT.fullmatch(mapping)
        if script is not None:
            return script["skill"] == name
        return skill_id == name and TOOL.fullmatch(mapping) is None

    def _check(self, skill_id: str, said: Mapping[str, object]) -> ValidationResult:
        broker = self._broker
        return self._charter.check(skill_id, self.agent, said, step=broker.step, ledger=broker.ledger)


def _begun(value: T) -> T:
    if isinstance(value, Result) and value.code in NOT_BEGUN:
        raise _NotBegun(value)
    return value
