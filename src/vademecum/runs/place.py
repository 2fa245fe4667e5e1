"""Where the record of a run lies: ``.agent/runs/<run_id>`` of the project."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import ConfigError


def runs_directory(context: Context) -> Path:
    """The directory of all runs: of the nearest project that has an ``.agent``, else of this directory."""
    places = context.project_directories() or [context.cwd]
    nearest = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return nearest / ".agent" / "runs"


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
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(directory / ".gitignore", flags, 0o644), "w") as ignore:
                ignore.write("*\n")
        place.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"The record of this run cannot be kept in {directory} ({error.strerror}): make it writable."
        ) from error
    return place
