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
from vademecum.errors import CaseRefused
from vademecum.evals.cases import Case
from vademecum.evals.plan import content_of, project_of
from vademecum.paths import contained

MAX_PROJECT_FILES = 5000
MAX_PROJECT_BYTES = 256 * 1024 * 1024
# A copy does not need the history, and must not bring other runs or their results.
_LEFT_OUT = frozenset({".git", "runs", "evals", "node_modules", "__pycache__", ".venv"})


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


@contextmanager
def room_for(case: Case, *, project: Path | None = None) -> Iterator[Room]:
    """Make the place, and remove it afterwards; the project is the case's own, or the one that was named."""
    place = Path(tempfile.mkdtemp(prefix="vade-eval-"))
    try:
        copy, home, scratch = (place / name for name in ("project", "home", "scratch"))
        source = project_of(case) if case.setup.project else project
        if source is not None:
            _copy(source, copy)
        copy.mkdir(exist_ok=True)
        if len(Context(copy, home, {}).project_directories()) > 1:
            # The system's directory for such places is in somebody's repository: ours begins here.
            (copy / ".git").mkdir()
        for file in case.files:
            target = contained(copy, file.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = file.text.encode("utf-8", "replace") if file.text is not None else None
            target.write_bytes(content_of(file.source or file.name, case) if content is None else content)
        yield Room(copy, home, scratch, _stamps(copy))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a project, links as links, within limits."""
    files = size = 0
    for directory, names, found in os.walk(source):
        inside = Path(os.path.relpath(directory, source))
        below_agent = inside.name == ".agent"
        names[:] = [
            name for name in names if name not in _LEFT_OUT or (name in {"runs", "evals"} and not below_agent)
        ]
        (target / inside).mkdir(parents=True, exist_ok=True)
        for name in found:
            path = Path(directory, name)
            files += 1
            size += path.lstat().st_size
            if files > MAX_PROJECT_FILES or size > MAX_PROJECT_BYTES:
                most = f"{MAX_PROJECT_FILES:,} files or {MAX_PROJECT_BYTES // 2**20} MiB"
                raise CaseRefused(f"{source} has more than {most}: name a smaller project for the cases.")
            if path.is_file() or path.is_symlink():
                shutil.copy2(path, target / inside / name, follow_symlinks=False)


def _stamps(base: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for directory, names, files in os.walk(base):
        names[:] = [name for name in names if name not in {".git", ".agent"}]
        for name in files:
            path = os.path.join(directory, name)
            seen = os.lstat(path)
            found[os.path.relpath(path, base)] = (seen.st_mtime_ns, seen.st_size)
    return found
