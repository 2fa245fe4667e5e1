"""The lock: what is installed, where it came from, and the digest of every file. Sorted, without times."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vademecum.errors import FileRefused, IntegrityFailed
from vademecum.files import read_capped
from vademecum.packs.content import SkillFile, digest_of
from vademecum.packs.names import MAX_NAME_BYTES

LOCK_FILE = "skills.lock.json"
LOCK_VERSION = 1
HERE = "here"  # the source of skills that live in the root itself
MAX_LOCK_BYTES = 64 * 1024 * 1024


class Locked(msgspec.Struct, frozen=True):
    """One installed skill: its source, what the source resolved to, its digest and its files."""

    source: str
    resolved: str
    digest: str
    files: tuple[SkillFile, ...]
    version: str | None = None
    signer: str | None = None

    @property
    def is_kept_here(self) -> bool:
        """Whether there is no other place that it comes from."""
        return self.source == HERE


class LockFile(msgspec.Struct, frozen=True):
    """All installed skills of one root, by name."""

    skills: dict[str, Locked] = {}
    version: int = LOCK_VERSION

    def with_skill(self, name: str, locked: Locked) -> LockFile:
        """The lock with one skill more, or another version of it."""
        return LockFile({**self.skills, name: locked})

    def only(self, name: str) -> LockFile:
        """The lock of one skill alone."""
        return LockFile({name: self.skills[name]})

    def without(self, name: str) -> LockFile:
        """The lock with one skill less."""
        return LockFile({key: value for key, value in self.skills.items() if key != name})

    def to_text(self) -> str:
        """The file's content: the same skills give the same bytes."""
        data = msgspec.json.encode(self, order="sorted")
        return msgspec.json.format(data, indent=2).decode() + "\n"


def lock_path(root: Path) -> Path:
    """Where the lock of a root lies: beside it."""
    return root.parent / LOCK_FILE


def read_lock(root: Path) -> LockFile:
    """The lock of a root; an empty one where nothing was installed yet."""
    return read_lock_file(lock_path(root))


def read_lock_file(file: Path) -> LockFile:
    """A lock, wherever it lies."""
    try:
        found = msgspec.json.decode(read_capped(file, cap=MAX_LOCK_BYTES), type=LockFile)
    except FileNotFoundError:
        return LockFile()
    except (OSError, FileRefused, msgspec.DecodeError, RecursionError) as error:
        raise IntegrityFailed(
            f"{file} cannot be read ({error}): restore it, or remove it and install anew."
        ) from error
    wrong = next((name for name, locked in found.skills.items() if not _is_sound(name, locked)), None)
    if wrong is not None:
        raise IntegrityFailed(f"{file} has an entry {wrong[:100]!r} that cannot be right: restore it.")
    if found.version != LOCK_VERSION:
        raise IntegrityFailed(
            f"{file} has version {found.version}, which is not known here: update vademecum."
        )
    return found


def _is_sound(name: str, locked: Locked) -> bool:
    """Whether a name is one that a directory can have, and the digest is that of the files."""
    plain = bool(name) and name[0] != "." and not {"/", "\0"} & set(name)
    return plain and len(name.encode()) <= MAX_NAME_BYTES and digest_of(locked.files) == locked.digest
