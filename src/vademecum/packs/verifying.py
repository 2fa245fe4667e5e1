"""Compare a root with its lock: every file, and every skill that the index finds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from vademecum.errors import PackRefused
from vademecum.packs.content import differences_of, digest_of, files_of, is_cache
from vademecum.packs.install_root import InstallRoot
from vademecum.packs.lock import INSTALLED_FILE, LockFile, lock_path, read_lock
from vademecum.packs.npm_lock import folder_hash, npm_lock_path, read_npm_lock

Status = Literal["ok", "missing", "changed", "not-locked"]


class Verdict(Struct, frozen=True):
    """The result of comparing one skill with the lock: a status, its present digest and the differences."""

    name: str
    status: Status
    digest: str = ""
    differences: tuple[str, ...] = ()

    @property
    def is_edited(self) -> bool:
        """Return whether a person changed files; caches that interpreters leave do not count."""
        edits = [text for text in self.differences if not is_cache(text.partition(" ")[2])]
        return self.status == "changed" and bool(edits)


def verify(where: InstallRoot, names: Iterable[str] = ()) -> tuple[list[Verdict], str]:
    """Compare the root with the lock; return the verdicts, and what is wrong with the lock itself, or "".

    Without a lock of our own, that of the npm tool is compared.
    """
    problem = missing_lock(where)
    npm = {} if where.has_lock else read_npm_lock(where.root)
    there = where.names()
    if npm:
        return [
            _npm_verdict(name, where.root, npm[name].folder_hash if name in npm else "")
            for name in list(names) or sorted({*npm, *there})
        ], ""
    lock = read_lock(where.root)
    wanted = list(names) or sorted({*lock.skills, *there})
    for name in {*wanted}.difference(lock.skills):
        where.place(name)
    return [verdict_of(name, where.root, lock) for name in wanted], problem


def missing_lock(where: InstallRoot) -> str:
    """Return what to say about a lock that is missing although skills are, or were, in the root."""
    if where.has_lock or npm_lock_path(where.root).is_file():
        return ""
    if not where.names() and not (where.root / INSTALLED_FILE).is_file():
        return ""
    return (
        f"{lock_path(where.root)} is missing: take it from version control, or run vade lock to accept "
        "the skills as they are"
    )


def verdict_of(name: str, root: Path, lock: LockFile) -> Verdict:
    """Compare one skill with the lock."""
    locked = lock.skills.get(name)
    place = root / name
    if not place.is_dir():
        return Verdict(name, "missing" if locked else "not-locked")
    try:
        found = files_of(place, every=True)
    except (PackRefused, OSError) as error:
        return Verdict(name, "changed" if locked else "not-locked", "", (str(error),))
    digest = digest_of(found)
    if locked is None:
        return Verdict(name, "not-locked", digest)
    differences = differences_of(locked.files, found)
    return Verdict(name, "changed" if differences else "ok", digest, differences)


def _npm_verdict(name: str, root: Path, wanted: str) -> Verdict:
    place = root / name
    if not place.is_dir():
        return Verdict(name, "missing")
    try:
        digest, found = digest_of(files_of(place, every=True)), folder_hash(place)
    except (PackRefused, OSError) as error:
        return Verdict(name, "changed", "", (str(error),))
    if not wanted:
        return Verdict(name, "not-locked", digest)
    same = found == wanted
    differences = () if same else (f"its folder has the hash {found}, not {wanted}",)
    return Verdict(name, "ok" if same else "changed", digest, differences)
