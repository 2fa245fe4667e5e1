"""What the sources have now, compared with what is installed; and taking it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.errors import PackRefused, VademecumError
from vademecum.nearest import meant, nearest
from vademecum.packs.arrivals import Change, Options, Reception
from vademecum.packs.comparing import diff_of
from vademecum.packs.fetching import Source
from vademecum.packs.install import install
from vademecum.packs.lock import LockFile, read_lock
from vademecum.packs.shelf import Shelf
from vademecum.packs.syncing import Sources

Freshness = Literal["current", "outdated", "gone", "unreachable", "here"]


class Age(Struct, frozen=True):
    """Whether a source has something newer than what is installed."""

    name: str
    source: str
    status: Freshness
    locked: str = ""
    newest: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """As ``vade outdated`` prints it."""
        return structs.asdict(self)


class Update(Struct, frozen=True):
    """One skill that was, or would be, brought up to date, and what differs in it."""

    change: Change
    diff: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``vade update`` prints it."""
        return self.change.to_json() | {"diff": list(self.diff)}


def outdated(shelf: Shelf, sources: Sources, names: Iterable[str] = ()) -> list[Age]:
    """Ask every source what it has now; each is asked once."""
    lock = read_lock(shelf.root)
    found: list[Age] = []
    for source, members in _by_source(lock, names).items():
        found += _ages(source, members, lock, shelf, sources)
    return sorted(found, key=lambda age: age.name)


class Failure(Struct, frozen=True):
    """A source that could not be updated from, and why; nothing of it was changed."""

    source: str
    error: VademecumError

    def to_json(self) -> dict[str, Any]:
        """As ``vade update`` prints it."""
        return {"source": self.source, "code": self.error.code, "message": str(self.error)}


def update(
    shelf: Shelf, sources: Sources, options: Options, names: Iterable[str] = ()
) -> tuple[list[Update], list[Failure]]:
    """Install what the sources have now, source by source; each all or nothing, whatever comes of others."""
    lock = read_lock(shelf.root)
    done: list[Update] = []
    failures: list[Failure] = []
    for source, members in _by_source(lock, names).items():
        if lock.skills[members[0]].is_kept_here:
            if names:
                raise PackRefused(f"{members[0]!r} has no source to update from: it is locked as it is here.")
            continue
        asked = structs.replace(options, only=tuple(members))
        try:
            reference = sources.reference(source, shelf)
            with sources.fetching.fetched(reference, source, only=members) as fetched:
                done += _updated(fetched, shelf, asked, lock)
        except VademecumError as error:
            failures.append(Failure(source, error))
    return sorted(done, key=lambda one: one.change.name), failures


def _updated(source: Source, shelf: Shelf, options: Options, lock: LockFile) -> list[Update]:
    with tempfile.TemporaryDirectory(prefix="vade-") as aside:
        found = Reception(shelf, options, lock, Path(aside, "new")).arrivals(source)
        updates = []
        for arrival in found:
            name = arrival.staged.name
            there = (shelf.root / name).is_dir() and arrival.change.action == "replace"
            diff = diff_of(shelf.root / name, Path(aside, "new", name)) if there else []
            updates.append(Update(arrival.change, tuple(diff)))
    if not options.dry_run:
        install(source, shelf, options)
    return updates


def _ages(source: str, members: list[str], lock: LockFile, shelf: Shelf, sources: Sources) -> list[Age]:
    locked = {name: lock.skills[name] for name in members}
    ages = [Age(name, source, "current", one.resolved, one.resolved) for name, one in locked.items()]
    if locked[members[0]].is_kept_here:
        return [structs.replace(age, status="here") for age in ages]
    try:
        reference = sources.reference(source, shelf)
        newest = sources.fetching.newest(reference)
        if newest is not None and all(one.resolved == newest for one in locked.values()):
            return ages
        with (
            sources.fetching.fetched(reference, source) as fetched,
            tempfile.TemporaryDirectory(prefix="vade-") as aside,
        ):
            options = Options(force=True, allow_unsafe=True)
            reception = Reception(shelf, options, LockFile(), Path(aside, "new"))
            found = {one.staged.name: one.change.digest for one in reception.arrivals(fetched)}
            return [_age(age, found.get(age.name), lock, fetched) for age in ages]
    except VademecumError as error:
        status: Freshness = "gone" if error.code == "missing" else "unreachable"
        return [structs.replace(age, status=status, problem=str(error), newest="") for age in ages]


def _age(age: Age, digest: str | None, lock: LockFile, source: Source) -> Age:
    if digest is None:
        return structs.replace(age, status="gone", newest="")
    newest = source.resolved_for(age.name) or digest
    same = digest == lock.skills[age.name].digest
    return structs.replace(age, status="current" if same else "outdated", newest=newest)


def _by_source(lock: LockFile, names: Iterable[str]) -> dict[str, list[str]]:
    """The skills that are asked for, by where they come from."""
    wanted = list(names) or sorted(lock.skills)
    found: dict[str, list[str]] = {}
    for name in wanted:
        if name not in lock.skills:
            hint = meant(nearest(name, lock.skills), otherwise="vade install it first.")
            raise PackRefused(f"{name!r} is not in the lock: {hint}", code="not-installed")
        found.setdefault(lock.skills[name].source, []).append(name)
    return found
