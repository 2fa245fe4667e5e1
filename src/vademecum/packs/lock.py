"""Read and write the lock: the installed skills, their sources, and the digest of every file.

Another file in the root lists the skills that vade installed: ``sync`` removes only those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vademecum.errors import FileRefused, IntegrityFailed
from vademecum.files import read_capped
from vademecum.packs.content import SkillFile, digest_of
from vademecum.packs.sources.entry_names import MAX_NAME_BYTES

LOCK_FILE = "skills.lock.json"
LOCK_VERSION = 1
INSTALLED_FILE = ".installed.json"
LOCAL = "local"  # the source of skills that a person wrote in the root
MAX_BYTES = 64 * 1024 * 1024
MAX_STEPS = 8

Kind = TypeVar("Kind")


def read_json(file: Path, kind: type[Kind], *, advice: str) -> Kind | None:
    """Return the content of a file as this type, or None if it is missing."""
    try:
        return msgspec.json.decode(read_capped(file, cap=MAX_BYTES), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, FileRefused, msgspec.DecodeError, RecursionError) as error:
        raise IntegrityFailed(f"{file} cannot be read ({error}): {advice}.") from error


def json_text(value: Any) -> str:
    r"""Return the content of such a file: the same value gives the same bytes.

    >>> json_text({"b": 1, "a": 2})
    '{\n  "a": 2,\n  "b": 1\n}\n'
    """
    data = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(data, indent=2).decode() + "\n"


class Locked(msgspec.Struct, frozen=True):
    """One installed skill: its source, what the source resolved to, its digest and its files.

    ``url`` is the address of exactly these bytes, even if the site's list has changed.
    """

    source: str
    resolved: str
    digest: str
    files: tuple[SkillFile, ...]
    version: str | None = None
    signer: str | None = None
    url: str | None = None


def locked_here(files: tuple[SkillFile, ...], before: Locked | None) -> Locked:
    """Return a local skill in its current state; a later version must have the same signer as before."""
    digest = digest_of(files)
    return Locked(LOCAL, digest, digest, files, signer=before.signer if before else None)


class LockFile(msgspec.Struct, frozen=True):
    """All installed skills of one root, by name; a skill in a group is called ``group/name``."""

    skills: dict[str, Locked] = {}
    version: int = LOCK_VERSION


def lock_path(root: Path) -> Path:
    """Return the path of the lock of a root, next to the root."""
    return root.parent / LOCK_FILE


def read_lock(file: Path) -> LockFile:
    """Return the lock in a file, or an empty one if it is missing."""
    found = read_json(file, LockFile, advice="restore it, or remove it and install again") or LockFile()
    for name, locked in found.skills.items():
        if not is_skill_path(name) or digest_of(locked.files) != locked.digest:
            raise IntegrityFailed(f"{file} has an entry {name[:100]!r} that is not valid: restore the file.")
    if found.version != LOCK_VERSION:
        raise IntegrityFailed(f"{file} has the unknown version {found.version}: update vademecum.")
    return found


def is_skill_path(name: str) -> bool:
    """Return whether a name can be that of a skill in a root, alone or in a group.

    >>> [is_skill_path(name) for name in ("pdf", "team/pdf", ".trash", "../pdf", "")]
    [True, True, False, False, False]
    """
    steps = name.split("/")
    fits = len(steps) <= MAX_STEPS and len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
    return fits and all(step and step[0] != "." and "\0" not in step for step in steps)


def read_installed(root: Path) -> dict[str, str]:
    """Return the digests of the skills that vade installed in a root; none if the file is unreadable."""
    try:
        return read_json(root / INSTALLED_FILE, dict[str, str], advice="") or {}
    except IntegrityFailed:
        return {}
