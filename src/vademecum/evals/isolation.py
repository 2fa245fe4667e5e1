"""Prepare a separate directory for one run: a copy of the project, the files of the case, an empty home."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vademecum.context import Context
from vademecum.errors import CaseRefused, FileRefused, PathRefused
from vademecum.evals.cases import Case
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.skill.assets import content_digest

MAX_CASE_FILE_BYTES = 64 * 1024 * 1024
MAX_PROJECT_FILES = 5000
MAX_PROJECT_BYTES = 256 * 1024 * 1024
# A copy does not need the history, and must not contain other runs or results. In a worktree the history is a
# file.
_LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", ".venv"})
_LEFT_OUT_OF_AGENT = frozenset({"runs", "evals"})


def content_of(source: str, case: Case) -> bytes:
    """Return the content of a file next to a case, or, for a case in ``evals``, in the parent directory."""
    for base in places_of(case.place):
        try:
            return read_capped(contained(base, source), cap=MAX_CASE_FILE_BYTES)
        except FileNotFoundError:
            continue
        except (OSError, FileRefused, PathRefused) as error:
            raise CaseRefused(f"The case {case.id!r} cannot have the file {source!r} ({error}).") from error
    raise CaseRefused(f"The case {case.id!r} names the file {source!r}, which is not next to it: add it.")


def places_of(place: str) -> list[Path]:
    """Return the directories that can contain the files of a case."""
    beside = Path(place)
    return [beside, beside.parent] if beside.name == "evals" else [beside]


def project_of(case: Case) -> Path:
    """Return the directory that a case wants as its project."""
    place = contained(Path(case.place), case.setup.project)
    if not place.is_dir():
        raise CaseRefused(
            f"The case {case.id!r} wants the project {case.setup.project!r}, which is not a directory."
        )
    return place


def sources_of(case: Case) -> list[str]:
    """Return the files that a case names and does not contain itself."""
    return [file.source or file.name for file in case.files if file.text is None]


def content_digests(case: Case) -> list[list[str]]:
    """Return the digests of the files of a case; a missing file has one too, and the run reports it."""
    try:
        found = [[name, hashlib.sha256(content_of(name, case)).hexdigest()] for name in sources_of(case)]
        return found + ([["project", project_digest(project_of(case))]] if case.setup.project else [])
    except (CaseRefused, PathRefused, FileRefused) as error:
        return [["missing", str(error)]]


def project_digest(source: Path) -> str:
    """Return one digest of everything that a copy of the project contains."""
    whole = hashlib.sha256()
    for relative, path in _entries(source):
        is_directory = path.is_dir() and not path.is_symlink()
        content = "directory" if is_directory else content_digest(str(path))
        whole.update(os.fsencode(relative) + b"\0" + os.fsencode(content) + b"\n")
    return whole.hexdigest()


def copy_project(source: Path, target: Path) -> None:
    """Copy a project, links as links, within limits."""
    for relative, path in _entries(source):
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            copy.mkdir(exist_ok=True)
        else:
            shutil.copy2(path, copy, follow_symlinks=False)


def _entries(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield the entries of a copy by name, directories before their contents."""
    files = size = 0
    for directory, names, found in os.walk(source):
        inside = os.path.relpath(directory, source)
        is_ours = os.path.basename(inside) == ".agent"
        if not is_ours:  # it exists as soon as anything was run: only its contents count
            yield inside, Path(directory)
        out = _LEFT_OUT | (_LEFT_OUT_OF_AGENT if is_ours else frozenset())
        names[:] = sorted(name for name in names if name not in out)
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        for name in sorted([*found, *links]):
            path = Path(directory, name)
            if name in out or not (path.is_file() or path.is_symlink()):
                continue
            files += 1
            size += path.lstat().st_size
            if files > MAX_PROJECT_FILES or size > MAX_PROJECT_BYTES:
                most = f"{MAX_PROJECT_FILES:,} files or {MAX_PROJECT_BYTES // 2**20} MiB"
                raise CaseRefused(f"{source} has more than {most}: name a smaller project for the cases.")
            yield os.path.normpath(os.path.join(inside, name)), path


@contextmanager
def room_for(case: Case, place: Path, *, project: Path | None, env: Mapping[str, str]) -> Iterator[Context]:
    """Prepare a working directory and an empty home below ``place``, and remove both afterwards.

    The directory is a copy of the case's own project, else of ``project``, with the files of the case.
    """
    room = Path(tempfile.mkdtemp(dir=place))
    found = Context(room / "project", room / "home", {**env, "HOME": str(room / "home")})
    try:
        source = project_of(case) if case.setup.project else project
        if source is not None:
            copy_project(source, found.cwd)
        found.cwd.mkdir(exist_ok=True)
        if len(found.project_directories()) > 1:
            # The temporary directory is inside a repository: the project starts here.
            (found.cwd / ".git").mkdir()
        for file in case.files:
            target = contained(found.cwd, file.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.text is None:
                target.write_bytes(content_of(file.source or file.name, case))
            else:
                target.write_text(file.text, "utf-8", "replace")
        yield found
    finally:
        shutil.rmtree(room, ignore_errors=True)
