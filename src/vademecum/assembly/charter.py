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
from vademecum.governance.lint import SCRIPT, TOOL
from vademecum.governance.model import Actor, Agent, Intent, ValidationResult
from vademecum.governance.registry import not_found
from vademecum.masking import Secrets
from vademecum.runs.record import Record

T = TypeVar("T")

# With these codes a tool says that it did not even begin. After any other something may have happened.
NOT_BEGUN = frozenset(
    {
        "arguments", "declined", "denied", "dependencies", "file-refused", "header", "interpreter",
        "load-refused", "missing", "no-tool", "not-a-directory", "not-a-file", "not-text", "path-refused",
        "pattern", "sandbox-failed", "skill-not-found", "too-large", "tool-refused", "unusable", "url",
    }
)  # fmt: skip
# What names a script is its mapping, and no parameter.
_NAMES = frozenset({"skill", "script"})


class _NotBegun(Exception):
    """An act came to nothing; what was charged for it is given back."""

    def __init__(self, done: Done) -> None:
        super().__init__(done.code)
        self.done = done


class _NoEngine:
    """The loop acts by itself; nothing else does."""

    def call(self, mapping: str, agent: Agent, parameters: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        raise Denied(f"{mapping!r} is not carried out here.")


class Past:
    """Who acts under the charter, and what it did so far; a run and its children share it.

    A run is one whole: what conflicts with something that was done in it stays so to its end.
    """

    def __init__(self, name: str, agent_type: str, state: dict[str, Any]) -> None:
        self.actor = Actor(name, agent_type, state)
        self.ledger = Ledger(since=0)
        self.steps = 0


class Chartered:
    """Asks a charter at each selection, script and tool call.

    A skill may be selected if a definition of it is possible now. A script is what the definitions with the
    mapping ``skill:NAME/scripts/FILE`` say, a tool what those with ``tool:NAME`` say, and one that allows it
    is enough. Every script and every tool call that was carried out is a step.
    """

    def __init__(self, charter: Charter, past: Past, record: Record, *, secrets: Secrets) -> None:
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

    @property
    def _charter(self) -> Charter:
        """The one that holds now."""
        return self._broker.charter

    def act(self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do it if the charter lets this agent; else raise ``Denied`` with every reason."""
        with self._past.ledger.lock:  # children may run beside it
            self._broker.step = self._past.steps
            if kind == "skill":
                return self._select(name, do)
            mapping = f"{'skill' if kind == 'script' else 'tool'}:{name}"
            said = _said(parameters) if kind == "script" else dict(parameters)
            intent = Intent(self._definition(mapping, said) or self._unknown(name, mapping), said)
            try:
                outcome = self._broker.propose(self._agent, intent, act=lambda: _begun(do()))
            except _NotBegun as failed:
                return cast("T", failed.done)  # it is what `do` gave
            finally:
                self._audit.flush()
            if outcome.executed is None:
                raise Denied(outcome.feedback)
            self._past.steps = self._broker.advance()
            found: T = outcome.output
            return found

    def _definition(self, mapping: str, said: Mapping[str, object]) -> str | None:
        """The first definition of a mapping that allows it; else the first that is for this agent at all."""
        skills = self._charter.skills
        known = [name for name, skill in skills.items() if skill.implementation_mapping == mapping]
        open_ = set(self._charter.open_to(self._agent.type))
        # What is for this agent comes first, each in the order of the charter.
        known.sort(key=lambda name: name not in open_)
        return next((name for name in known if self._check(name, said)), known[0] if known else None)

    def _unknown(self, name: str, mapping: str) -> str:
        """A name that no definition has: an id alone lets nobody use what it does not map to."""
        while name in self._charter.skills:
            name = mapping if name != mapping else f"{mapping}?"
            mapping = f"{mapping}?"
        return name

    def _select(self, name: str, do: Callable[[], T]) -> T:
        own = [skill_id for skill_id in self._charter.skills if self._is_of(skill_id, name)]
        possible = set(self._broker.feasible(self._agent))
        allowed = not possible.isdisjoint(own)
        result = not_found(name) if not own else self._check(own[0], {})
        reasons = [] if allowed else [reason.to_json() for reason in result.reasons]
        self._record.add("charter_asked", skill=name, allowed=allowed, reasons=reasons)
        if not allowed:
            raise Denied(feedback(self._broker, self._agent, Intent(name), result))
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
        return self._charter.check(skill_id, self._agent, said, step=broker.step, ledger=broker.ledger)


def _said(arguments: Mapping[str, object]) -> dict[str, object]:
    """What is said to a script: what is empty, or not wanted, is not said."""
    return {key: value for key, value in arguments.items() if key not in _NAMES and value not in ([], False)}


def _begun(value: T) -> T:
    if isinstance(value, Done) and value.code in NOT_BEGUN:
        raise _NotBegun(value)
    return value
