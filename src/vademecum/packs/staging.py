"""The files of a source → skills in a directory aside, each unpacked, checked and named as it says."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.archive import Entry, Opened, pieces_of
from vademecum.packs.content import MAX_FILES, MAX_SKILL_BYTES, SkillFile, is_junk
from vademecum.packs.names import check_name, check_together, refused
from vademecum.packs.packing import FORMAT_VERSION, MANIFEST
from vademecum.packs.places import (
    MARKETPLACE,
    MAX_MARKETPLACE_BYTES,
    Marketplace,
    place_of,
    read_marketplace,
    skill_places,
)
from vademecum.skill.document import parse_document
from vademecum.skill.skill import MANIFEST as SKILL_FILE
from vademecum.skill.skill import Document

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 10 * 1024 * 1024

Progress = Callable[[int, int], None]


class Staged(Struct, frozen=True):
    """A skill that was unpacked aside; ``inside`` is its directory in the source.

    ``beyond_ascii`` are the files in which something could hide.
    """

    name: str
    document: Document
    files: tuple[SkillFile, ...]
    inside: str
    beyond_ascii: tuple[str, ...]


def silently(done: int, total: int) -> None:
    """Show no progress."""


def stage(opened: Opened, staging: Path, *, label: str, progress: Progress = silently) -> list[Staged]:
    """Unpack every skill of an opened source into a directory of its name, and close the source."""
    try:
        return _staged(opened, staging, label, progress)
    finally:
        opened.close()


def _staged(opened: Opened, staging: Path, label: str, progress: Progress) -> list[Staged]:
    staging.mkdir(parents=True, exist_ok=True)
    places = skill_places((entry.name for entry in opened.entries), marketplace_of(opened))
    if not places:
        raise PackRefused(f"{label} has no {SKILL_FILE} in it, so it holds no skill.")
    manifest = _manifest_of(opened)
    by_place = _entries_of(opened, places, manifest=manifest is not None)
    total = sum(map(len, by_place.values()))
    done = 0
    staged: dict[str, Staged] = {}
    for number, (place, entries) in enumerate(by_place.items()):
        target = staging / f".{number}"
        skill = _named(staging, target, _unpack_all(entries, target, place), place)
        if skill.name in staged:
            raise PackRefused(f"{label} has two skills called {skill.name!r}: nothing was installed.")
        staged[skill.name] = skill
        done += len(entries)
        progress(done, total)
    if manifest is not None:
        _check_manifest(manifest, staged.values())
    return list(staged.values())


def marketplace_of(opened: Opened) -> Marketplace | None:
    """The list of plugins that a source carries, if it does."""
    entry = next((entry for entry in opened.entries if entry.name == MARKETPLACE), None)
    return None if entry is None else read_marketplace(_read(entry, MAX_MARKETPLACE_BYTES), entry.name)


def _entries_of(opened: Opened, places: list[str], *, manifest: bool) -> dict[str, list[Entry]]:
    """The files of each skill, without what nobody ships; any that it may not hold is refused."""
    known = set(places)
    found: dict[str, list[Entry]] = {place: [] for place in places}
    for entry in opened.entries:
        place = place_of(entry.name, known)
        if place is None or (place == "" and entry.name == MANIFEST and manifest):
            continue
        if is_junk(_within(entry.name, place)):
            continue
        if not opened.packed:
            check_name(entry.name)
        if entry.objection:
            raise refused(entry.name, entry.objection)
        found[place].append(entry)
    for entries in found.values():
        if not opened.packed:
            check_together([entry.name for entry in entries], [])
        if len(entries) > MAX_FILES or sum(entry.size for entry in entries) > MAX_SKILL_BYTES:
            raise refused(entries[0].name, "belongs to a skill that is too large")
    return found


def _within(name: str, place: str) -> str:
    return name[len(place) + 1 :] if place else name


def _unpack_all(entries: list[Entry], target: Path, place: str) -> list[tuple[SkillFile, bool]]:
    made: set[str] = set()
    files = []
    for entry in entries:
        relative = _within(entry.name, place)
        parent = relative.rpartition("/")[0]
        if parent not in made:
            os.makedirs(f"{target}/{parent}", exist_ok=True)
            made.add(parent)
        files.append(_unpack(entry, f"{target}/{relative}", relative))
    return sorted(files, key=lambda found: found[0].path.encode())


def _unpack(entry: Entry, target: str, relative: str) -> tuple[SkillFile, bool]:
    """Write one file; says what it is, and whether it is plain ASCII."""
    digest, plain = hashlib.sha256(), True
    mode = 0o755 if entry.executable else 0o644
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        for piece in pieces_of(entry):
            digest.update(piece)
            plain = plain and piece.isascii()
            out.write(piece)
    return SkillFile(relative, digest.hexdigest(), entry.size, entry.executable), plain


def _named(staging: Path, target: Path, files: list[tuple[SkillFile, bool]], place: str) -> Staged:
    """Give an unpacked skill the directory of its own name; it must be as valid as the index wants it."""
    with open(target / SKILL_FILE, "rb") as file:
        data = file.read(MAX_DOCUMENT_BYTES)
    document = parse_document(data, directory=place.rpartition("/")[2])
    if not document.valid:
        problem = next(problem for problem in document.problems if problem.severity == "error")
        line = f"line {problem.line}: " if problem.line else ""
        where = f"{place}/{SKILL_FILE}" if place else SKILL_FILE
        raise PackRefused(f"{where} is not valid ({line}{problem.message}): nothing was installed.")
    check_name(document.name)
    if not (staging / document.name).exists():
        os.rename(target, staging / document.name)
    beyond = tuple(file.path for file, plain in files if not plain)
    return Staged(document.name, document, tuple(file for file, _ in files), place, beyond)


def _manifest_of(opened: Opened) -> dict[str, Any] | None:
    """What a pack says about itself; another file of that name is none of it."""
    entry = next((entry for entry in opened.entries if entry.name == MANIFEST and opened.packed), None)
    if entry is None:
        return None
    try:
        document = json.loads(_read(entry, MAX_MANIFEST_BYTES))
        if "skills" not in document and "format_version" not in document:
            return None
        version = document.get("format_version", FORMAT_VERSION)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise refused(MANIFEST, f"cannot be understood ({error})") from error
    if version != FORMAT_VERSION:
        raise refused(MANIFEST, f"has version {version!r}, which is not known here")
    found: dict[str, Any] = document
    return found


def _check_manifest(document: dict[str, Any], staged: Iterable[Staged]) -> None:
    """A manifest must say of every file what it is, and of no other."""
    try:
        said = {
            f"{skill['directory']}/{file['path']}": (file["sha256"], file["size"], bool(file["executable"]))
            for skill in document["skills"]
            for file in skill["files"]
            if not is_junk(file["path"])
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise refused(MANIFEST, f"cannot be understood ({error})") from error
    found = {
        f"{skill.inside}/{file.path}": (file.sha256, file.size, file.executable)
        for skill in staged
        for file in skill.files
    }
    wrong = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    if wrong:
        raise IntegrityFailed(
            f"The pack's manifest does not match what is in it ({wrong[0]!r}): nothing was installed."
        )


def _read(entry: Entry, cap: int) -> bytes:
    if entry.objection or entry.size > cap:
        raise refused(entry.name, entry.objection or "is too large")
    return b"".join(pieces_of(entry))
