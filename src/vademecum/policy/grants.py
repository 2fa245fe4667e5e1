"""Store a user's answers and trusted files in SQLite: exact names, never patterns, bound to their content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct, structs

from vademecum.config import MAX_CONFIG_BYTES
from vademecum.context import Context
from vademecum.errors import ConfigError, FileRefused
from vademecum.files import read_capped
from vademecum.policy.base import Request

MAX_KEPT_CHARS = 100_000

GrantScope = Literal["project", "user"]

_BUSY_SECONDS = 10.0
_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS grants (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        permission TEXT NOT NULL,
        resource TEXT NOT NULL,
        digest TEXT NOT NULL,
        agent TEXT NOT NULL,
        scope TEXT NOT NULL,
        project TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS trusted (
        folder TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS approved (
        resource TEXT PRIMARY KEY,
        text TEXT NOT NULL,
        files TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
)


def grants_file(context: Context) -> Path:
    """Return where the user's answers are remembered."""
    return context.home / ".agent" / "grants.db"


class _Store:
    """One file, made by the first thing that is remembered, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Return whether any answer was ever stored."""
        return self._path.exists()

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept together or not at all."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
            try:
                with connection:
                    for table in _TABLES:
                        connection.execute(table)
                    yield connection
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            text = (
                f"The remembered answers in {self._path} cannot be used ({error}): repair or remove the file."
            )
            raise ConfigError(text) from error


class Grant(Struct, frozen=True):
    """One answer that was remembered: for what, for which content of the skill, where, and until when."""

    id: int
    permission: str
    resource: str
    digest: str
    agent: str
    scope: GrantScope
    project: str
    created: float
    expires: float | None

    def to_json(self) -> dict[str, Any]:
        """The grant as ``vade permissions list`` prints it."""
        return structs.asdict(self) | {"project": self.project or None}


class Grants:
    """The remembered answers of one user, in a file that the first answer makes and processes share."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._store = _Store(path)
        self._clock = clock

    def add(
        self, request: Request, *, digest: str, scope: GrantScope, project: Path, seconds: float | None = None
    ) -> None:
        """Remember that a request was allowed, for just these resources and just this content."""
        place = str(project) if scope == "project" else ""
        expires = None if seconds is None else self._clock() + seconds
        rows = [
            (request.permission, resource, digest, request.agent, scope, place, self._clock(), expires)
            for resource in request.resources
        ]
        with self._store.connection() as connection:
            connection.executemany(
                "INSERT INTO grants (permission, resource, digest, agent, scope, project, created, expires)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def cover(self, request: Request, *, digest: str, project: Path) -> bool:
        """Return whether every resource of a request was allowed before, with the content it has now."""
        valid = {
            grant.resource
            for grant in self.all()
            if (grant.permission, grant.digest, grant.agent) == (request.permission, digest, request.agent)
            and grant.project in {"", str(project)}
            and (grant.expires is None or grant.expires > self._clock())
        }
        return bool(request.resources) and valid.issuperset(request.resources)

    def all(self) -> list[Grant]:
        """All remembered answers, the oldest first."""
        if not self._store.exists():
            return []
        with self._store.connection() as connection:
            rows = connection.execute(
                "SELECT id, permission, resource, digest, agent, scope, project, created, expires"
                " FROM grants ORDER BY id"
            ).fetchall()
        return [Grant(*row) for row in rows]

    def revoke(self, number: int) -> bool:
        """Forget one answer; says whether there was one."""
        if not self._store.exists():
            return False
        with self._store.connection() as connection:
            return connection.execute("DELETE FROM grants WHERE id = ?", (number,)).rowcount > 0


class Trust:
    """Folders whose configuration may allow things, each for the content it had when it was trusted."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._store = _Store(path)
        self._clock = clock

    def holds(self, file: Path) -> bool:
        """Return whether this configuration file is trusted with its present content."""
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
    """An approved script: its text, and the digest of each file of its skill."""

    text: str
    files: dict[str, str]


class ApprovedTexts:
    """The scripts as a person last approved them, to show what is different now."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._store = _Store(path)
        self._clock = clock

    def last(self, resource: str) -> Approved | None:
        """Return the last approved version of a script, or None."""
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
