"""Moves that happen together: what fails half-way is undone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from vademecum.errors import PackRefused
from vademecum.packs.links import Base, Link

STAGING = ".vade-staging"
TRASH = ".agent/.trash"


class Moves:
    """Moves of one command, each of which can be undone until all of them are done."""

    def __init__(self, base: Base, clock: Callable[[], float], undo: ExitStack) -> None:
        self.undo = undo
        self._base = base
        self._clock = clock
        self._asides: dict[Path, Path] = {}

    def make(self, directory: Path) -> None:
        """Make a directory."""
        os.mkdir(directory)
        self.undo.callback(os.rmdir, directory)

    def aside(self, directory: Path) -> Path:
        """A directory on the same file system, where links and copies wait until they are whole."""
        if directory not in self._asides:
            os.mkdir(directory / STAGING)
            self._asides[directory] = directory / STAGING
            self.undo.callback(shutil.rmtree, directory / STAGING, ignore_errors=True)
        return self._asides[directory]

    def put(self, place: Path) -> None:
        """Bring what waits aside to its place."""
        if os.path.lexists(place):  # since it was looked at: a rename would replace a file
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        self._move(self.aside(place.parent) / place.name, place)

    def take(self, place: Path) -> None:
        """Take away what lies at a place."""
        self._move(place, self.aside(place.parent) / f".{place.name}")

    def keep(self, place: Path, one: Link) -> Path:
        """Take away what lies at a place, and keep it in the trash."""
        kept = self._trash(one)
        self._move(place, kept)
        return kept

    def _move(self, place: Path, target: Path) -> None:
        os.rename(place, target)
        self.undo.callback(os.rename, target, place)

    def _trash(self, one: Link) -> Path:
        """A new place in the trash."""
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
        place = self._base.inside(f"{TRASH}/{one.agent}/{one.name}/{moment}-{os.urandom(2).hex()}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def finish(self) -> None:
        """Let all of it be, and remove what was put aside."""
        self.undo.pop_all()
        for aside in self._asides.values():
            shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def moving(base: Base, clock: Callable[[], float]) -> Iterator[Moves]:
    """Move things, all of them or none."""
    try:
        with ExitStack() as undo:
            moves = Moves(base, clock, undo)
            yield moves
            moves.finish()
    except OSError as error:
        where = error.filename2 or error.filename or base.path
        raise PackRefused(
            f"{where} could not be changed ({error.strerror or error}): nothing was changed."
        ) from error
