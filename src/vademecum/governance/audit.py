"""Outcomes → events of a run: one each, with the charter's hash, all reasons and the difference."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import structs

from vademecum.governance.base import Outcome
from vademecum.governance.changes import Change
from vademecum.governance.charter import Charter, digest_of
from vademecum.governance.ledger import Ledger
from vademecum.governance.model import MISSING, Reason
from vademecum.governance.recorded import as_json
from vademecum.masking import Secrets
from vademecum.runs.record import Record

MAX_WAITING = 1000  # what stays in the cache until it is written
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; the whole of it is in the event `charter`

_NUMBERS = frozenset({int, float, bool})


_ESCAPE = re.compile(r"\\.")
_UNCUT = {'\\"': "\\u0022"}


class _Row(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome as it is written; what is empty is left out."""

    charter: str
    step: int
    agent: str
    agent_type: str
    proposed: str
    approved: bool
    executed: str | None
    charged: str | None = None
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
    >>> from vademecum.runs.record import new_run
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

    def charter(self, charter: Charter, past: Ledger | None = None) -> None:
        """Write down which charter holds, and keep its text; and what was done that is not on record."""
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        text = json.dumps(charter.to_json(), ensure_ascii=False, indent=2, default=str)
        more: dict[str, Any] = {} if past is None or not past.to_json() else {"past": past.to_json()}
        if self._secrets.mask(text) != text:
            # Masked before it is written, and with no quote that a mask could cut off: it stays JSON.
            whole = json.dumps(self._secrets.mask_all(charter.to_json()), ensure_ascii=False, indent=2)
            text = self._secrets.mask(_ESCAPE.sub(lambda found: _UNCUT.get(found[0], found[0]), whole))
            more["masked"] = digest_of(json.loads(text))
        kept = self._record.keep(text)
        self._record.add("charter", digest=charter.digest, kept=kept, skills=len(charter.skills), **more)

    def outcome(self, outcome: Outcome, state: Mapping[str, Any]) -> None:
        """Write down what came of an intent, with what the charter looked at."""
        row = self._row(outcome, state)
        try:
            data = msgspec.json.encode(row)
        except UnicodeEncodeError:  # half a character
            data = json.dumps(structs.asdict(row), ensure_ascii=False).encode("utf-8", "replace")
        self._waiting.append(data)
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def _row(self, outcome: Outcome, state: Mapping[str, Any]) -> _Row:
        """An outcome as it is written."""
        names, said, changes = self._names, outcome.proposed.parameters, outcome.changes
        return _Row(
            self._digest,
            outcome.step,
            names.get(outcome.agent_id) or self._name(outcome.agent_id),
            names.get(outcome.agent_type) or self._name(outcome.agent_type),
            names.get(outcome.proposed.skill_id) or self._name(outcome.proposed.skill_id),
            outcome.approved,
            outcome.executed,
            outcome.charged,
            self._clean("parameters", said) if said else {},
            state if not state or _is_plain(state.values()) else self._clean("state", state),
            self._changes(changes) if changes else {},
            [self._reason(reason) for reason in outcome.reasons] if outcome.result.bits else [],
            outcome.rolled_back,
            outcome.shadow,
        )

    def flush(self) -> None:
        """Write what is waiting."""
        if self._waiting:
            self._record.add_encoded("outcome", self._waiting)
            self._waiting = []

    def _changes(self, changes: tuple[Change, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, old, new in changes:
            kind = type(new)
            # What most changes are: a flag, or a number that has an end.
            if kind is type(old) and (kind is bool or (kind is float and (old - new) * 0.0 == 0.0)):
                found[key] = (old, new)
            else:
                pair = [None if each is MISSING else each for each in (old, new)]
                found[self._clean("key", key)] = self._clean(key, pair)
        return found

    def _reason(self, reason: Reason) -> dict[str, Any]:
        """A reason as it is written; one about a number is made of that and of the charter's own words."""
        found = reason.to_json()
        return found if _is_plain((reason.observed,)) else self._clean("reason", found)

    def _name(self, name: Any) -> str:
        if len(self._names) >= MAX_REMEMBERED:
            self._names.clear()
        masked = self._names[name] = self._secrets.mask(str(name))
        return masked

    def _clean(self, key: str, value: Any) -> Any:
        """A value as JSON has it, without secrets."""
        return as_json(value, self._mask, key)

    def _mask(self, key: str, text: str) -> str:
        """The same few texts come again and again, so they are remembered."""
        known = self._masked.get((key, text))
        if known is None:
            known = str(self._secrets.mask_all({key: text}).popitem()[1])
            if len(self._masked) >= MAX_REMEMBERED:
                self._masked.clear()
            self._masked[key, text] = known
        return known


def _is_plain(values: Collection[Any]) -> bool:
    """Whether values are numbers that JSON can write: their sum has an end only if each of them has."""
    try:
        return _NUMBERS.issuperset(map(type, values)) and isfinite(sum(values))
    except OverflowError:
        return False
