"""Record a run: append events one by one, store full texts by hash, and write a summary at the end."""

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
from vademecum.files import try_lock, writable, write_atomic
from vademecum.masking import MASK, Secrets

EVENTS, SUMMARY, INDEX, FINAL = "events.jsonl", "run.json", "index.json", "final.md"
OBSERVATIONS = "observations"
SHARED = ".index"
MAX_RECORDED_CHARS = 2000
# How much of a text to cut is searched for secrets, and how many items of a list are kept.
MAX_MASKED_CHARS = 50_000
MAX_ITEMS = 1000

_SECRET_HEADER = re.compile(
    r"(?:x-)?(?:api-?key|auth-?token|access-?token)|authorization|(?:set-)?cookie|proxy-authorization",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(://[^/\s:@]{0,200}:)[^/\s@]+(?=@)")
_KNOWN = re.compile(
    r"(?P<lead>\b(?:Bearer|Basic|Token|ApiKey)\s+"
    r"|\b(?:api[_-]?key|password|passphrase|secret|token)[\"']?\s{0,5}"
    # A call in a program is not a value, and a reader of the record must see it.
    r"(?:=\s{0,5}(?![a-z_]+(?:\.[a-z_]+)*\([^\n]*\))|:\s{0,5})[\"']?)"
    r"(?P<value>[^\s\"'@&,;]{8,})"
    r"|(?<![\w-])(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|eyJ[\w-]{10,4000}\.[\w-]{10,4000}\.[\w-]+|hf_\w{20,})",
    re.IGNORECASE,
)
_ENCODER = msgspec.json.Encoder(enc_hook=str)

Listener = Callable[["Event"], None]


class Event(msgspec.Struct, frozen=True):
    """One event of a run: its number, time, type and data."""

    number: int
    time: float
    type: str
    data: dict[str, Any]


def runs_directory(context: Context) -> Path:
    """Return the directory of the project's runs."""
    return context.agent_directory / "runs"


def check_place(directory: Path) -> None:
    """Refuse links: a repository can contain them, and we must not write, read or delete files elsewhere."""
    for part in (directory.parent, directory):
        if part.is_symlink():
            raise ConfigError(f"{part} is a link: make it a directory, so that records stay in the project.")


def new_run(directory: Path, *, clock: Callable[[], float] = time.time) -> Path:
    """Create the directory of a new run; its name is the run's id, and sorts by time."""
    now = clock()
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    place = directory / f"{moment}-{int(now * 1000) % 1000:03}{os.urandom(2).hex()}"
    check_place(directory)
    with writable(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(directory / ".gitignore", "x") as ignore:
            ignore.write("*\n")
        place.mkdir(mode=0o700)
    return place


def masked(text: str, secrets: Secrets, *, name: str = "", most: int | None = None) -> str:
    """Return a text without known secrets and without anything that looks like a key.

    The whole text is masked if its ``name``, such as a header's, is that of a secret. If ``most`` is given,
    the masked text is cut to that many characters.

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
    # Half a character, which the name of a file can contain, cannot be written.
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
    """The record of one run. Each event is completely on disk before anything else happens."""

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
        self._number, self._is_finished = 0, False
        self._lock = threading.Lock()  # calls of one run can be concurrent
        self._file: int | None = None
        self.open()

    def open(self) -> None:
        """Open the file, again if it was closed."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.place / EVENTS, flags, 0o600)
            with contextlib.suppress(OSError):  # some file systems have no locks
                try_lock(self._file)  # while it is open, `vade runs prune` keeps the run

    @property
    def is_closed(self) -> bool:
        """Return whether the record is closed, so that nothing can be added."""
        return self._file is None

    def add(self, type_: str, **data: Any) -> None:
        """Append one event, without secrets."""
        self._append(type_, [self._encoded(data)])

    def add_bounded(self, type_: str, **data: Any) -> None:
        """Append one event without secrets, with long texts and lists cut."""
        self._append(type_, [self._encoded(data, most=MAX_RECORDED_CHARS)])

    def add_encoded(self, type_: str, rows: Sequence[bytes]) -> None:
        """Append many events in one write: JSON objects whose texts are masked already."""
        self._append(type_, rows)

    def _encoded(self, data: Mapping[str, Any], *, most: int | None = None) -> bytes:
        return _ENCODER.encode(masked_values(data, self.secrets, most=most))

    def _append(self, type_: str, rows: Sequence[bytes]) -> None:
        """Write one complete line for each row, or none of them."""
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
        """Tell the listener of something that is not recorded, such as a piece of text."""
        if self._listener is not None:
            self._listener(Event(0, self._clock(), type_, data))

    def keep(self, text: str) -> str:
        """Store a whole text once, and return its path: ``observations/<sha256>.txt``."""
        data = masked(text, self.secrets).encode()
        name = f"{OBSERVATIONS}/{hashlib.sha256(data).hexdigest()}.txt"
        path = self.place / name
        if not path.exists():
            write_atomic(path, data, mode=0o600)
        return name

    def snapshot(self, digest: str, content: Any) -> None:
        """Store the index of this run; runs with the same index share one file."""
        shared = self.place.parent / SHARED / f"{digest.removeprefix('sha256:')}.json"
        try:
            data = msgspec.json.encode(content)
        except UnicodeEncodeError:  # half a character, which a path can contain
            data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        try:
            # An existing file may have come with the project: it is shared only if its content is the same.
            if shared.parent.is_symlink() or (shared.exists() and shared.read_bytes() != data):
                raise FileExistsError
            if not shared.exists():
                write_atomic(shared, data)
            os.link(shared, self.place / INDEX)
        except OSError:
            write_atomic(self.place / INDEX, data)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the end of the run, its answer and its summary, once, and close."""
        if not (self._is_finished or self.is_closed):
            told = {key: summary[key] for key in ("status", "stop_reason", "answer", "stats")}
            self.add("run_finished", **told)
            self._is_finished, self._listener = True, None  # what is added later is not part of the run
            write_atomic(self.place / FINAL, masked(str(summary["answer"]), self.secrets).encode())
            write_atomic(self.place / SUMMARY, self._encoded({"run_id": self.run_id, **summary}))
        self.close()

    def close(self) -> None:
        """Close the file; its descriptor can belong to another file afterwards."""
        descriptor, self._file = self._file, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
