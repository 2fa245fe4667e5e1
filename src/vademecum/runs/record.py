"""Writing a run down: events appended one by one, full texts by their hash, a summary at the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vademecum.errors import RecordDamaged
from vademecum.files import write_atomic
from vademecum.masking import Secrets

EVENTS, SUMMARY, INDEX, FINAL, OBSERVATIONS = (
    "events.jsonl",
    "run.json",
    "index.json",
    "final.md",
    "observations",
)

SHARED = ".index"

Listener = Callable[["Event"], None]


class Event(msgspec.Struct, frozen=True):
    """One thing that happened: its number in the run, when, of which type, and what belongs to it."""

    number: int
    time: float
    type: str
    data: dict[str, Any]


class Record:
    """The record of one run. Each event is on disk, whole, before the next thing happens."""

    def __init__(
        self,
        place: Path,
        *,
        secrets: Secrets,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.place = place
        self._secrets = secrets
        self._listener = listener
        self._clock = clock
        self._number = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file: int | None = os.open(place / EVENTS, flags, 0o600)

    @property
    def run_id(self) -> str:
        """The run's id: the name of its directory."""
        return self.place.name

    def add(self, type_: str, **data: Any) -> Event:
        """Append one event."""
        self._number += 1
        event = Event(self._number, self._clock(), type_, self._secrets.mask_all(data))
        self._append(_line(event))
        self.tell(event)
        return event

    def add_encoded(self, type_: str, rows: Sequence[bytes]) -> None:
        """Append many events in one write: JSON objects that are not empty, their texts masked already."""
        head = f'"time":{self._clock()!r},"type":"{type_}",'
        lines = []
        for number, row in enumerate(rows, self._number + 1):
            lines.append(f'{{"n":{number},{head}'.encode() + row[1:] + b"\n")
            if self._listener is not None:
                self._listener(Event(number, self._clock(), type_, msgspec.json.decode(row)))
        self._number += len(rows)
        self._append(b"".join(lines))

    def _append(self, data: bytes) -> None:
        """Write a whole line, or nothing of it."""
        if self._file is None:
            raise RecordDamaged(f"The record in {self.place} is closed: begin another run.", code="closed")
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise RecordDamaged(
                f"The record in {self.place} cannot be written ({error.strerror}): make room for it."
            ) from error

    def tell(self, event: Event) -> None:
        """Let the listener know of something, on the record or passing by, such as a piece of text."""
        if self._listener is not None:
            self._listener(event)

    def passing(self, type_: str, **data: Any) -> None:
        """Tell the listener of something that is not written down."""
        self.tell(Event(0, self._clock(), type_, data))

    def keep(self, text: str) -> str:
        """Keep a whole text, once, and return where: ``observations/<sha256>.txt``."""
        data = self._secrets.mask(text).encode("utf-8", "replace")
        name = f"{OBSERVATIONS}/{hashlib.sha256(data).hexdigest()}.txt"
        path = self.place / name
        if not path.exists():
            write_atomic(path, data, mode=0o600)
        return name

    def snapshot(self, digest: str, content: Callable[[], Any]) -> None:
        """Keep the index of this run; runs of the same index share one file."""
        shared = self.place.parent / SHARED / f"{digest.removeprefix('sha256:')}.json"
        data = _json(content())
        try:
            # What lies there may have come with the project: it is shared only if it is the same.
            if shared.parent.is_symlink() or (shared.exists() and shared.read_bytes() != data):
                raise FileExistsError
            if not shared.exists():
                write_atomic(shared, data)
            os.link(shared, self.place / INDEX)
        except OSError:
            write_atomic(self.place / INDEX, data)

    def finish(self, summary: dict[str, Any], answer: str) -> None:
        """Write the summary and the answer, and close."""
        write_atomic(self.place / FINAL, self._secrets.mask(answer).encode("utf-8", "replace"))
        write_atomic(self.place / SUMMARY, _json(self._secrets.mask_all(summary)))
        self.close()

    def close(self) -> None:
        """Let go of the file: its number may be another file's from now on."""
        descriptor, self._file = self._file, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _line(event: Event) -> bytes:
    return _json({"n": event.number, "time": event.time, "type": event.type, **event.data}) + b"\n"


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError):  # half a character, as a file name may hold it
        return json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "replace")
