"""The lock: what is installed, where it came from, and the digest of every file. Sorted, without times.

Beside it, a file in the root lists which skills vade put there itself: only those may be taken away.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from vademecum.errors import IntegrityFailed
from vademecum.packs.content import SkillFile, digest_of
from vademecum.packs.records import read_json
from vademecum.packs.sources.entry_names import MAX_NAME_BYTES

LOCK_FILE = "skills.lock.json"
LOCK_VERSION = 1
INSTALLED_FILE = ".installed.json"
LOCAL = "local"  # the source of skills that a person wrote in the root itself
MAX_STEPS = 8


class Locked(msgspec.Struct, frozen=True):
    """One installed skill: its source, what the source resolved to, its digest and its files.

    ``url`` is where a site has the very bytes, whatever its list says by now.
    """

    source: str
    resolved: str
    digest: str
    files: tuple[SkillFile, ...]
    version: str | None = None
    signer: str | None = None
    url: str | None = None

    @property
    def is_local(self) -> bool:
        """Return whether the skill was written in the root and has no other source."""
        return self.source == LOCAL


def locked_here(files: tuple[SkillFile, ...], before: Locked | None) -> Locked:
    """Return a local skill as it is; who signed it before must sign what comes next, too."""
    digest = digest_of(files)
    return Locked(LOCAL, digest, digest, files, signer=before.signer if before else None)


class LockFile(msgspec.Struct, frozen=True):
    """All installed skills of one root, by name; one below a group is called ``group/name``."""

    skills: dict[str, Locked] = {}
    version: int = LOCK_VERSION

    def only(self, name: str) -> LockFile:
        """Return the lock of one skill alone."""
        return LockFile({name: self.skills[name]})


def lock_path(root: Path) -> Path:
    """Return where the lock of a root is: beside it."""
    return root.parent / LOCK_FILE


def read_lock(root: Path) -> LockFile:
    """Return the lock of a root, an empty one if there is none."""
    return read_lock_file(lock_path(root))


def read_lock_file(file: Path) -> LockFile:
    """Return the lock in a file, an empty one if there is none."""
    found = read_json(file, LockFile, advice="restore it, or remove it and install again")
    if found is None:
        return LockFile()
    wrong = next((name for name, locked in found.skills.items() if not _is_sound(name, locked)), None)
    if wrong is not None:
        raise IntegrityFailed(f"{file} has an entry {wrong[:100]!r} that cannot be right: restore it.")
    if found.version != LOCK_VERSION:
        raise IntegrityFailed(f"{file} has the unknown version {found.version}: update vademecum.")
    return found


def is_skill_path(name: str) -> bool:
    """Return whether a name can be that of a skill in a root, or of one below a group.

    >>> [is_skill_path(name) for name in ("pdf", "team/pdf", ".trash", "../pdf", "")]
    [True, True, False, False, False]
    """
    steps = name.split("/")
    return len(steps) <= MAX_STEPS and all(step and step[0] != "." and "\0" not in step for step in steps)


def _is_sound(name: str, locked: Locked) -> bool:
    """Return whether a name can be that of a skill, and the digest is that of the files."""
    short = len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
    return is_skill_path(name) and short and digest_of(locked.files) == locked.digest


def read_installed(root: Path) -> dict[str, str]:
    """Return the digests of the skills that vade put into a root; unreadable means none."""
    try:
        return read_json(root / INSTALLED_FILE, dict[str, str], advice="") or {}
    except IntegrityFailed:
        return {}
