"""Store the documents of a search index in a file, and lock it while writing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import MsgspecError, Struct, msgpack

from vademecum.errors import FileRefused
from vademecum.files import keep_newest, read_own, try_lock, write_atomic
from vademecum.version import VERSION

FORMAT = f"vademecum-search-4 {VERSION}"
MAX_STATE_BYTES = 512 * 1024 * 1024
MAX_META_BYTES = 16 * 1024 * 1024
LOCK_SECONDS = 20.0
MAX_STORES = 16


class IndexedSkill(Struct, frozen=True, gc=False, array_like=True):
    """One document: the stamp of its file and its number in the engine."""

    stamp: int
    number: int


class IndexState(Struct, array_like=True):
    """All documents by location, and the matching stamp of the engine."""

    format: str = FORMAT
    engine_stamp: int = -1
    dead: int = 0  # removed documents that still count in the statistics
    documents: dict[str, IndexedSkill] = {}


class IndexFiles:
    """The directory of one search index."""

    def __init__(self, directory: Path) -> None:
        self.engine_directory = directory / "tantivy"
        self._state = directory / "state.msgpack"
        self._lock = directory / "lock"
        self._directory = directory

    def load(self) -> IndexState | None:
        """Return the state if it matches the engine on disk, or ``None`` to start from an empty index."""
        try:
            state = msgpack.decode(read_own(self._state, cap=MAX_STATE_BYTES), type=IndexState)
        except (OSError, FileRefused, MsgspecError):
            return None
        return state if state.format == FORMAT and self.fits(state) else None

    def fits(self, state: IndexState) -> bool:
        """Return whether this state describes the engine on disk.

        A process killed between the two writes leaves stamps that differ.
        """
        try:
            meta = json.loads(read_own(self.engine_directory / "meta.json", cap=MAX_META_BYTES))
        except (OSError, FileRefused, ValueError):
            return False
        return isinstance(meta, dict) and meta.get("opstamp") == state.engine_stamp

    def save(self, state: IndexState) -> None:
        """Write the state, after the engine's commit."""
        write_atomic(self._state, msgpack.encode(state), mode=0o600)

    def clear(self) -> None:
        """Remove the index, so that the engine can start with an empty one."""
        self._state.unlink(missing_ok=True)
        shutil.rmtree(self.engine_directory, ignore_errors=True)
        self.engine_directory.mkdir(parents=True, exist_ok=True)
        # Each set of roots and of hidden skills has its own directory.
        keep_newest(self._directory.parent, "search-*", MAX_STORES)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other writers; raise ``TimeoutError`` after waiting too long."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            while not try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise TimeoutError("another process is updating the search index")
                time.sleep(0.02)
            yield
        finally:
            os.close(descriptor)  # which releases the lock
