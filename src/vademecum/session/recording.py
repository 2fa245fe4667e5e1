"""The runs of one session: which one goes on, how long its record stays open, and how it ends."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vademecum.errors import VademecumError
from vademecum.policy.base import Decision
from vademecum.policy.bounds import risk_of
from vademecum.policy.gate import Decided
from vademecum.runs.record import Record
from vademecum.skill.skill import Skill
from vademecum.tools.calls import Observation
from vademecum.tools.script import Snapshots

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")
CLOSED: Mapping[str, Any] = {"status": "done", "stop_reason": "closed", "answer": "", "stats": {}}


class Run:
    """One run of a conversation: its record, the numbers of its calls, and the copies of skills it made."""

    def __init__(self, record: Record, *, asked_for: bool) -> None:
        self.record = record
        self.asked_for = asked_for  # by `begin`; any other run begins with the first thing to write down
        self.numbers = itertools.count(1)
        self.snapshots = Snapshots(record.place / "skills")
        self.started = time.time()
        self.calls = 0
        self.summary = CLOSED


class Recording:
    """Begins and ends runs. A record stays open until its last call is done, even if the run ends earlier."""

    def __init__(self, start: Callable[[], Record]) -> None:
        self._start = start
        self._lock = threading.RLock()
        self._now: Run | None = None
        self._open: dict[Run, None] = {}
        self.places: tuple[Path, ...] = ()

    @property
    def now(self) -> Run | None:
        """The run that goes on."""
        return self._now

    def begin(self, start: Callable[[], Record]) -> Run:
        """Begin a run that the caller asked for; a session has one at a time."""
        with self._lock:
            if self._now is not None and self._now.asked_for:
                text = "A run goes on in this session: wait for its end, or begin another session."
                raise VademecumError(text, code="busy")
            self.end(CLOSED)
            return self._begun(start, asked_for=True)

    @contextmanager
    def held(self) -> Iterator[Run]:
        """The run that goes on, begun now if there is none; its record stays open until this is over."""
        with self._lock:
            run = self._now or self._begun(self._start, asked_for=False)
            run.calls += 1
        try:
            yield run
        finally:
            with self._lock:
                run.calls -= 1
                if run is not self._now and not run.calls:
                    self._finish(run)

    def end(self, summary: Mapping[str, Any]) -> None:
        """End the run, at once or when its last call is over."""
        with self._lock:
            run, self._now = self._now, None
            if run is not None:
                run.summary = summary
                if not run.calls:
                    self._finish(run)

    def abandon(self) -> None:
        """End all runs at once, with whatever still goes on: the process is about to end."""
        with self._lock:
            self._now = None
            for run in list(self._open):
                if run.calls:
                    run.summary = {**run.summary, "status": "interrupted"}
                self._finish(run)

    def _begun(self, start: Callable[[], Record], *, asked_for: bool) -> Run:
        run = self._now = Run(start(), asked_for=asked_for)
        self._open[run] = None
        self.places = (*self.places, run.record.place)
        return run

    def _finish(self, run: Run) -> None:
        self._open.pop(run, None)
        if not run.record.is_closed:
            run.record.add("run_finished", **{key: run.summary[key] for key in CLOSED})
            run.record.finish({"run_id": run.record.run_id, **run.summary}, str(run.summary["answer"]))


@dataclass(frozen=True, slots=True)
class Entry:
    """Who called, when, and what the rules said."""

    number: int
    agent: str
    skill: Skill | None
    started: float
    seconds: float = 0.0
    decision: Decision | None = None
    asked: Sequence[Decided] = ()
    approved_by: str | None = None


def record_of(entry: Entry, parameters: Mapping[str, Any], seen: Observation) -> dict[str, Any]:
    """Return the fields of the event for one call."""
    facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
    asked = [
        {
            "permission": request.permission,
            "resources": list(request.resources),
            "effect": decision.effect.name.lower(),
        }
        for request, decision in entry.asked
    ]
    return {
        "call": entry.number,
        "tool": seen.tool,
        "risk": risk_of(seen.tool).name.lower(),
        "agent": entry.agent,
        "skill": None if entry.skill is None else entry.skill.name,
        "skill_id": None if entry.skill is None else entry.skill.skill_id,
        "parameters": dict(parameters),
        "started": entry.started,
        "seconds": entry.seconds,
        "decision": None if entry.decision is None else entry.decision.to_json(),
        "asked": asked,
        "approved_by": entry.approved_by,
        "ok": seen.ok,
        "code": seen.code,
        "result": {**facts, "text": seen.text, "files": list(seen.files)},
        "hashes": {key: seen.facts[key] for key in _HASHES if key in seen.facts},
    }
