"""Remembered answers ↔ SQLite: exact names, never patterns, bound to what the skill was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.policy.base import Request
from vademecum.policy.store import Store

Scope = Literal["project", "user"]


class Grant(Struct, frozen=True):
    """One answer that was remembered: for what, for which content of the skill, where, and until when."""

    id: int
    permission: str
    resource: str
    digest: str
    agent: str
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
        self._store = Store(path)
        self._clock = clock

    def add(
        self, request: Request, *, digest: str, scope: Scope, project: Path, seconds: float | None = None
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
        """Whether every resource of a request was allowed before, for the content it has now."""
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
