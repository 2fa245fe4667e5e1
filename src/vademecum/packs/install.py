"""Install skills together or not at all; uninstall and restore them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs

from vademecum.errors import PackRefused
from vademecum.nearest import meant, nearest
from vademecum.packs.content import files_of
from vademecum.packs.incoming import IncomingSkill, Inspection, Options, SkillChange, refuse_edits
from vademecum.packs.install_root import InstallRoot, note_of
from vademecum.packs.lock import is_skill_path, locked_here, read_lock, read_lock_file
from vademecum.packs.sources.archive import Progress, silently
from vademecum.packs.sources.fetching import Source
from vademecum.packs.transaction import MOMENT, MOMENT_CHARS, TRASH


class Installed(Struct, frozen=True):
    """The result of an installation or a dry run: changed skills, and directories that were left out."""

    changes: list[SkillChange]
    left_out: list[str]


def install(
    sources: Source | Sequence[Source], where: InstallRoot, options: Options, *, progress: Progress = silently
) -> Installed:
    """Install the skills of all these sources, all or none."""
    listed = [sources] if isinstance(sources, Source) else list(sources)
    if options.dry_run:
        with tempfile.TemporaryDirectory(prefix="vade-") as aside:
            inspection = Inspection(where, options, read_lock(where.root), Path(aside, "aside"))
            found, left_out = _inspected(listed, inspection, progress)
    else:
        with where.changing() as change:
            inspection = Inspection(where, options, change.lock, change.staging)
            found, left_out = _inspected(listed, inspection, progress)
            for name, skill in found.items():
                if skill.change.action == "same":
                    change.remember(name, skill.locked)
                else:
                    change.put(name, skill.locked, skill.place, keep_old=options.force)
            change.commit()
    return Installed([skill.change for skill in found.values()], left_out)


def _inspected(
    sources: list[Source], inspection: Inspection, progress: Progress
) -> tuple[dict[str, IncomingSkill], list[str]]:
    """Inspect all skills of all sources, each source in a directory of its own."""
    found: dict[str, IncomingSkill] = {}
    left_out: list[str] = []
    for number, source in enumerate(sources):
        inside = structs.replace(inspection, staging=inspection.staging / f".{number}")
        skills, remarks = inside.inspect(source, progress)
        left_out += remarks
        for skill in skills:
            name = skill.change.name
            if name in found:
                raise PackRefused(f"Two of these sources have a skill {name!r}: nothing was installed.")
            found[name] = skill
    return found, left_out


def uninstall(
    names: Sequence[str], where: InstallRoot, *, purge: bool = False, force: bool = False
) -> list[str]:
    """Take skills out of a root: to the trash, or away."""
    with where.changing() as change:
        for name in names:
            where.place(name)
            if not force:
                refuse_edits(name, where.root, change.lock)
            change.take_away(name, keep=not purge)
        change.commit()
    return list(names)


def restore(name: str, where: InstallRoot) -> Path:
    """Bring back the version of a skill that was put into the trash last, with all its files."""
    kept = _kept_in(where.root / TRASH / name) if is_skill_path(name) else []
    if not kept:
        names = kept_names(where.root)
        hint = meant(nearest(name, names), otherwise="only what was uninstalled or replaced is.")
        raise PackRefused(f"Nothing called {name!r} is kept in {where.root / TRASH}: {hint}", code="missing")
    files = files_of(kept[-1], every=True)
    locked = read_lock_file(note_of(kept[-1])).skills.get(name)
    if locked is None or locked.files != files:  # edited since: it is local
        locked = locked_here(files, locked)
    with where.changing() as change:
        copy = change.staging / ".back" / name
        shutil.copytree(kept[-1], copy, symlinks=True)
        change.put(name, locked, copy, keep_old=True)
        change.commit()
    shutil.rmtree(kept[-1], ignore_errors=True)
    note_of(kept[-1]).unlink(missing_ok=True)
    return kept[-1]


def kept_names(root: Path) -> list[str]:
    """Return the names of which something is in the trash."""
    try:
        names = sorted(os.listdir(root / TRASH))
    except OSError:
        return []
    return [name for name in names if is_skill_path(name) and _kept_in(root / TRASH / name)]


def _kept_in(trash: Path) -> list[Path]:
    """Return what is in the trash of one skill, the oldest first."""
    there = trash.iterdir() if trash.is_dir() else ()
    kept = (place for place in there if MOMENT.match(place.name[:MOMENT_CHARS]))
    return sorted(place for place in kept if place.is_dir() and not place.is_symlink())
