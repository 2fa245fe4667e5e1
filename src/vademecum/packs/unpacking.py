"""The files of a source → skills in a directory aside, each unpacked, checked and named."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.packs.content import MAX_FILES, MAX_SKILL_BYTES, SkillFile, is_junk
from vademecum.packs.outgoing import FORMAT_VERSION, MANIFEST
from vademecum.packs.sources.archive import Opened, Progress, SourceFile, pieces_of, silently
from vademecum.packs.sources.entry_names import (
    NameCheck,
    check_name,
    document_in,
    left_out,
    place_of,
    refused,
    skill_places,
)
from vademecum.packs.sources.web import MAX_DOCUMENT_BYTES
from vademecum.skill.document import parse_document
from vademecum.skill.skill import MANIFEST as SKILL_FILE
from vademecum.skill.skill import Document

MAX_MANIFEST_BYTES = 64 * 1024 * 1024


class Staged(Struct, frozen=True):
    """A skill that was unpacked aside; ``inside`` is its directory in the source."""

    name: str
    document: Document
    files: tuple[SkillFile, ...]
    inside: str

    @property
    def files_in_source(self) -> list[SkillFile]:
        """Return the files with their paths in the source."""
        prefix = f"{self.inside}/" if self.inside else ""
        return [structs.replace(file, path=f"{prefix}{file.path}") for file in self.files]


class ListedSkill(Struct, frozen=True):
    """One skill of a manifest."""

    directory: str
    files: tuple[SkillFile, ...]


class Manifest(Struct, frozen=True):
    """What a pack says about itself; a skill may have a file of that name for itself, with neither field."""

    skills: tuple[ListedSkill, ...] | None = None
    format_version: int | None = None


def unpack(
    opened: Opened, staging: Path, *, label: str, only: Collection[str] = (), progress: Progress = silently
) -> tuple[list[Staged], list[str]]:
    """Unpack every skill of an opened source into a directory of its name, and close the source.

    Return the skills, and the directories in which there is none. A pack, which has skills right at its top,
    is refused if one of its directories is not a skill, unless the wanted skills are named in ``only``.
    """
    with contextlib.closing(opened):
        places = skill_places(file.name for file in opened.files)
        if not places:
            raise PackRefused(f"{label} contains no {SKILL_FILE}, so there is no skill in it.")
        parents = {file.name.rpartition("/")[0] for file in opened.files}
        without = left_out({*opened.directories, *parents}, places)
        if without and opened.packed and not only and all(place and "/" not in place for place in places):
            raise PackRefused(
                f"{label} has a directory without {SKILL_FILE} ({', '.join(without[:5])}): nothing was "
                "installed. Correct the pack, or name the skills to install with --only."
            )
        staging.mkdir(parents=True, exist_ok=True)
        manifest = _manifest_of(opened)
        by_place = _files_by_place(opened, places, manifest=manifest is not None)
        total, done = sum(map(len, by_place.values())), 0
        staged: dict[str, Staged] = {}
        for number, (place, files) in enumerate(by_place.items()):
            target = f"{staging}/.{number}"
            skill = _named(staging, target, _write_all(files, target, place), place)
            if skill.name in staged:
                raise PackRefused(f"{label} has two skills called {skill.name!r}: nothing was installed.")
            staged[skill.name] = skill
            done += len(files)
            progress(done, total)
        if manifest is not None:
            _check_manifest(manifest, staged.values())
    return list(staged.values()), without


def _files_by_place(opened: Opened, places: list[str], *, manifest: bool) -> dict[str, list[SourceFile]]:
    """Return the files of each skill that are installed; one that may not be in a skill is refused."""
    known = set(places)
    found: dict[str, list[SourceFile]] = {place: [] for place in places}
    checks = {place: NameCheck() for place in places}
    for file in opened.files:
        place = place_of(file.name, known)
        if place is None or (place == "" and file.name == MANIFEST and manifest):
            continue
        if is_junk(file.name.removeprefix(f"{place}/")):
            continue
        if not opened.packed:
            checks[place].file(file.name)
        if file.objection:
            raise refused(file.name, file.objection)
        found[place].append(file)
    for files in found.values():
        if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_SKILL_BYTES:
            raise refused(files[0].name, "belongs to a skill that is too large")
    return found


def _write_all(files: list[SourceFile], target: str, place: str) -> tuple[SkillFile, ...]:
    made: set[str] = set()
    written = []
    for file in files:
        relative = file.name.removeprefix(f"{place}/")
        parent = relative.rpartition("/")[0]
        if parent not in made:
            os.makedirs(f"{target}/{parent}", exist_ok=True)
            made.add(parent)
        digest = hashlib.sha256()
        mode = 0o755 if file.executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(f"{target}/{relative}", flags, mode), "wb") as out:
            for piece in pieces_of(file):
                digest.update(piece)
                out.write(piece)
        written.append(SkillFile(relative, digest.hexdigest(), file.size, file.executable))
    return tuple(sorted(written, key=lambda found: found.path.encode()))


def _named(staging: Path, target: str, files: tuple[SkillFile, ...], place: str) -> Staged:
    """Rename an unpacked skill to its own name; it must be as valid as the index requires."""
    file = document_in(found.path for found in files) or SKILL_FILE
    with open(f"{target}/{file}", "rb") as opened:
        document = parse_document(opened.read(MAX_DOCUMENT_BYTES), directory=place.rpartition("/")[2])
    if not document.valid:
        problem = next(problem for problem in document.problems if problem.severity == "error")
        line = f"line {problem.line}: " if problem.line else ""
        where = f"{place}/{file}" if place else file
        raise PackRefused(f"{where} is not valid ({line}{problem.message}): nothing was installed.")
    check_name(document.name)
    if not os.path.lexists(f"{staging}/{document.name}"):
        os.rename(target, f"{staging}/{document.name}")
    return Staged(document.name, document, files, place)


def _manifest_of(opened: Opened) -> Manifest | None:
    """Return what a pack says about itself, if it does."""
    file = next((file for file in opened.files if file.name == MANIFEST and opened.packed), None)
    if file is None:
        return None
    if file.size > MAX_MANIFEST_BYTES:
        raise refused(MANIFEST, "is too large")
    try:
        found = msgspec.json.decode(b"".join(pieces_of(file)), type=Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise refused(MANIFEST, f"cannot be understood ({error})") from error
    if found.format_version not in {None, FORMAT_VERSION}:
        raise refused(MANIFEST, f"has the unknown version {found.format_version!r}")
    return None if found == Manifest() else found


def _check_manifest(manifest: Manifest, staged: Iterable[Staged]) -> None:
    """Refuse a manifest that does not list exactly the files that are there."""
    said = {
        structs.replace(file, path=f"{skill.directory}/{file.path}")
        for skill in manifest.skills or ()
        for file in skill.files
        if not is_junk(file.path)
    }
    wrong = sorted(said ^ {file for skill in staged for file in skill.files_in_source})
    if wrong:
        raise IntegrityFailed(
            f"The pack's manifest does not match its content ({wrong[0].path!r}): nothing was installed."
        )
