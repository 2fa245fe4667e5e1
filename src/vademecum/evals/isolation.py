"""A place of its own for one run: a copy of the project and a home where nothing is, gone when it is over."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vademecum.context import Context
from vademecum.evals.cases import Case
from vademecum.evals.materials import content_of, copy_project, project_of
from vademecum.paths import contained

_PREFIX = "vade-eval-"


@dataclass(frozen=True, slots=True)
class Room:
    """The place of one run."""

    project: Path
    home: Path
    scratch: Path
    before: dict[str, tuple[int, int]]

    def changed(self) -> list[str]:
        """The files that are new or otherwise than before, by their paths in the project."""
        now = _stamps(self.project)
        return sorted(name for name, stamp in now.items() if self.before.get(name) != stamp)


class Rooms:
    """The rooms of one evaluation; what a run that was cut off left behind can be removed by others."""

    def __init__(self) -> None:
        self._taken: set[Path] = set()

    @contextmanager
    def room_for(self, case: Case, *, project: Path | None = None) -> Iterator[Room]:
        """Make the place, and remove it afterwards; the project is the case's own, or the named one."""
        place = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._taken.add(place)
        try:
            yield _furnished(place, case, project)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            self._taken.discard(place)

    def clear(self) -> None:
        """Remove what is still there."""
        for place in list(self._taken):
            shutil.rmtree(place, ignore_errors=True)
            self._taken.discard(place)


def _furnished(place: Path, case: Case, project: Path | None) -> Room:
    copy, home, scratch = (place / name for name in ("project", "home", "scratch"))
    source = project_of(case) if case.setup.project else project
    if source is not None:
        copy_project(source, copy)
    copy.mkdir(exist_ok=True)
    if len(Context(copy, home, {}).project_directories()) > 1:
        # The system's directory for such places is in somebody's repository: ours begins here.
        (copy / ".git").mkdir()
    for file in case.files:
        target = contained(copy, file.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = file.text.encode("utf-8", "replace") if file.text is not None else None
        target.write_bytes(content_of(file.source or file.name, case) if content is None else content)
    return Room(copy, home, scratch, _stamps(copy))


def _stamps(base: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for directory, names, files in os.walk(base):
        names[:] = [name for name in names if name not in {".git", ".agent"}]
        for name in files:
            path = os.path.join(directory, name)
            seen = os.lstat(path)
            found[os.path.relpath(path, base)] = (seen.st_mtime_ns, seen.st_size)
    return found
