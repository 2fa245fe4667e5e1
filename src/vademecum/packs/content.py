"""A skill's directory → its files as they are packed, installed and verified, and their digest."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused, PackRefused
from vademecum.files import open_plain

MAX_FILES = 10_000
MAX_SKILL_BYTES = 512 * 1024 * 1024

_JUNK_DIRECTORIES = frozenset({"__pycache__", "node_modules", ".git"})
_JUNK_FILES = frozenset({".DS_Store"})
SIGNATURE = "skill.sig"


class SkillFile(Struct, frozen=True, order=True):
    """One file of a skill: where, what, how large, and whether it can be executed."""

    path: str
    sha256: str
    size: int
    executable: bool = False

    def to_json(self) -> dict[str, Any]:
        """As manifests and lock files have it."""
        return structs.asdict(self)


def files_of(directory: Path) -> tuple[SkillFile, ...]:
    """The files of a skill, sorted by the bytes of their paths, without what nobody would ship.

    A link, a device or a name that is no text is refused: none of them arrives the same elsewhere.
    """
    found = [_described(directory, relative) for relative in _walk(directory, "", top=True)]
    if len(found) > MAX_FILES or sum(file.size for file in found) > MAX_SKILL_BYTES:
        most = f"{MAX_FILES:,} files and {MAX_SKILL_BYTES:,} bytes"
        raise PackRefused(f"{directory} is too large for a skill: at most {most}.")
    return tuple(sorted(found, key=lambda file: file.path.encode()))


def digest_of(files: Iterable[SkillFile]) -> str:
    """The digest of a whole skill; its own signature is not part of what it signs.

    >>> digest_of([SkillFile("SKILL.md", "ab", 2)])[:19]
    'sha256:0f0567d026db'
    """
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path.encode()):
        if file.path != SIGNATURE:
            whole.update(f"{file.path}\0{file.sha256}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _walk(base: Path, place: str, *, top: bool = False) -> Iterator[str]:
    with os.scandir(base / place) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        name = entry.name
        relative = f"{place}/{name}" if place else name
        if entry.is_dir(follow_symlinks=False):
            if name not in _JUNK_DIRECTORIES and not (top and name == "evals"):
                yield from _walk(base, relative)
        elif name not in _JUNK_FILES and not name.endswith(".pyc"):
            yield relative


def _described(base: Path, relative: str) -> SkillFile:
    try:
        relative.encode()
        descriptor = open_plain(base / relative) if not (base / relative).is_symlink() else -1
    except UnicodeEncodeError as error:
        raise PackRefused(f"{relative!r} in {base} has a name that is no text: rename it.") from error
    except (OSError, FileRefused) as error:
        raise PackRefused(f"{relative!r} in {base} cannot be packed ({error}).") from error
    if descriptor < 0:
        raise PackRefused(f"{relative!r} in {base} is a link: put the file itself in its place.")
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SkillFile(relative, digest, mode.st_size, bool(mode.st_mode & stat.S_IXUSR))
