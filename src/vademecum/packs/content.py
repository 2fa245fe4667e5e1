"""A skill's directory → its files as they are packed, installed and verified, and their digest."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import PackRefused
from vademecum.packs.names import objection

MAX_FILES = 10_000
MAX_SKILL_BYTES = 512 * 1024 * 1024

_JUNK_DIRECTORIES = frozenset({"__pycache__", "node_modules"})
# Git runs commands that a repository's configuration names, and `.git` can be a file that leads to one.
_GIT = frozenset({".git", "git~1"})
_JUNK_FILES = frozenset({".DS_Store"})
_JUNK_AT_TOP = "evals"
# O_NOFOLLOW: a link is refused; O_NONBLOCK: a FIFO is not waited for.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 256 * 1024


class SkillFile(Struct, frozen=True, order=True):
    """One file of a skill: where, what, how large, and whether it can be executed."""

    path: str
    sha256: str
    size: int
    executable: bool = False

    def to_json(self) -> dict[str, Any]:
        """As manifests and lock files have it."""
        return structs.asdict(self)


def check_packable(directory: Path, files: Iterable[SkillFile]) -> None:
    """Refuse what could be packed here and not be installed elsewhere."""
    for file in files:
        reason = objection(file.path)
        if reason is not None:
            raise PackRefused(f"{file.path!r} in {directory} {reason}: rename it.")


def is_junk(path: str) -> bool:
    """Whether a path in a skill is one that nobody would ship.

    >>> [is_junk(path) for path in ("evals/a.json", "scripts/evals/a", "scripts/__pycache__/x.pyc")]
    [True, False, True]
    """
    steps = path.split("/")
    *directories, name = steps
    return (
        not _JUNK_DIRECTORIES.isdisjoint(directories)
        or any(step.casefold() in _GIT for step in steps)
        or directories[:1] == [_JUNK_AT_TOP]
        or name in _JUNK_FILES
        or name.endswith(".pyc")
    )


def files_of(directory: Path) -> tuple[SkillFile, ...]:
    """The files of a skill, sorted by the bytes of their paths, without what nobody would ship.

    A link, a device or a name that is no text is refused: none of them arrives the same elsewhere.
    """
    base = str(directory)
    found = [_described(base, relative) for relative in _walk(base, "")]
    if len(found) > MAX_FILES or sum(file.size for file in found) > MAX_SKILL_BYTES:
        most = f"{MAX_FILES:,} files and {MAX_SKILL_BYTES:,} bytes"
        raise PackRefused(f"{directory} is too large for a skill: at most {most}.")
    return tuple(sorted(found, key=lambda file: file.path.encode()))


def strays_in(directory: Path, known: Iterable[SkillFile]) -> list[str]:
    """What lies in a skill's directory beside its files, and was not made by an interpreter or a desktop."""
    files = {file.path for file in known}
    found = []
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name != "__pycache__"]
        links = [name for name in directories if os.path.islink(f"{place}/{name}")]
        for name in (*names, *links):
            relative = os.path.relpath(f"{place}/{name}", directory)
            if relative not in files and name not in _JUNK_FILES:
                found.append(relative)
    return sorted(found)


def digest_of(files: Iterable[SkillFile]) -> str:
    """The digest of a whole skill, as others compute it too; executable bits are outside of it.

    >>> digest_of([SkillFile("SKILL.md", "ab", 2)])[:19]
    'sha256:0f0567d026db'
    """
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path.encode()):
        whole.update(f"{file.path}\0{file.sha256}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _walk(base: str, place: str) -> Iterator[str]:
    with os.scandir(f"{base}/{place}") as listing:
        entries = list(listing)
    for entry in entries:
        relative = f"{place}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not is_junk(f"{relative}/"):
                yield from _walk(base, f"{relative}/")
        elif not is_junk(relative):
            yield relative


def _described(base: str, relative: str) -> SkillFile:
    try:
        relative.encode()
        descriptor = os.open(f"{base}/{relative}", _FLAGS)
    except UnicodeEncodeError as error:
        raise PackRefused(f"{relative!r} in {base} has a name that is no text: rename it.") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PackRefused(
                f"{relative!r} in {base} is a link: put the file itself in its place."
            ) from error
        raise PackRefused(f"{relative!r} in {base} cannot be read ({error.strerror}).") from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PackRefused(f"{relative!r} in {base} is no plain file: remove it.")
        return SkillFile(relative, _digest(descriptor), about.st_size, bool(about.st_mode & stat.S_IXUSR))
    finally:
        os.close(descriptor)


def _digest(descriptor: int) -> str:
    whole = hashlib.sha256()
    while piece := os.read(descriptor, _CHUNK):
        whole.update(piece)
        if len(piece) < _CHUNK:  # the end of a plain file
            break
    return whole.hexdigest()
