"""The user's own database of answers: one SQLite file that processes share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from vademecum.errors import ConfigError

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


class Store:
    """One file, made by the first thing that is remembered, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Whether anything was ever remembered."""
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
