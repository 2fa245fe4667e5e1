"""Store a user's answers and trusted files in SQLite: exact names, never patterns, bound to their content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
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
_TABLES = """
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
    );
    CREATE TABLE IF NOT EXISTS trusted (
        folder TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS approved (
        resource TEXT PRIMARY KEY,
        text TEXT NOT NULL,
        files TEXT NOT NULL,
        created REAL NOT NULL
    );
"""


def grants_file(context: Context) -> Path:
    """Return the file of the user's answers."""
    return context.home / ".agent" / "grants.db"


class _Store:
    """One file, created on first use and readable by its owner only."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def _done(self, sql: str, *rows: Sequence[Any], make: bool = False) -> list[Any]:
        """Execute a statement with each row of values, all or none, and return the rows it finds.

        Without a file, do nothing, unless ``make`` is true.
        """
        if not (make or self._path.exists()):
            return []
        import sqlite3  # noqa: PLC0415 - only if something is, or will be, remembered

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            with (
                contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection,
                connection,
            ):
                connection.executescript(_TABLES)
                return [found for row in rows for found in connection.execute(sql, row)]
        except (sqlite3.Error, OSError) as error:
            text = (
                f"The remembered answers in {self._path} cannot be used ({error}): repair or remove the file."
            )
            raise ConfigError(text) from error


class Grant(Struct, frozen=True):
    """One stored answer: for what, for which content of the skill, where, and until when."""

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
        """Return the grant in the form that ``vade permissions list`` prints."""
        return structs.asdict(self) | {"project": self.project or None}


class Grants(_Store):
    """The stored answers of one user, in a file that processes share."""

    def add(
        self, request: Request, *, digest: str, scope: GrantScope, project: Path, seconds: float | None = None
    ) -> None:
        """Store that a request was allowed, for exactly these resources and this content."""
        place, now = str(project) if scope == "project" else "", self._clock()
        about = (digest, request.agent, scope, place, now, None if seconds is None else now + seconds)
        rows = [(request.permission, resource, *about) for resource in request.resources]
        self._done("INSERT INTO grants VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", *rows, make=True)

    def cover(self, request: Request, *, digest: str, project: Path) -> bool:
        """Return whether every resource of a request was allowed before, with its current content."""
        valid = {
            grant.resource
            for grant in self.all()
            if (grant.permission, grant.digest, grant.agent) == (request.permission, digest, request.agent)
            and grant.project in {"", str(project)}
            and (grant.expires is None or grant.expires > self._clock())
        }
        return bool(request.resources) and valid.issuperset(request.resources)

    def all(self) -> list[Grant]:
        """Return all stored answers, oldest first."""
        return [Grant(*row) for row in self._done("SELECT * FROM grants ORDER BY id", ())]

    def revoke(self, number: int) -> bool:
        """Remove one answer; return whether it existed."""
        known = any(grant.id == number for grant in self.all())
        self._done("DELETE FROM grants WHERE id = ?", (number,))
        return known


class Trust(_Store):
    """Trusted folders, whose configuration can allow things while it has the content that was trusted."""

    def holds(self, file: Path) -> bool:
        """Return whether this configuration file is trusted with its current content."""
        sql = "SELECT digest FROM trusted WHERE folder = ?"
        return self._done(sql, (_folder(file),)) == [(_digest(file),)]

    def add(self, file: Path) -> None:
        """Trust this configuration file with its current content."""
        row = (_folder(file), _digest(file), self._clock())
        self._done("INSERT OR REPLACE INTO trusted VALUES (?, ?, ?)", row, make=True)

    def remove(self, file: Path) -> None:
        """Stop trusting the folder of this configuration file."""
        self._done("DELETE FROM trusted WHERE folder = ?", (_folder(file),))


class Approved(NamedTuple):
    """An approved script: its text, and the digest of each file of its skill."""

    text: str
    files: dict[str, str]


class ApprovedTexts(_Store):
    """The last approved version of each script, to show what has changed."""

    def last(self, resource: str) -> Approved | None:
        """Return the last approved version of a script, or None."""
        found = self._done("SELECT text, files FROM approved WHERE resource = ?", (resource,))
        return Approved(found[0][0], json.loads(found[0][1])) if found else None

    def keep(self, resource: str, text: str, files: dict[str, str]) -> None:
        """Store an approved script: its text, and the digests of all files of its skill."""
        row = (resource, text[:MAX_KEPT_CHARS], json.dumps(files), self._clock())
        self._done("INSERT OR REPLACE INTO approved VALUES (?, ?, ?, ?)", row, make=True)


def _folder(file: Path) -> str:
    return str(file.parent.parent.resolve())


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(read_capped(file, cap=MAX_CONFIG_BYTES)).hexdigest()
    except (OSError, FileRefused):
        return "unreadable"
