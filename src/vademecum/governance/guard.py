"""Guard a session with a charter: each act of an agent becomes an intent for the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vademecum.errors import Denied, ToolRefused
from vademecum.governance.audit import Audit
from vademecum.governance.broker import Broker, Functions
from vademecum.governance.charter import Charter
from vademecum.governance.check import not_found
from vademecum.governance.definitions import (
    ActionOutcome,
    Actor,
    Clause,
    Intent,
    SkillDefinition,
    ValidationResult,
)
from vademecum.governance.reading import SCRIPT, TOOL
from vademecum.governance.state import Ledger
from vademecum.runs.record import Record
from vademecum.session.base import Kind, Result

T = TypeVar("T")

# With these codes a tool has not begun. With any other code it can have had effects.
NOT_BEGUN = frozenset(
    {
        "arguments", "changed", "declined", "denied", "dependencies", "file-refused", "header", "interpreter",
        "load-refused", "missing", "no-tool", "not-a-directory", "not-a-file", "not-text", "path-refused",
        "pattern", "sandbox-failed", "skill-not-found", "too-large", "tool-refused", "unusable", "url",
    }
)  # fmt: skip


class CharterGuard:
    """Ask a charter about each selected skill, script and tool call of one agent, and charge its state.

    A skill may be selected if one of its definitions is feasible. A script is allowed by a definition with
    the mapping ``skill:NAME/scripts/FILE``, a tool by one with ``tool:NAME``. Every script and tool call that
    was carried out is a step. A run and its children share one guard.

    The charter decides and charges before an act, and settles after it. It holds no lock in between, so a
    question to a person, or a long script, does not delay other acts.
    """

    def __init__(
        self, charter: Charter, agent_type: str, state: dict[str, Any] | None = None, *, name: str = "default"
    ) -> None:
        self.agent = Actor(name, agent_type, {} if state is None else state)
        self.ledger = Ledger()
        self.steps = 0
        self._charter = charter
        self._brokers: dict[Record, tuple[Broker, Audit]] = {}

    def act(
        self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T], *, record: Record
    ) -> T:
        """Call ``do`` and return its result, or raise ``Denied`` with every reason."""
        if kind == "skill":
            self._select(name, record)
            return do()
        with self.ledger.lock:
            broker, audit = self._broker(record)
            skill_id = self._definition(f"{'skill' if kind == 'script' else 'tool'}:{name}", parameters)
            while skill_id is None and name in self._charter.registry.checks:
                name += "?"  # the id of a definition does not allow an act that it does not map to
            decision = broker.approve(self.agent, Intent(skill_id or name, dict(parameters)))
            if isinstance(decision, ActionOutcome):
                audit.flush()
                raise Denied(decision.feedback)
        error: BaseException | None = None
        try:
            found = do()  # without the lock
            if isinstance(found, Result) and found.code in NOT_BEGUN:
                error = ToolRefused(found.code)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self.ledger.lock:
                broker.settle(decision, error)
                self.steps += error is None
                audit.flush()
        return found

    def _broker(self, record: Record) -> tuple[Broker, Audit]:
        """Return the broker of a run, at the current step."""
        if record not in self._brokers:
            self._brokers = {each: kept for each, kept in self._brokers.items() if not each.is_closed}
            audit, charter = Audit(record, secrets=record.secrets), self._charter
            broker = Broker(charter.registry, charter.roles, Functions({}), audit=audit, ledger=self.ledger)
            self._brokers[record] = broker, audit
        broker, audit = self._brokers[record]
        broker.step = self.steps
        return broker, audit

    def _definition(self, mapping: str, said: Mapping[str, object]) -> str | None:
        """Return the first definition of a mapping that allows the act, else the first for this agent."""
        skills = self._charter.skills.items()
        known = [name for name, skill in skills if skill.implementation_mapping == mapping]

        def obstacles(name: str) -> int:
            bits = self._check(name, said).bits
            return (bits != 0) + (bits & (Clause.ROLE | Clause.TYPE) != 0)

        return min(known, key=obstacles, default=None)

    def _select(self, name: str, record: Record) -> None:
        """Record whether one of a skill's definitions is feasible; raise ``Denied`` if not."""
        with self.ledger.lock:
            broker, _ = self._broker(record)
            own = [skill_id for skill_id, skill in self._charter.skills.items() if _is_of(skill, name)]
            allowed = not set(broker.feasible(self.agent)).isdisjoint(own)
            result = not_found(name) if not own else self._check(own[0], {})
            reasons = [] if allowed else [reason.to_json() for reason in result.reasons]
            record.add("charter_asked", skill=name, allowed=allowed, reasons=reasons)
            if not allowed:
                raise Denied(broker.feedback(self.agent, name, result))

    def _check(self, skill_id: str, said: Mapping[str, object]) -> ValidationResult:
        return self._charter.check(skill_id, self.agent, said, step=self.steps, ledger=self.ledger)


def _is_of(definition: SkillDefinition, name: str) -> bool:
    """Return whether a definition belongs to a skill: by its script, or by its id if it has no script."""
    script = SCRIPT.fullmatch(definition.implementation_mapping)
    if script is not None:
        return script["skill"] == name
    return definition.skill_id == name and TOOL.fullmatch(definition.implementation_mapping) is None
