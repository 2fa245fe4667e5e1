"""A directory, or a commit of a repository → its files, in the form that archives have."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from vademecum.errors import PackRefused
from vademecum.packs.archive import MAX_ENTRIES, MAX_UNPACKED_BYTES, Entry, Opened, open_archive
from vademecum.packs.git import Repository, TreeEntry
from vademecum.paths import open_contained

_PASSED_OVER = frozenset({".git", "node_modules", "__pycache__"})
_NO_FILE = "is no plain file"


def open_source(path: Path) -> Opened:
    """Open a directory or an archive."""
    return open_directory(path) if path.is_dir() else open_archive(path)


def open_directory(path: Path) -> Opened:
    """All files below a directory; links are seen and not followed."""
    found: list[Entry] = []
    for entry in _walk(path, ""):
        found.append(entry)
        if len(found) > MAX_ENTRIES:
            raise PackRefused(f"{path} holds more than {MAX_ENTRIES:,} files: name a directory in it.")
    return Opened(tuple(found), close=lambda: None)


def open_commit(repository: Repository, commit: str, directory: str) -> Opened:
    """All files of a commit below a directory."""
    listed = repository.entries(commit, directory)
    found = tuple(
        Entry(entry.name, entry.size, entry.executable, _reader(repository, entry), _kind(entry))
        for entry in listed
    )
    return Opened(found, close=repository.close)


def _walk(base: Path, place: str) -> Iterator[Entry]:
    with os.scandir(base / place) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        relative = f"{place}/{entry.name}" if place else entry.name
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            if entry.name not in _PASSED_OVER:
                yield from _walk(base, relative)
            continue
        plain = "" if stat.S_ISREG(about.st_mode) else _NO_FILE
        objection = "is a link" if stat.S_ISLNK(about.st_mode) else plain
        executable = bool(about.st_mode & stat.S_IXUSR)
        yield Entry(relative, about.st_size, executable, _opener(base, relative), objection)


def _opener(base: Path, relative: str) -> Callable[[], IO[bytes]]:
    return lambda: os.fdopen(open_contained(base, relative), "rb")


def _reader(repository: Repository, entry: TreeEntry) -> Callable[[], IO[bytes]]:
    return lambda: repository.read(entry)


def _kind(entry: TreeEntry) -> str:
    if not entry.is_file:
        return "is a link or another repository"
    return "is too large" if entry.size > MAX_UNPACKED_BYTES else ""
