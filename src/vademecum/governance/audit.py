"""Outcomes → events of a run: one each, with the charter's hash, all reasons and the difference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from vademecum.governance.base import Outcome
from vademecum.governance.changes import Change
from vademecum.governance.charter import Charter
from vademecum.governance.model import MISSING, Reason
from vademecum.masking import Secrets
from vademecum.runs.record import Record

MAX_WAITING = 10_000
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; the whole of it is in the event `charter`

_FLAT = frozenset({int, float, bool, type(None)})


class _Row(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome as it is written; what is empty is left out."""

    charter: str
    step: int
    agent: str
    agent_type: str
    proposed: str
    approved: bool
    executed: str | None
    parameters: Mapping[str, Any] = {}
    state: Mapping[str, Any] = {}
    changes: Mapping[str, Any] = {}
    reasons: list[Any] = []
    rolled_back: bool = False
    shadow: bool = False


class Audit:
    """Writes outcomes into a record, many at a time: at the end of each step, or when enough are waiting.

    >>> from pathlib import Path
    >>> from vademecum.governance import Actor, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.place import new_run
    >>> from vademecum.runs.reading import read_run
    >>> from vademecum.runs.record import Record
    >>> record = Record(new_run(Path("runs")), secrets=Secrets({}))
    >>> audit = Audit(record, secrets=Secrets({}))
    >>> skills = SkillRegistry([SkillDefinition("rest", implementation_mapping="rest")])
    >>> broker = Broker(skills, None, Functions({"rest": lambda agent: None}), audit=audit)
    >>> outcome = broker.propose(Actor("a1", "resident"), "rest")
    >>> audit.flush()
    >>> [event.type for event in read_run(Path("runs"), record.run_id).events]
    ['charter', 'outcome']
    """

    def __init__(self, record: Record, *, secrets: Secrets) -> None:
        self._record = record
        self._secrets = secrets
        self._waiting: list[bytes] = []
        self._digest = ""
        self._masked: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def charter(self, charter: Charter) -> None:
        """Write down which charter holds, and keep its text."""
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        kept = self._record.keep(msgspec.json.format(msgspec.json.encode(charter.to_json())).decode())
        self._record.add("charter", digest=charter.digest, kept=kept, skills=len(charter.skills))

    def outcome(self, outcome: Outcome, state: Mapping[str, Any]) -> None:
        """Write down what came of an intent, with what the charter looked at."""
        names, changes = self._names, outcome.changes
        flat = _FLAT.issuperset(map(type, state.values()))
        row = _Row(
            self._digest,
            outcome.step,
            names.get(outcome.agent_id) or self._name(outcome.agent_id),
            names.get(outcome.agent_type) or self._name(outcome.agent_type),
            names.get(outcome.proposed.skill_id) or self._name(outcome.proposed.skill_id),
            outcome.approved,
            outcome.executed,
            self._clean("parameters", dict(outcome.proposed.parameters))
            if outcome.proposed.parameters
            else {},
            state if flat else self._clean("state", state),
            self._changes(changes) if changes else {},
            [self._reason(reason) for reason in outcome.reasons] if outcome.result.bits else [],
            outcome.rolled_back,
            outcome.shadow,
        )
        self._waiting.append(_encoded(row))
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._waiting:
            self._record.add_encoded("outcome", self._waiting)
            self._waiting = []

    def _changes(self, changes: tuple[Change, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, old, new in changes:
            if type(old) in _FLAT and type(new) in _FLAT:
                found[key] = (old, new)
            else:
                found[key] = self._clean(key, [None if each is MISSING else each for each in (old, new)])
        return found

    def _reason(self, reason: Reason) -> dict[str, Any]:
        """A reason as it is written; one about a number is made of that and of the charter's own words."""
        found = reason.to_json()
        return found if type(reason.observed) in _FLAT else self._clean("reason", found)

    def _name(self, text: str) -> str:
        if len(self._names) >= MAX_REMEMBERED:
            self._names.clear()
        masked = self._names[text] = self._secrets.mask(text)
        return masked

    def _clean(self, key: str, value: Any) -> Any:
        """A value without secrets; the same few texts come again and again, so they are remembered."""
        kind = type(value)
        if kind in _FLAT:
            return value
        if kind is str:
            known = self._masked.get((key, value))
            return self._mask(key, value) if known is None else known
        if kind is list:
            flat = _FLAT.issuperset(map(type, value))
            return value if flat else [self._clean(key, item) for item in value]
        if isinstance(value, Mapping):
            return {name: self._clean(str(name), item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(key, item) for item in value]
        return self._clean(key, value.item()) if hasattr(value, "item") else self._mask(key, str(value))

    def _mask(self, key: str, text: str) -> str:
        masked = str(self._secrets.mask_all({key: text}).popitem()[1])
        if len(self._masked) >= MAX_REMEMBERED:
            self._masked.clear()
        self._masked[key, text] = masked
        return masked


def _encoded(row: _Row) -> bytes:
    try:
        return msgspec.json.encode(row)
    except (UnicodeEncodeError, TypeError):  # half a character, or an object of the simulation's own
        whole = {key: value for key, value in structs.asdict(row).items() if value not in ({}, [])}
        return json.dumps(whole, default=str).encode()
