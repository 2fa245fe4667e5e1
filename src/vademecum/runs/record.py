"""Writing a run down: events appended one by one, full texts by their hash, a summary at the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vademecum.context import Context
from vademecum.errors import ConfigError, RecordDamaged
from vademecum.files import writable, write_atomic
from vademecum.masking import MASK, Secrets

EVENTS, SUMMARY, INDEX, FINAL = "events.jsonl", "run.json", "index.json", "final.md"
OBSERVATIONS = "observations"
SHARED = ".index"
MAX_RECORDED_CHARS = 2000
# Of a text that is to be cut, so much is searched for secrets; of a list, so many items stay.
MAX_MASKED_CHARS = 50_000
MAX_ITEMS = 100

_SECRET_HEADER = re.compile(
    r"(?:x-)?(?:api-?key|auth-?token|access-?token)|authorization|(?:set-)?cookie|proxy-authorization",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(://[^/\s:@]{0,200}:)[^/\s@]+(?=@)")
_KNOWN = re.compile(
    r"(?P<lead>\b(?:Bearer|Basic|Token|ApiKey)\s+"
    r"|\b(?:api[_-]?key|password|passphrase|secret|token)[\"']?\s{0,5}[=:]\s{0,5}[\"']?)"
    r"(?P<value>[^\s\"'@&,;]{8,})"
    r"|(?<![\w-])(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|eyJ[\w-]{10,4000}\.[\w-]{10,4000}\.[\w-]+|hf_\w{20,})",
    re.IGNORECASE,
)
_ENCODER = msgspec.json.Encoder(enc_hook=str)

Listener = Callable[["Event"], None]


class Event(msgspec.Struct, frozen=True):
    """One thing that happened: its number in the run, when, of which type, and what belongs to it."""

    number: int
    time: float
    type: str
    data: dict[str, Any]


def runs_directory(context: Context) -> Path:
    """Return the directory of the runs of this project."""
    return context.agent_directory / "runs"


def check_place(directory: Path) -> None:
    """Refuse links: a repository may ship them, and what we write, read or delete must not be elsewhere."""
    for part in (directory.parent, directory):
        if part.is_symlink():
            raise ConfigError(f"{part} is a link: make it a directory, so that records stay in the project.")


def new_run(directory: Path, *, clock: Callable[[], float] = time.time) -> Path:
    """Make the directory of a new run; its name is the run's id, and sorts by time."""
    now = clock()
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    place = directory / f"{moment}-{int(now * 1000) % 1000:03}{os.urandom(2).hex()}"
    check_place(directory)
    with writable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(directory / ".gitignore", "x") as ignore:
            ignore.write("*\n")
        place.mkdir(mode=0o700)
    return place


def masked(text: str, secrets: Secrets, *, name: str = "", most: int | None = None) -> str:
    """Return a text without the known values and without what looks like a key.

    It is masked whole if its own ``name`` says that it is a secret, such as that of a header. If ``most`` is
    given, it is cut to so many characters once it is masked.

    >>> masked("used correct-horse and Bearer abcdefgh12", Secrets({"MY_API_KEY": "correct-horse"}))
    'used [secret] and Bearer [secret]'
    """
    if name and _SECRET_HEADER.fullmatch(name):
        return MASK
    shown = text if most is None else text[:MAX_MASKED_CHARS]
    if secrets.forms.pieces:
        shown = secrets.mask_values(shown)
    shown = _URL_PASSWORD.sub(lambda found: found[1] + MASK, shown)
    shown = _KNOWN.sub(lambda found: (found["lead"] or "") + MASK, shown)
    if most is not None and (len(shown) > most or len(text) > MAX_MASKED_CHARS):
        shown = f"{shown[:most]}…"
    # Half a character, as the name of a file may contain it, cannot be written.
    return shown if shown.isascii() else shown.encode("utf-8", "replace").decode()


def masked_values(value: Any, secrets: Secrets, *, name: str = "", most: int | None = None) -> Any:
    """Return a copy of nested lists and dictionaries in which every text is masked as above."""
    match value:
        case str():
            return masked(value, secrets, name=name, most=most)
        case dict():
            return {
                masked(str(key), secrets, most=most): masked_values(item, secrets, name=str(key), most=most)
                for key, item in value.items()
            }
        case list() | tuple():
            items = value if most is None else value[:MAX_ITEMS]
            kept = [masked_values(item, secrets, most=most) for item in items]
            return kept if len(kept) == len(value) else [*kept, f"… {len(value):,} in all"]
    return value


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
        self.run_id = place.name
        self.secrets = secrets
        self._listener = listener
        self._clock = clock
        self._number = 0
        self._lock = threading.Lock()  # calls of one run may be done side by side
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file: int | None = os.open(place / EVENTS, flags, 0o600)

    @property
    def is_closed(self) -> bool:
        """Return whether the record is closed, so that nothing can be added."""
        return self._file is None

    def add(self, type_: str, **data: Any) -> None:
        """Append one event, without secrets."""
        self._append(type_, [self._encoded(data)])

    def add_bounded(self, type_: str, **data: Any) -> None:
        """Append one event in which long texts and lists are cut, after secrets were removed."""
        self._append(type_, [self._encoded(data, most=MAX_RECORDED_CHARS)])

    def add_encoded(self, type_: str, rows: Sequence[bytes]) -> None:
        """Append many events in one write: JSON objects whose texts are masked already."""
        self._append(type_, rows)

    def _encoded(self, data: Mapping[str, Any], *, most: int | None = None) -> bytes:
        return _ENCODER.encode(masked_values(data, self.secrets, most=most))

    def _append(self, type_: str, rows: Sequence[bytes]) -> None:
        """Write an event for each row as a whole line, or nothing of them."""
        lines = []
        with self._lock:
            now, first = self._clock(), self._number + 1
            for number, data in enumerate(rows, first):
                head = f'{{"n":{number},"time":{now!r},"type":"{type_}"{"," if len(data) > 2 else ""}'
                lines.append(head.encode() + data[1:] + b"\n")
            if self._file is None:
                raise RecordDamaged(
                    f"The record in {self.place} is closed: begin another run.", code="closed"
                )
            text, size = b"".join(lines), os.fstat(self._file).st_size
            try:
                written = os.write(self._file, text)
                while written < len(text):
                    written += os.write(self._file, text[written:])
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, size)
                raise RecordDamaged(
                    f"The record in {self.place} cannot be written ({error.strerror}): make room for it."
                ) from error
            self._number += len(rows)
        if self._listener is not None:
            for number, data in enumerate(rows, first):
                self._listener(Event(number, now, type_, msgspec.json.decode(data)))

    def passing(self, type_: str, **data: Any) -> None:
        """Tell the listener of something that is not written down, such as a piece of text."""
        if self._listener is not None:
            self._listener(Event(0, self._clock(), type_, data))

    def keep(self, text: str) -> str:
        """Keep a whole text, once, and return where: ``observations/<sha256>.txt``."""
        data = masked(text, self.secrets).encode()
        name = f"{OBSERVATIONS}/{hashlib.sha256(data).hexdigest()}.txt"
        path = self.place / name
        if not path.exists():
            write_atomic(path, data, mode=0o600)
        return name

    def snapshot(self, digest: str, content: Any) -> None:
        """Keep the index of this run; runs of the same index share one file."""
        shared = self.place.parent / SHARED / f"{digest.removeprefix('sha256:')}.json"
        try:
            data = msgspec.json.encode(content)
        except UnicodeEncodeError:  # half a character, as a path may contain it
            data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        try:
            # What lies there may have come with the project: it is shared only if it is the same.
            if shared.parent.is_symlink() or (shared.exists() and shared.read_bytes() != data):
                raise FileExistsError
            if not shared.exists():
                write_atomic(shared, data)
            os.link(shared, self.place / INDEX)
        except OSError:
            write_atomic(self.place / INDEX, data)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the last event, the answer and the summary, and close; what is closed already stays so."""
        if self.is_closed:
            return
        self.add(
            "run_finished", **{key: summary[key] for key in ("status", "stop_reason", "answer", "stats")}
        )
        write_atomic(self.place / FINAL, masked(str(summary["answer"]), self.secrets).encode())
        write_atomic(self.place / SUMMARY, self._encoded({"run_id": self.run_id, **summary}))
        self.close()

    def close(self) -> None:
        """Let go of the file: its number may be another file's from now on."""
        descriptor, self._file = self._file, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
