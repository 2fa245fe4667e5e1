"""Read and change a root of installed skills, and compare it with its lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from vademecum.config import ScanSettings
from vademecum.errors import PackRefused
from vademecum.nearest import meant, nearest
from vademecum.packs.content import differences_of, digest_of, files_of, is_cache
from vademecum.packs.lock import (
    INSTALLED_FILE,
    LOCAL,
    LOCK_FILE,
    Locked,
    LockFile,
    is_skill_path,
    json_text,
    lock_path,
    read_installed,
    read_lock,
)
from vademecum.packs.npm_lock import NPM_LOCK, folder_hash, npm_lock_path, npm_lock_text, read_npm_lock
from vademecum.packs.transaction import TRASH, Ground, Transaction, changing
from vademecum.registry.scan import Walk

if TYPE_CHECKING:
    from vademecum.packs.signatures import Trusted

Status = Literal["ok", "missing", "changed", "not-locked"]

_FILES = frozenset({f"../{LOCK_FILE}", f"../../{NPM_LOCK}", INSTALLED_FILE})
_NOTE = re.compile(rf"{re.escape(TRASH)}/([^/.\0][^/\0]*/)+[\dT.]+\.lock\.json\Z")


def install_ground(root: Path) -> Ground:
    """Return the files that a change of a root can touch."""
    return Ground(root, root, is_skill_path, lambda file: file in _FILES or _NOTE.match(file) is not None)


class InstallRoot(Struct, frozen=True):
    """A root, the trusted keys, and the name and source of every skill, also of overridden ones."""

    root: Path
    trusted: Trusted = ()
    known: tuple[tuple[str, str], ...] = ()
    scan: ScanSettings = ScanSettings()

    @property
    def base(self) -> Path:
        """Return the directory that relative sources in the lock start from."""
        return self.root.parent.parent

    @property
    def has_lock(self) -> bool:
        """Return whether the lock exists."""
        return os.path.lexists(lock_path(self.root))

    def place(self, name: str) -> Path:
        """Return the directory of an installed skill; raise ``PackRefused`` if there is none."""
        if not is_skill_path(name) or name not in self.names():
            hint = meant(nearest(name, self.names()), otherwise="vade roots shows where skills are.")
            raise PackRefused(f"There is no skill {name!r} in {self.root}: {hint}", code="not-installed")
        return self.root / name

    def names(self) -> list[str]:
        """Return the skills that the index finds in the root, by their directories below it."""
        return sorted(directory for directory, _, _ in Walk(str(self.root), self.scan).documents)

    @contextmanager
    def changing(self) -> Iterator[RootChange]:
        """Lock the root for one change, which happens completely or not at all."""
        with changing(install_ground(self.root)) as transaction:
            yield RootChange(self, transaction)


def note_of(kept: Path) -> Path:
    """Return the file that contains the former lock entry of a skill in the trash."""
    return kept.with_name(f"{kept.name}.lock.json")


class RootChange:
    """One change of a root: skills to add and remove, and the files that record them."""

    def __init__(self, where: InstallRoot, transaction: Transaction) -> None:
        self._root = where.root
        self._transaction = transaction
        self.lock = read_lock(lock_path(where.root))
        self.staging = transaction.staging
        self._came: dict[str, tuple[Locked, Path]] = {}
        self._went: set[str] = set()
        self._notes: dict[str, str] = {}

    def put(self, name: str, locked: Locked | None, staged: Path, *, keep_old: bool = False) -> None:
        """Put a staged skill into the root and the lock; edited files are always kept in the trash.

        Without an entry for the lock, the skill will not be in it.
        """
        target = self.staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(staged, target)
        edited = verdict_of(name, self._root, self.lock).is_edited
        keep = keep_old or edited or os.path.islink(self._root / name)
        self._move(name, staged=True, keep=keep)
        if locked is None:
            self.forget(name)
        else:
            self.remember(name, locked, place=target)

    def remember(self, name: str, locked: Locked, *, place: Path | None = None) -> None:
        """Put a skill that is or will be in the root into the lock."""
        self.lock.skills[name] = locked
        self._came[name] = (locked, place or self._root / name)

    def forget(self, name: str) -> None:
        """Remove a skill from the lock."""
        self._went.add(name)
        self.lock.skills.pop(name, None)

    def take_away(self, name: str, *, keep: bool) -> None:
        """Remove a skill from the root and from the lock."""
        self._move(name, staged=False, keep=keep)
        self.forget(name)

    def _move(self, name: str, *, staged: bool, keep: bool) -> None:
        """Move a skill; if it is kept, keep its lock entry too, so that it can be restored."""
        self._transaction.move(name, staged=staged, keep=keep)
        if keep and name in self.lock.skills:
            note = note_of(Path(TRASH, name, self._transaction.moment))
            self._notes[str(note)] = json_text(LockFile({name: self.lock.skills[name]}))

    def commit(self, *, npm: bool = False) -> None:
        """Carry out the change; update the lock of the npm tool if it exists, or create it if ``npm``."""
        # Without a lock, it is unknown which installed skills are no longer wanted.
        before = read_installed(self._root) if os.path.lexists(lock_path(self._root)) else {}
        kept = {name: digest for name, digest in before.items() if name not in self._went}
        kept |= {name: locked.digest for name, (locked, _) in self._came.items() if locked.source != LOCAL}
        files: dict[str, str | None] = {
            INSTALLED_FILE: json_text(kept),
            f"../{LOCK_FILE}": json_text(LockFile(self.lock.skills)),
            **self._notes,
        }
        other = npm_lock_path(self._root)
        if npm or other.is_file():
            files[f"../../{NPM_LOCK}"] = npm_lock_text(other, self._came, removed=self._went)
        self._transaction.commit(files)


class Verdict(Struct, frozen=True):
    """The result of comparing one skill with the lock: a status, its current digest and the differences."""

    name: str
    status: Status
    digest: str = ""
    differences: tuple[str, ...] = ()

    @property
    def is_edited(self) -> bool:
        """Return whether a person edited files; caches of interpreters do not count."""
        edits = [text for text in self.differences if not is_cache(text.partition(" ")[2])]
        return self.status == "changed" and bool(edits)


def verify(where: InstallRoot, names: Iterable[str] = ()) -> tuple[list[Verdict], str]:
    """Compare the root with the lock; return the verdicts, and the problem of the lock itself, or "".

    If there is no lock of our own, compare with that of the npm tool.
    """
    npm = {} if where.has_lock else read_npm_lock(where.root)
    lock, there = read_lock(lock_path(where.root)), where.names()
    known = npm or lock.skills
    wanted = list(names) or sorted({*known, *there})
    for name in {*wanted}.difference(known):
        where.place(name)
    if npm:
        hashes = {name: digest for name, (_, digest) in npm.items()}
        return [_npm_verdict(name, where.root, hashes.get(name)) for name in wanted], ""
    was_used = there or (where.root / INSTALLED_FILE).is_file()
    verdicts = [verdict_of(name, where.root, lock) for name in wanted]
    return verdicts, missing_lock(where) if was_used else ""


def missing_lock(where: InstallRoot) -> str:
    """Return a message if the lock is missing, or "" if there is ours or that of the npm tool."""
    if where.has_lock or read_npm_lock(where.root):
        return ""
    return (
        f"{lock_path(where.root)} is missing: take it from version control, or run vade lock to accept "
        "the skills as they are"
    )


def verdict_of(name: str, root: Path, lock: LockFile) -> Verdict:
    """Compare one skill with the lock."""
    locked = lock.skills.get(name)
    if not (root / name).is_dir():
        return Verdict(name, "missing" if locked else "not-locked")
    try:
        found = files_of(root / name, every=True)
    except (PackRefused, OSError) as error:
        return Verdict(name, "changed" if locked else "not-locked", "", (str(error),))
    if locked is None:
        return Verdict(name, "not-locked", digest_of(found))
    by_kind = differences_of(locked.files, found)
    differences = tuple(f"{kind} {path}" for kind, paths in by_kind.items() for path in paths)
    return Verdict(name, "changed" if differences else "ok", digest_of(found), differences)


def _npm_verdict(name: str, root: Path, wanted: str | None) -> Verdict:
    """Compare one skill with the npm tool's lock, which has no digest of single files."""
    verdict = verdict_of(name, root, LockFile())
    if wanted is None:
        return verdict
    if not verdict.digest:
        return structs.replace(verdict, status="changed" if verdict.differences else "missing")
    found = folder_hash(root / name)
    differences = () if found == wanted else (f"its folder has the hash {found}, not {wanted}",)
    return structs.replace(verdict, status="changed" if differences else "ok", differences=differences)
