"""What a check comes to, and what a run left behind to be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from vademecum.runs.record import Event

Holds = Literal["pass", "fail", "vacuous", "skipped"]


class Check(Struct, frozen=True):
    """One thing that was checked: whether it holds, why, and the events that prove it.

    ``vacuous`` means that nothing it speaks of happened, ``skipped`` that nobody was there to judge it.
    ``judge`` names the model that judged it; everything else was computed. ``elsewhere`` are events of child
    runs, as ``run:event``. What must ``always`` hold was not asked for by the case.
    """

    name: str
    holds: Holds
    detail: str = ""
    events: tuple[int, ...] = ()
    judge: str = ""
    elsewhere: tuple[str, ...] = ()
    always: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left: its answer, its events, its copy of the project, and a place for checks to work in."""

    answer: str
    status: str
    skills: tuple[str, ...]
    events: tuple[Event, ...]
    project: Path
    scratch: Path
    place: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def made(self) -> list[Path]:
        """The directories in which scripts made files."""
        works = [_work(event.data) for event in self.events if event.type == "tool_called"]
        return [Path(work) for work in works if work]


def _work(data: Mapping[str, Any]) -> str:
    result = data.get("result")
    work = result.get("work") if isinstance(result, Mapping) else None
    return work if isinstance(work, str) else ""
