"""What other programs' agents did with skills, on record: one run for each, begun when it is needed."""

from __future__ import annotations

import threading
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
    """A record that begins with the first thing to write down, and takes entries from any thread."""

    def __init__(self, index: SkillIndex, *, context: Context, agent: str, door: str) -> None:
        self._index = index
        self._context = context
        self._agent = agent
        self._door = door
        self._lock = threading.RLock()
        self._record: _Shared | None = None

    @property
    def record(self) -> Record:
        """The record itself."""
        with self._lock:
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

    def adopt(self, index: SkillIndex) -> None:
        """The skills are others now; what was written so far stays true."""
        with self._lock:
            self._index = index
            if self._record is not None:
                self._record.add("index_changed", index_hash=index.hash, skills=len(index))

    def loaded(self, skill: Skill, report: LoadReport, *, origin: Origin) -> None:
        """A skill's instructions were handed out."""
        about = report.to_json()
        self.record.add("skill_loaded", skill=skill.skill_id, origin=origin, effect="allow", report=about)

    def resource(self, skill: Skill, path: str, report: LoadReport) -> None:
        """A file of a skill was handed out."""
        self.record.add("resource_loaded", skill=skill.skill_id, path=path, report=report.to_json())

    def close(self) -> None:
        """Write down that it is over, if anything was written at all."""
        with self._lock:
            record, self._record = self._record, None
        if record is not None:
            summary: dict[str, Any] = {"status": "done", "stop_reason": "closed", "answer": "", "stats": {}}
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
