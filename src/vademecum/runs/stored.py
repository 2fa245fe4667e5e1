"""Reading runs back: whatever was finished is there, whatever was cut short is left out."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from vademecum.errors import FileRefused, RecordDamaged, VademecumError
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.runs.record import EVENTS, Event, check_place

MAX_EVENTS_BYTES = 512 * 1024 * 1024

_RUN_ID = re.compile(r"[\w-]{1,100}")


class PastRun(msgspec.Struct, frozen=True):
    """One run as its record tells it."""

    run_id: str
    place: str
    events: tuple[Event, ...]

    def first(self, type_: str) -> Event | None:
        """Return the first event of a type, if there is one."""
        return next((event for event in self.events if event.type == type_), None)

    def _told(self, type_: str, key: str) -> str:
        event = self.first(type_)
        return str(event.data.get(key, "")) if event else ""

    @property
    def request(self) -> str:
        """Return the user's request."""
        return self._told("run_started", "request")

    @property
    def status(self) -> str:
        """How it ended; ``unfinished`` when it did not get that far."""
        return self._told("run_finished", "status") or "unfinished"

    @property
    def answer(self) -> str:
        """The answer, if there is one."""
        return self._told("run_finished", "answer")

    @property
    def seconds(self) -> float:
        """From the first event to the last."""
        return self.events[-1].time - self.events[0].time if self.events else 0.0


class RunOutput(msgspec.Struct, frozen=True):
    """A file that a script or command left, as the record lists it."""

    path: str
    file: str
    bytes: int
    sha256: str
    output: str = ""
    secret: bool = False


def outputs_of(event: Event, place: str) -> tuple[RunOutput, ...]:
    """Return the outputs that an event lists, as far as they are in the record of that run."""
    result = event.data.get("result")
    listed = result.get("outputs", ()) if event.type == "tool_called" and isinstance(result, dict) else ()
    found = []
    for each in listed:
        with contextlib.suppress(msgspec.ValidationError, VademecumError, OSError, ValueError):
            output = msgspec.convert(each, type=RunOutput)
            file = contained(Path(place), os.path.relpath(output.file, place))
            found.append(msgspec.structs.replace(output, file=str(file)))
    return tuple(found)


class Difference(msgspec.Struct, frozen=True):
    """One step that would be different now: at which event, what it was, what it would be."""

    event: int
    what: str
    then: str
    now: str


class Replayed(msgspec.Struct, frozen=True):
    """How many steps of a run were compared, and which of them would be different now."""

    compared: int
    differences: tuple[Difference, ...]


def run_ids(directory: Path) -> list[str]:
    """Return the ids of all runs in a directory, the oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(
        name
        for name in names
        if _RUN_ID.fullmatch(name)
        and not (directory / name).is_symlink()
        and (directory / name / EVENTS).exists()
    )


def read_run(directory: Path, run_id: str) -> PastRun:
    """Return one run; a last line that was cut short is left out."""
    place = contained(directory, run_id)
    check_place(directory)
    try:
        data = read_capped(place / EVENTS, cap=MAX_EVENTS_BYTES)
    except (OSError, FileRefused) as error:
        known = run_ids(directory)
        advice = f"the latest is {known[-1]}" if known else "there are none"
        raise RecordDamaged(f"There is no run {run_id!r} in {directory}: {advice}.", code="no-run") from error
    whole, _, _ = data.rpartition(b"\n")
    events: list[Event] = []
    try:
        for line in whole.splitlines():
            found = msgspec.json.decode(line, type=dict[str, Any])
            head = int(found.pop("n")), float(found.pop("time")), str(found.pop("type"))
            events.append(Event(*head, found))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise RecordDamaged(f"Line {len(events) + 1} of {place / EVENTS} is damaged ({error}).") from error
    return PastRun(run_id, str(place), tuple(events))
