"""What other programs' agents did with skills, on record: one run for each, begun when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vademecum.context import Context
from vademecum.loader.reading import LoadReport
from vademecum.masking import Secrets
from vademecum.policy.base import Origin
from vademecum.registry.index import SkillIndex
from vademecum.runs.place import new_run, runs_directory
from vademecum.runs.record import Event, Record
from vademecum.skill.skill import Skill


class Journal:
    """A record that begins with the first thing to write down, and takes entries from any thread.

    One that is closed and used again begins another record.
    """

    def __init__(self, index: SkillIndex, *, context: Context, agent: str, door: str) -> None:
        self._index = index
        self._context = context
        self._agent = agent
        self._door = door
        self._lock = threading.RLock()
        self._record: _Shared | None = None
        self._held: dict[Record, int] = {}

    def adopt(self, index: SkillIndex) -> None:
        """The skills are others now; what was written so far stays true."""
        with self._lock:
            self._index = index
            if self._record is not None:
                self._record.add("index_changed", index_hash=index.hash, skills=len(index))

    def loaded(self, skill: Skill, report: LoadReport, *, origin: Origin) -> None:
        """A skill's instructions were handed out."""
        about = report.to_json()
        with self._lock:
            self._begun().add(
                "skill_loaded", skill=skill.skill_id, origin=origin, effect="allow", report=about
            )

    def resource(self, skill: Skill, path: str, report: LoadReport) -> None:
        """A file of a skill was handed out."""
        with self._lock:
            self._begun().add("resource_loaded", skill=skill.skill_id, path=path, report=report.to_json())

    @contextmanager
    def held(self) -> Iterator[Record]:
        """The record, which stays open as long as it is held, whoever closes the journal meanwhile."""
        with self._lock:
            record = self._begun()
            self._held[record] = self._held.get(record, 0) + 1
        try:
            yield record
        finally:
            with self._lock:
                if record in self._held:
                    self._held[record] -= 1
                    if not self._held[record]:
                        del self._held[record]
                        if record is not self._record:
                            _finish(record, "done")

    def close(self) -> None:
        """Write down that it is over, if anything was written at all; what goes on is waited for."""
        with self._lock:
            record, self._record = self._record, None
            if record is not None and record not in self._held:
                _finish(record, "done")

    def abandon(self) -> None:
        """Write down that it is over now, with whatever still goes on: the process is about to end."""
        with self._lock:
            going_on, self._held = list(self._held), {}
            for record in dict.fromkeys([*going_on, *([self._record] if self._record else [])]):
                _finish(record, "interrupted" if record in going_on else "done")
            self._record = None

    def _begun(self) -> _Shared:
        if self._record is None:
            place = new_run(runs_directory(self._context))
            self._record = _Shared(place, secrets=Secrets(self._context.env))
            self._record.snapshot(self._index.hash, self._index.to_json)
            self._record.add(
                "run_started",
                request=f"skills for {self._agent}, through {self._door}",
                model="another program's",
                agent=self._agent,
                index_hash=self._index.hash,
                skills=len(self._index),
            )
        return self._record


def _finish(record: Record, status: str) -> None:
    summary: dict[str, Any] = {"status": status, "stop_reason": "closed", "answer": "", "stats": {}}
    record.add("run_finished", **summary)
    record.finish({"run_id": record.run_id, **summary}, "")


class _Shared(Record):
    """A record that several threads write to."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turn = threading.Lock()

    def add(self, type_: str, **data: Any) -> Event:
        """Append one event, one thread at a time."""
        with self._turn:
            return super().add(type_, **data)
