"""A root that skills are installed in, with what an installation there goes by."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from vademecum.errors import PackRefused
from vademecum.nearest import meant, nearest
from vademecum.packs.content import strays_in
from vademecum.packs.installed import installed_path, installed_text, read_installed
from vademecum.packs.keys import Trusted
from vademecum.packs.lock import Locked, lock_path, read_lock
from vademecum.packs.npm_lock import npm_lock_path, npm_lock_text
from vademecum.packs.store import Store
from vademecum.packs.transaction import RootChange, changing, is_plain_name
from vademecum.registry.roots import needs_recovery
from vademecum.skill.skill import MANIFEST as SKILL_FILE


class Shelf(Struct, frozen=True):
    """A root, the keys that are trusted, packs from before, and names that others could be taken for."""

    root: Path
    trusted: Trusted = Trusted()
    store: Store = Store(None)
    known: tuple[str, ...] = ()
    durable: bool = True

    @property
    def base(self) -> Path:
        """The directory that relative sources in the lock start from."""
        return self.root.parent.parent

    def place(self, name: str) -> Path:
        """Where a skill of that name lies, which must be there."""
        if not is_plain_name(name) or not (self.root / name / SKILL_FILE).is_file():
            hint = meant(nearest(name, self.names()), otherwise="vade roots shows where skills are.")
            raise PackRefused(f"There is no skill {name!r} in {self.root}: {hint}", code="not-installed")
        return self.root / name

    def names(self) -> list[str]:
        """The skills that are there, by the names of their directories."""
        try:
            listed = sorted(os.listdir(self.root))
        except OSError:
            return []
        return [name for name in listed if is_plain_name(name) and (self.root / name / SKILL_FILE).is_file()]

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """A directory to look at skills in, for those who change nothing."""
        with tempfile.TemporaryDirectory(prefix="vade-") as place:
            yield Path(place, "aside")

    @contextmanager
    def changing(self) -> Iterator[ShelfChange]:
        """Change the root, alone, and whole or not at all."""
        try:
            with changing(self.root, durable=self.durable) as change:
                yield ShelfChange(self, change)
        except OSError as error:
            begun = needs_recovery(self.root)
            outcome = "the next command finishes it" if begun else "nothing was changed"
            raise PackRefused(
                f"{self.root} could not be changed ({error.strerror or error}): {outcome}."
            ) from error


def note_of(kept: Path) -> Path:
    """The file with what the lock said of a skill in the trash."""
    return kept.with_name(f"{kept.name}.lock.json")


class ShelfChange:
    """One change: skills that come and go, and the files that remember them."""

    def __init__(self, shelf: Shelf, change: RootChange) -> None:
        self._root = shelf.root
        self._change = change
        self.lock = read_lock(shelf.root)
        self.staging = change.staging
        self._came: dict[str, tuple[Locked, Path]] = {}
        self._went: set[str] = set()
        self._notes: dict[Path, str] = {}

    def put(self, name: str, locked: Locked, staged: Path, *, keep_old: bool) -> None:
        """Put a staged skill in its place, and into the lock; what is nowhere else is kept in any case."""
        staged.rename(self.staging / name)
        keep = keep_old or self._holds_more(name)
        self._change.put(name, keep_old=keep)
        self._note(name, keep=keep)
        self.remember(name, locked, place=self.staging / name)

    def _holds_more(self, name: str) -> bool:
        """Whether something lies beside the files of a skill, such as evals, or a link is in its place."""
        place = self._root / name
        locked = self.lock.skills.get(name)
        known = () if locked is None else locked.files
        return os.path.islink(place) or (place.is_dir() and bool(strays_in(place, known)))

    def remember(self, name: str, locked: Locked, *, place: Path | None = None) -> None:
        """Put a skill into the lock that is, or will be, in its place."""
        self.lock = self.lock.with_skill(name, locked)
        self._came[name] = (locked, place or self._root / name)

    def forget(self, name: str) -> None:
        """Take a skill out of the lock."""
        self._went.add(name)
        self.lock = self.lock.without(name)

    def take_away(self, name: str, *, keep: bool) -> None:
        """Take a skill out of its place, and out of the lock."""
        self._change.take_away(name, keep=keep)
        self._note(name, keep=keep)
        self.forget(name)

    def _note(self, name: str, *, keep: bool) -> None:
        """What the lock said of a skill is kept beside it, for the day it comes back."""
        if keep and name in self.lock.skills:
            self._notes[note_of(self._change.kept(name))] = self.lock.only(name).to_text()

    def commit(self, *, npm: bool = False) -> None:
        """Let all of it happen; a lock of the npm tool is kept in step where there is one, or made."""
        installed = read_installed(self._root)
        kept = {name: digest for name, digest in installed.items() if name not in self._went}
        kept |= {name: locked.digest for name, (locked, _) in self._came.items() if not locked.is_kept_here}
        files = {
            installed_path(self._root): installed_text(kept),
            lock_path(self._root): self.lock.to_text(),
            **self._notes,
        }
        other = npm_lock_path(self._root)
        if npm or other.is_file():
            files[other] = npm_lock_text(other, self._came, removed=self._went)
        self._change.commit(files)
