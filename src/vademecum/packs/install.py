"""Skills come to a shelf together or not at all; and the way back out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from vademecum.errors import PackRefused
from vademecum.nearest import meant, nearest
from vademecum.packs.arrivals import Arrival, Change, Options, Reception, is_edited, refuse_edits
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.fetching import Source
from vademecum.packs.lock import HERE, Locked, read_lock, read_lock_file
from vademecum.packs.shelf import Shelf, note_of
from vademecum.packs.staging import Progress, silently
from vademecum.packs.transaction import TRASH, is_plain_name


def install(
    sources: Source | Sequence[Source], shelf: Shelf, options: Options, *, progress: Progress = silently
) -> list[Change]:
    """Install the skills of all these sources, all or none; returns what changes, or would."""
    listed = [sources] if isinstance(sources, Source) else list(sources)
    if options.dry_run:
        with shelf.aside() as aside:
            found = _arrivals(listed, Reception(shelf, options, read_lock(shelf.root), aside), progress)
        return [arrival.change for arrival, _, _ in found]
    with shelf.changing() as change:
        found = _arrivals(listed, Reception(shelf, options, change.lock, change.staging), progress)
        for arrival, source, staging in found:
            name, locked = arrival.staged.name, arrival.locked(source)
            if arrival.change.action == "same":
                change.remember(name, locked)
            else:
                edited = options.force and is_edited(name, shelf.root, change.lock)
                change.put(name, locked, staging / name, keep_old=options.backup or edited)
        change.commit()
    for arrival, source, _ in found:
        _keep(source, shelf, arrival)
    return [arrival.change for arrival, _, _ in found]


def _arrivals(
    sources: list[Source], reception: Reception, progress: Progress
) -> list[tuple[Arrival, Source, Path]]:
    """All skills of all sources, each source staged in a place of its own."""
    found: list[tuple[Arrival, Source, Path]] = []
    seen: set[str] = set()
    for number, source in enumerate(sources):
        staging = reception.staging / f".{number}"
        for arrival in structs.replace(reception, staging=staging).arrivals(source, progress):
            name = arrival.staged.name
            if name in seen:
                raise PackRefused(f"Two of these sources have a skill {name!r}: nothing was installed.")
            seen.add(name)
            found.append((arrival, source, staging))
    return found


def uninstall(names: Sequence[str], shelf: Shelf, *, purge: bool = False, force: bool = False) -> list[str]:
    """Take skills out of a root: to the trash, or away."""
    with shelf.changing() as change:
        for name in names:
            shelf.place(name)
            if not force:
                refuse_edits(name, shelf.root, change.lock)
            change.take_away(name, keep=not purge)
        change.commit()
    return list(names)


def restore(name: str, shelf: Shelf) -> Path:
    """Bring back the version of a skill that was put into the trash last, as it is to the last file."""
    trash = shelf.root / TRASH / name
    there = trash.iterdir() if is_plain_name(name) and trash.is_dir() else ()
    kept = sorted(place for place in there if place.is_dir() and not place.is_symlink())
    if not kept:
        near = nearest(name, kept_names(shelf.root))
        hint = meant(near, otherwise="only what was uninstalled or replaced is.")
        raise PackRefused(f"Nothing called {name!r} is kept in {shelf.root / TRASH}: {hint}", code="missing")
    with shelf.changing() as change:
        copy = change.staging / ".back" / name
        shutil.copytree(kept[-1], copy, symlinks=True)
        change.put(name, _locked_then(kept[-1], name), copy, keep_old=True)
        change.commit()
    shutil.rmtree(kept[-1])
    note_of(kept[-1]).unlink(missing_ok=True)
    return kept[-1]


def kept_names(root: Path) -> list[str]:
    """The names of which something is in the trash."""
    try:
        return sorted(name for name in os.listdir(root / TRASH) if is_plain_name(name))
    except OSError:
        return []


def _locked_then(place: Path, name: str) -> Locked:
    """What the lock said of a skill in the trash; edited since, it has no source but keeps its signer."""
    files = files_of(place)
    digest = digest_of(files)
    before = read_lock_file(note_of(place)).skills.get(name)
    if before is None:
        return Locked(HERE, digest, digest, files)
    if before.files == files:
        return before
    return structs.replace(before, source=HERE, resolved=digest, digest=digest, files=files)


def _keep(source: Source, shelf: Shelf, arrival: Arrival) -> None:
    """Keep what was installed in the cache: an archive as it is, anything else skill by skill."""
    if source.pack is not None and source.resolved:
        shelf.store.keep_pack(source.pack, source.resolved, source.signature)
    else:
        shelf.store.keep_skill(shelf.root / arrival.staged.name, arrival.change.digest)
