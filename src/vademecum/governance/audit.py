"""Write outcomes as events of a run: each with the charter's hash, every reason and every change."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import structs

from vademecum.governance.charter import Charter, digest_of
from vademecum.governance.definitions import MISSING, ActionOutcome, shown
from vademecum.governance.state import MAX_DEPTH
from vademecum.masking import Secrets
from vademecum.runs.record import Record

MAX_WAITING = 1000  # outcomes that are kept before they are written
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; all of it is in the event `charter`
LARGEST = 2**1000  # a larger number has more digits than Python reads

_NUMBERS = frozenset({int, float, bool})


class _Row(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome as it is written, without empty values."""

    charter: str
    step: int
    agent: str
    agent_type: str
    proposed: str
    approved: bool
    executed: str | None
    last: int | None = None
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

    def charter(self, charter: Charter) -> None:
        """Record which charter is in force from here on."""
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        document = as_json(charter.to_json(), self._mask)
        digest = digest_of(document)
        # A charter that contains a secret is recorded without it, and has two hashes.
        more = {} if digest == charter.digest else {"masked": digest}
        skills = len(charter.skills)
        self._record.add("charter", digest=charter.digest, charter=document, skills=skills, **more)

    def outcome(self, outcome: ActionOutcome, state: Mapping[str, Any], last: int | None) -> None:
        """Record an outcome, the values that the charter read, and when the agent last did the skill."""
        said, mask = outcome.proposed.parameters, self._mask
        changes: dict[str, Any] = {}
        for key, *pair in outcome.changes:
            values = [None if value is MISSING else value for value in pair]
            changes[mask("", key)] = values if _are_numbers(values) else as_json(values, mask, key)
        row = _Row(
            self._digest,
            outcome.step,
            mask("", str(outcome.agent_id)),
            mask("", str(outcome.agent_type)),
            mask("", outcome.proposed.skill_id),
            outcome.approved,
            outcome.executed,
            last,
            outcome.charged,
            as_json(said, mask) if said else {},
            # Numbers need no masking.
            state if _are_numbers(state.values()) else as_json(state, mask),
            changes,
            [as_json(reason.to_json(), mask) for reason in outcome.reasons] if outcome.result.bits else [],
            outcome.rolled_back,
            outcome.shadow,
        )
        try:
            data = msgspec.json.encode(row)
        except UnicodeEncodeError:  # half a character
            data = json.dumps(structs.asdict(row), ensure_ascii=False).encode("utf-8", "replace")
        self._waiting.append(data)
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the outcomes that are waiting."""
        if self._waiting:
            self._record.add_encoded("outcome", self._waiting)
            self._waiting = []

    def _mask(self, key: str, text: str) -> str:
        """Return a text without secrets; the same few texts come again and again, so they are remembered."""
        known = self._masked.get((key, text))
        if known is None:
            known = str(self._secrets.mask_all({key: text}).popitem()[1])
            if len(self._masked) >= MAX_REMEMBERED:
                self._masked.clear()
            self._masked[key, text] = known
        return known


def _are_numbers(values: Collection[Any]) -> bool:
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
