"""Which folders the user trusts, and the texts of the scripts that were approved last."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vademecum.config import MAX_CONFIG_BYTES
from vademecum.errors import FileRefused
from vademecum.files import read_capped
from vademecum.policy.store import Store

MAX_KEPT_CHARS = 100_000


class Trust:
    """Folders whose configuration may allow things, each for the content it had when it was trusted."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._store = Store(path)
        self._clock = clock

    def holds(self, file: Path) -> bool:
        """Whether this configuration file is trusted as it is now."""
        return self._store.exists() and dict(self.all()).get(_folder(file)) == _digest(file)

    def add(self, file: Path) -> None:
        """Trust this configuration file as it is now."""
        with self._store.connection() as connection:
            row = (_folder(file), _digest(file), self._clock())
            connection.execute(
                "INSERT OR REPLACE INTO trusted (folder, digest, created) VALUES (?, ?, ?)", row
            )

    def remove(self, file: Path) -> bool:
        """Trust it no longer; says whether it was trusted."""
        if not self._store.exists():
            return False
        with self._store.connection() as connection:
            sql = "DELETE FROM trusted WHERE folder = ?"
            return connection.execute(sql, (_folder(file),)).rowcount > 0

    def all(self) -> list[tuple[str, str]]:
        """All trusted folders with their digests, by name."""
        if not self._store.exists():
            return []
        with self._store.connection() as connection:
            found = connection.execute("SELECT folder, digest FROM trusted ORDER BY folder").fetchall()
        return [(str(folder), str(digest)) for folder, digest in found]


class Approved(NamedTuple):
    """What a person approved: the text of a script, and the digest of each file of its skill."""

    text: str
    files: dict[str, str]


class ApprovedTexts:
    """What a person saw when they last approved a script, to show what is different now."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._store = Store(path)
        self._clock = clock

    def last(self, resource: str) -> Approved | None:
        """What was approved last, if anything was."""
        if not self._store.exists():
            return None
        with self._store.connection() as connection:
            sql = "SELECT text, files FROM approved WHERE resource = ?"
            row = connection.execute(sql, (resource,)).fetchone()
        return None if row is None else Approved(str(row[0]), json.loads(row[1]))

    def keep(self, resource: str, text: str, files: dict[str, str]) -> None:
        """Keep what was approved just now: the script's text, and the digests of all files of its skill."""
        with self._store.connection() as connection:
            sql = "INSERT OR REPLACE INTO approved (resource, text, files, created) VALUES (?, ?, ?, ?)"
            row = (resource, text[:MAX_KEPT_CHARS], json.dumps(files), self._clock())
            connection.execute(sql, row)


def _folder(file: Path) -> str:
    return str(file.parent.parent.resolve())


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(read_capped(file, cap=MAX_CONFIG_BYTES)).hexdigest()
    except (OSError, FileRefused):
        return "unreadable"
