"""Skills come to a shelf together or not at all; and the way back out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from vademecum.errors import PackRefused
from vademecum.packs.arrivals import Arrival, Change, Options, Reception, is_edited, refuse_edits
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.fetching import Source, local_source
from vademecum.packs.lock import HERE, read_lock_file
from vademecum.packs.shelf import Shelf, note_of
from vademecum.packs.staging import Progress, silently
from vademecum.packs.transaction import TRASH, is_plain_name


def install(source: Source, shelf: Shelf, options: Options, *, progress: Progress = silently) -> list[Change]:
    """Install every skill of a source, all or none; returns what changes, or would."""
    with shelf.changing() as change:
        reception = Reception(shelf, options, change.lock, change.staging)
        found = reception.arrivals(source, progress)
        if options.dry_run:
            return [arrival.change for arrival in found]
        for arrival in found:
            name, locked = arrival.staged.name, arrival.locked(source)
            if arrival.change.action == "same":
                change.remember(name, locked)
            else:
                edited = options.force and is_edited(name, shelf.root, change.lock)
                change.put(name, locked, keep_old=options.backup or edited)
        change.commit()
    _keep(source, shelf, found)
    return [arrival.change for arrival in found]


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
    """Bring back the version of a skill that was put into the trash last."""
    trash = shelf.root / TRASH / name
    there = trash.iterdir() if is_plain_name(name) and trash.is_dir() else ()
    kept = sorted(place for place in there if place.is_dir() and not place.is_symlink())
    if not kept:
        raise PackRefused(f"Nothing called {name!r} is kept in {shelf.root / TRASH}.", code="missing")
    options = Options(force=True, allow_unsafe=True, backup=True)
    install(_from_trash(kept[-1], name), shelf, options)
    shutil.rmtree(kept[-1])
    note_of(kept[-1]).unlink(missing_ok=True)
    return kept[-1]


def _from_trash(place: Path, name: str) -> Source:
    """A skill in the trash, with the source it came from unless it was edited since."""
    source = local_source(place, HERE)
    locked = read_lock_file(note_of(place)).skills.get(name)
    if locked is not None and digest_of(files_of(place)) == locked.digest:
        return structs.replace(source, name=locked.source, resolved=locked.resolved)
    return source


def _keep(source: Source, shelf: Shelf, found: list[Arrival]) -> None:
    """Keep what was installed in the cache: an archive as it is, anything else skill by skill."""
    if source.pack is not None and source.resolved:
        shelf.store.keep_pack(source.pack, source.resolved)
        return
    for arrival in found:
        shelf.store.keep_skill(shelf.root / arrival.staged.name, arrival.change.digest)
