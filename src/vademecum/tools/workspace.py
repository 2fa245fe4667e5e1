"""The directories that tools can use. For tools, nothing else exists."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vademecum.errors import PathRefused, ToolRefused, VademecumError
from vademecum.paths import check_relative, leads_out, open_contained, open_contained_directory

MAX_MATCHES = 1000

_PASSED_OVER = frozenset({".git", "node_modules", "__pycache__", ".venv"})


@dataclass(frozen=True, slots=True)
class Located:
    """A path inside one of the directories: the directory, and the normalized rest.

    ``name`` is the path for people and models, ``rule`` the path for rules: relative to the project.
    """

    root: Path
    relative: str
    name: str
    rule: str
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        """Compute the absolute path once."""
        object.__setattr__(self, "path", self.root / self.relative)


class Workspace:
    """The directories: relative paths begin at the first, paths in rules at the ``project``."""

    def __init__(self, *roots: Path, project: Path | None = None) -> None:
        """Use these directories; a root after the first can also be a single file."""
        self._roots = tuple(Path(os.path.abspath(root)) for root in roots)
        base = os.path.abspath(project or roots[0])
        self._bases = tuple(dict.fromkeys((base, os.path.realpath(base))))

    def locate(self, path: str) -> Located:
        """Return the location of a path from outside; outside the directories, no path exists."""
        up = ".." in path.split("/") and len(self._roots) > 1
        wanted = os.path.normpath(self._roots[0] / path) if up else path
        for number, root in enumerate(self._roots):
            if not wanted.startswith("/"):
                relative = wanted
            elif wanted.rstrip("/") == str(root):
                relative = "."
            elif wanted.startswith(f"{root}/"):
                relative = wanted[len(str(root)) + 1 :]
            else:
                continue
            if relative == "." and root.is_file():
                return Located(root.parent, root.name, str(root), self._rule(root))
            plain = "/".join(step for step in relative.split("/") if step not in {"", "."}) or "."
            name = str(root / plain) if number else plain
            found = Located(root, plain, name, self._rule(root / plain))
            check_relative(root, relative)
            return found
        text = f"There is no {path[:200]!r} here: name a path relative to {self._roots[0]}."
        raise PathRefused(text, code="missing")

    def kind(self, word: str) -> Literal["file", "directory"] | None:
        """Return whether a word names a file or a directory; ``None`` if it names neither."""
        try:
            path = self.locate(word).path
            return "file" if path.is_file() else "directory" if path.is_dir() else None
        except (VademecumError, OSError, ValueError):
            return None

    def matches(self, pattern: str) -> list[str]:
        """Return the files that a glob matches, sorted; refuse more than ``MAX_MATCHES``."""
        located = self.locate(pattern)
        found = []
        for name in glob.iglob(located.relative, root_dir=located.root, recursive=True):
            if os.path.isfile(located.root / name):
                found.append(str(located.root / name) if pattern.startswith("/") else name)
            if len(found) > MAX_MATCHES:
                raise ToolRefused(
                    f"{pattern!r} matches more than {MAX_MATCHES:,} files: name the directory.",
                    code="too-many",
                )
        return sorted(found)

    def named(self, pattern: str) -> list[str]:
        """Return the paths that a text names: itself if it exists, or the files it matches as a glob."""
        if os.path.lexists(self.locate(pattern).path):
            return [pattern]
        found = self.matches(pattern) if glob.has_magic(pattern) else []
        if not found:
            says = f"No file matches {pattern!r}" if glob.has_magic(pattern) else f"There is no {pattern!r}"
            raise ToolRefused(f"{says} here.", code="missing")
        return found

    def names(self, located: Located) -> tuple[str, ...]:
        """Return the names of a path in rules: its own and, if it is a link, its target's."""
        names = self.rule_names(located.path)
        if leads_out(located.root, located.path):
            raise PathRefused(f"The path {located.name!r} follows a link that leads out: name another.")
        return names

    def rule_names(self, path: Path) -> tuple[str, ...]:
        """Return the names of an absolute path in rules."""
        return tuple(dict.fromkeys((self._rule(path), self._rule(Path(os.path.realpath(path))))))

    def _rule(self, path: Path) -> str:
        text = str(path)
        for base in self._bases:
            if text == base:
                return "."
            if text.startswith(f"{base.rstrip('/')}/"):
                return text[len(base.rstrip("/")) + 1 :]
        return text


def open_located(located: Located, *, directory: bool = False) -> int:
    """Open a file for reading, or a directory for listing."""
    try:
        opener = open_contained_directory if directory else open_contained
        return opener(located.root, located.relative)
    except OSError as error:
        raise _unusable(located, error) from error


@contextlib.contextmanager
def open_parent(located: Located, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of a file without following links, and yield it with the file's name.

    With ``make``, missing directories are created.
    """
    *parents, name = located.relative.split("/")
    try:
        directory = os.open(located.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for step in parents:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(step, dir_fd=directory)
                entered = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                os.close(directory)
                directory = entered
            yield directory, name
        finally:
            os.close(directory)
    except OSError as error:
        raise _unusable(located, error) from error


def _unusable(located: Located, error: OSError) -> ToolRefused:
    """Return a system error about a path as one sentence."""
    if isinstance(error, FileNotFoundError):
        return ToolRefused(f"There is no {located.name!r} here.", code="missing")
    text = f"{located.name!r} cannot be used ({error.strerror}): name another path."
    return ToolRefused(text, code="unusable")


def files_below(located: Located, may_read: Callable[[Path], bool]) -> Iterator[tuple[str, int]]:
    """Yield the plain files below a directory, each with an open descriptor.

    Links are not followed, and files that may not be read are left out.
    """
    prefix = "" if located.name == "." else f"{located.name}/"
    base = Path(os.path.realpath(located.path))
    top = open_located(located, directory=True)
    try:
        for place, directories, files, descriptor in os.fwalk(".", dir_fd=top):
            directories[:] = sorted(name for name in directories if name not in _PASSED_OVER)
            for file in sorted(files):
                inside = os.path.normpath(f"{place}/{file}")
                if not may_read(base / inside):
                    continue
                try:
                    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
                except OSError:
                    continue
                try:
                    if stat.S_ISREG(os.fstat(opened).st_mode):
                        yield f"{prefix}{inside}", opened
                finally:
                    os.close(opened)
    finally:
        os.close(top)
