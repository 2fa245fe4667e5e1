"""Remembered answers ↔ SQLite: exact names, never patterns, bound to what the skill was."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.errors import ConfigError
from vademecum.policy.base import Request

Scope = Literal["project", "user"]

_BUSY_SECONDS = 10.0
_TABLE = """
CREATE TABLE IF NOT EXISTS grants (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    permission TEXT NOT NULL,
    resource TEXT NOT NULL,
    digest TEXT NOT NULL,
    scope TEXT NOT NULL,
    project TEXT NOT NULL,
    created REAL NOT NULL,
    expires REAL
)
"""


class Grant(Struct, frozen=True):
    """One answer that was remembered: for what, for which content of the skill, where, and until when."""

    id: int
    permission: str
    resource: str
    digest: str
    scope: Scope
    project: str
    created: float
    expires: float | None

    def to_json(self) -> dict[str, Any]:
        """The grant as ``vade permissions list`` prints it."""
        return structs.asdict(self) | {"project": self.project or None}


class Grants:
    """The remembered answers of one user, in a file that the first answer makes and processes share."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def add(
        self, request: Request, *, digest: str, scope: Scope, project: Path, expires: float | None = None
    ) -> None:
        """Remember that a request was allowed, for just these resources and just this content."""
        place = str(project) if scope == "project" else ""
        rows = [
            (request.permission, resource, digest, scope, place, self._clock(), expires)
            for resource in request.resources
        ]
        with self._connection() as connection:
            connection.executemany(
                "INSERT INTO grants (permission, resource, digest, scope, project, created, expires)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def cover(self, request: Request, *, digest: str, project: Path) -> bool:
        """Whether every resource of a request was allowed before, for the content it has now."""
        valid = {
            grant.resource
            for grant in self.all()
            if (grant.permission, grant.digest) == (request.permission, digest)
            and grant.project in {"", str(project)}
            and (grant.expires is None or grant.expires > self._clock())
        }
        return bool(request.resources) and valid.issuperset(request.resources)

    def all(self) -> list[Grant]:
        """All remembered answers, the oldest first."""
        if not self._path.exists():
            return []
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT id, permission, resource, digest, scope, project, created, expires"
                " FROM grants ORDER BY id"
            ).fetchall()
        return [Grant(*row) for row in rows]

    def revoke(self, number: int) -> bool:
        """Forget one answer; says whether there was one."""
        if not self._path.exists():
            return False
        with self._connection() as connection:
            return connection.execute("DELETE FROM grants WHERE id = ?", (number,)).rowcount > 0

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept together or not at all."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
            try:
                with connection:
                    connection.execute(_TABLE)
                    yield connection
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            text = (
                f"The remembered answers in {self._path} cannot be used ({error}): repair or remove the file."
            )
            raise ConfigError(text) from error
