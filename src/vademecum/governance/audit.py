"""Write outcomes as events of a run: each with the charter's hash, every reason and every change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import structs

from vademecum.governance.charter import Charter, digest_of
from vademecum.governance.definitions import MISSING, ActionOutcome, Reason, shown
from vademecum.governance.state import MAX_DEPTH, Change
from vademecum.masking import Secrets
from vademecum.runs.record import Record

MAX_WAITING = 1000  # outcomes that are kept before they are written
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; all of it is in the event `charter`
LARGEST = 2**1000  # a larger number has more digits than Python reads

_NUMBERS = frozenset({int, float, bool})
_ESCAPE = re.compile(r"\\.")
_UNCUT = {'\\"': "\\u0022"}


class _Row(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome as it is written, without empty values."""

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
    """Write outcomes into a record, many at a time: at the end of each step, or when enough are waiting.

    >>> from pathlib import Path
    >>> from vademecum.governance import Actor, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.record import new_run
    >>> from vademecum.runs.stored import read_run
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

    def charter(self, charter: Charter, past: Mapping[str, Any] | None = None) -> None:
        """Record which charter is in force, with its text, and the ledger if the record does not tell it."""
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        text = json.dumps(charter.to_json(), ensure_ascii=False, indent=2, default=str)
        more: dict[str, Any] = {} if past is None else {"past": past}
        if self._secrets.mask(text) != text:
            # Masked before it is written, without quotes that a mask could cut off: it stays JSON.
            whole = json.dumps(self._secrets.mask_all(charter.to_json()), ensure_ascii=False, indent=2)
            text = self._secrets.mask(_ESCAPE.sub(lambda found: _UNCUT.get(found[0], found[0]), whole))
            more["masked"] = digest_of(json.loads(text))
        kept = self._record.keep(text)
        self._record.add("charter", digest=charter.digest, kept=kept, skills=len(charter.skills), **more)

    def outcome(self, outcome: ActionOutcome, state: Mapping[str, Any]) -> None:
        """Record an outcome, and the values that the charter read."""
        row = self._row(outcome, state)
        try:
            data = msgspec.json.encode(row)
        except UnicodeEncodeError:  # half a character
            data = json.dumps(structs.asdict(row), ensure_ascii=False).encode("utf-8", "replace")
        self._waiting.append(data)
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def _row(self, outcome: ActionOutcome, state: Mapping[str, Any]) -> _Row:
        """Return an outcome as it is written."""
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
        """Write the outcomes that are waiting."""
        if self._waiting:
            self._record.add_encoded("outcome", self._waiting)
            self._waiting = []

    def _changes(self, changes: tuple[Change, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, old, new in changes:
            kind = type(new)
            # Most changes are of a boolean or a finite number.
            if kind is type(old) and (kind is bool or (kind is float and (old - new) * 0.0 == 0.0)):
                found[key] = (old, new)
            else:
                pair = [None if each is MISSING else each for each in (old, new)]
                found[self._clean("key", key)] = self._clean(key, pair)
        return found

    def _reason(self, reason: Reason) -> dict[str, Any]:
        """Return a reason as it is written; one about a number contains nothing to mask."""
        found = reason.to_json()
        return found if _is_plain((reason.observed,)) else self._clean("reason", found)

    def _name(self, name: Any) -> str:
        if len(self._names) >= MAX_REMEMBERED:
            self._names.clear()
        masked = self._names[name] = self._secrets.mask(str(name))
        return masked

    def _clean(self, key: str, value: Any) -> Any:
        """Return a value as JSON, without secrets."""
        return as_json(value, self._mask, key)

    def _mask(self, key: str, text: str) -> str:
        """Return a text without secrets; the same few texts come again and again, so they are remembered."""
        known = self._masked.get((key, text))
        if known is None:
            known = str(self._secrets.mask_all({key: text}).popitem()[1])
            if len(self._masked) >= MAX_REMEMBERED:
                self._masked.clear()
            self._masked[key, text] = known
        return known


def _is_plain(values: Collection[Any]) -> bool:
    """Return whether values are numbers that JSON can write: a sum is finite only if each number is."""
    try:
        return _NUMBERS.issuperset(map(type, values)) and isfinite(sum(values))
    except OverflowError:
        return False


# Takes the name of a value and its text, and returns the text without secrets.
Mask = Callable[[str, str], str]


def as_json(value: Any, mask: Mask, key: str = "", depth: int = 0) -> Any:
    """Return a value as a record has it, with masked texts.

    A value that JSON does not have is a mapping with one key that begins with ``$``; an unknown object is its
    text.

    >>> as_json({"debt": float("inf"), "cells": [None]}, lambda key, text: text)
    {'debt': {'$float': 'inf'}, 'cells': [None]}
    """
    match value:
        case None | bool():
            return value
        case str():
            return mask(key, str(value))
        case int():
            return int(value) if abs(value) < LARGEST else {"$int": hex(value)}
        case float():
            return float(value) if isfinite(value) else {"$float": str(float(value))}
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        found = {mask("", str(k)): as_json(item, mask, str(k), depth + 1) for k, item in value.items()}
        return {"$dict": found} if len(found) == 1 and next(iter(found)).startswith("$") else found
    if isinstance(value, list | tuple):
        return [as_json(item, mask, key, depth + 1) for item in value]
    return mask(key, shown(value))


def from_json(value: Any) -> Any:
    """Return the value that ``as_json`` wrote.

    >>> from_json({"debt": {"$float": "inf"}})
    {'debt': inf}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$float": str(text)} if len(value) == 1:
            return float(text)
        case {"$int": str(text)} if len(value) == 1:
            return int(text, 16)
        case {"$dict": dict(inner)} if len(value) == 1:
            return {key: from_json(item) for key, item in inner.items()}
    return {key: from_json(item) for key, item in value.items()}
