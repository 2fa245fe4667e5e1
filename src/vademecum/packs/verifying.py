"""What is installed, compared with what the lock says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.errors import PackRefused
from vademecum.packs.content import SkillFile, files_of, strays_in
from vademecum.packs.lock import LockFile, read_lock

Status = Literal["ok", "missing", "changed", "not-locked"]


class Verdict(Struct, frozen=True):
    """Whether an installed skill is what the lock says, and what differs."""

    name: str
    status: Status
    differences: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``vade verify`` prints it."""
        return structs.asdict(self)


def verify(root: Path, names: Iterable[str] = ()) -> list[Verdict]:
    """Compare every installed file with the lock."""
    lock = read_lock(root)
    return [verdict_of(name, root, lock) for name in list(names) or sorted(lock.skills)]


def verdict_of(name: str, root: Path, lock: LockFile) -> Verdict:
    """Compare one skill with the lock."""
    locked = lock.skills.get(name)
    if locked is None:
        return Verdict(name, "not-locked")
    if not (root / name).is_dir():
        return Verdict(name, "missing")
    try:
        found = files_of(root / name)
    except PackRefused as error:
        return Verdict(name, "changed", (str(error),))
    strays = [f"added {path}" for path in strays_in(root / name, found)]
    differences = (*differences_of(locked.files, found), *strays)
    return Verdict(name, "changed" if differences else "ok", differences)


def differences_of(then: Iterable[SkillFile], now: Iterable[SkillFile]) -> tuple[str, ...]:
    """What was added, removed and changed, file by file.

    >>> differences_of([SkillFile("a", "1", 1)], [SkillFile("a", "2", 1), SkillFile("b", "3", 1)])
    ('added b', 'changed a')
    """
    old, new = ({file.path: file for file in files} for files in (then, now))
    added = [f"added {path}" for path in new if path not in old]
    removed = [f"removed {path}" for path in old if path not in new]
    changed = [f"changed {path}" for path in new if path in old and new[path] != old[path]]
    return tuple(sorted([*added, *removed, *changed]))
