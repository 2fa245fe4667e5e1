"""Outcomes → events of a run: one each, with the charter's hash, all reasons and the difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vademecum.governance.base import Outcome, changes_json
from vademecum.governance.charter import Charter
from vademecum.masking import Secrets
from vademecum.runs.record import Record

MAX_WAITING = 10_000
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; the whole of it is in the event `charter`

_FLAT = frozenset({int, float, bool, type(None)})


class Audit:
    """Writes outcomes into a record, many at a time: at the end of each step, or when enough are waiting."""

    def __init__(self, record: Record, *, secrets: Secrets) -> None:
        self._record = record
        self._secrets = secrets
        self._waiting: list[dict[str, Any]] = []
        self._digest = ""
        self._masked: dict[tuple[str, str], str] = {}

    def charter(self, charter: Charter) -> None:
        """Write down which charter holds, and keep its text."""
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        kept = self._record.keep(msgspec.json.format(msgspec.json.encode(charter.to_json())).decode())
        self._record.add("charter", digest=charter.digest, kept=kept, skills=len(charter.skills))

    def outcome(self, outcome: Outcome, state: Mapping[str, Any]) -> None:
        """Write down what came of an intent, with what the charter looked at."""
        row: dict[str, Any] = {
            "charter": self._digest,
            "step": outcome.step,
            "agent": self._clean("agent", outcome.agent_id),
            "agent_type": self._clean("agent_type", outcome.agent_type),
            "proposed": self._clean("proposed", outcome.proposed.skill_id),
            "approved": outcome.approved,
            "executed": outcome.executed,
        }
        if outcome.proposed.parameters:
            row["parameters"] = self._clean("parameters", dict(outcome.proposed.parameters))
        if state:
            row["state"] = self._clean("state", state)
        if outcome.changes:
            row["changes"] = self._clean("changes", changes_json(outcome.changes))
        if outcome.result.bits:
            row["reasons"] = [self._clean("reason", reason.to_json()) for reason in outcome.reasons]
        if outcome.rolled_back:
            row["rolled_back"] = True
        if outcome.shadow:
            row["shadow"] = True
        self._waiting.append(row)
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._waiting:
            self._record.add_masked("outcome", self._waiting)
            self._waiting = []

    def _clean(self, key: str, value: Any) -> Any:
        """A value without secrets; the same few texts come again and again, so they are remembered."""
        kind = type(value)
        if kind in _FLAT:
            return value
        if kind is str:
            known = self._masked.get((key, value))
            return self._mask(key, value) if known is None else known
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
