"""Pack skills into a zip or a folder for the web, and unpack sources.

The same skills give the same bytes on any machine. Unpacked skills are checked as strictly as in the index.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from vademecum.errors import IntegrityFailed, PackRefused
from vademecum.files import write_atomic
from vademecum.packs.content import MAX_FILES, MAX_SKILL_BYTES, SkillFile, digest_of, files_of, is_junk
from vademecum.packs.lock import json_text
from vademecum.packs.sources.archive import Opened, Progress, SourceFile, pieces_of, silently
from vademecum.packs.sources.entry_names import (
    NameCheck,
    check_name,
    document_in,
    left_out,
    objection,
    place_of,
    refused,
    skill_places,
)
from vademecum.packs.sources.fetching import Source
from vademecum.packs.sources.web import MAX_DOCUMENT_BYTES, SCHEMA, WELL_KNOWN, Offer
from vademecum.skill.document import parse_document
from vademecum.skill.skill import MANIFEST as SKILL_FILE
from vademecum.skill.skill import Document, Skill

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024

_EPOCH = (1980, 1, 1, 0, 0, 0)


class ListedSkill(Struct, frozen=True):
    """One skill of a manifest; fields that unpacking does not need are optional."""

    directory: str
    files: tuple[SkillFile, ...]
    name: str = ""
    version: str | None = None
    digest: str = ""


class Manifest(Struct, frozen=True):
    """The manifest in a pack. A file of that name with neither field is not one."""

    skills: tuple[ListedSkill, ...] | None = None
    format_version: int | None = None


class PackedSkill(Struct, frozen=True):
    """A skill that is packed: its name and version, its directory, its files and its description."""

    name: str
    version: str | None
    place: Path
    files: tuple[SkillFile, ...]
    description: str = ""


def packed(directory: Path, about: Document | Skill) -> PackedSkill:
    """Return a directory as a skill; refuse files that could not be installed elsewhere."""
    files = files_of(directory)
    for file in files:
        reason = objection(file.path)
        if reason is not None:
            raise PackRefused(f"{file.path!r} in {directory} {reason}: rename it.")
    return PackedSkill(about.name, about.meta.version, directory, files, about.description)


def pack_of(skills: Iterable[PackedSkill], progress: Progress = silently) -> bytes:
    """Return a zip of skills, each in a folder of its name, with a manifest of all files."""
    ordered = sorted(skills, key=lambda skill: skill.name)
    listed = [
        ListedSkill(skill.name, skill.files, skill.name, skill.version, digest_of(skill.files))
        for skill in ordered
    ]
    manifest = json_text(Manifest(tuple(listed), FORMAT_VERSION))
    return _zipped({f"{skill.name}/": skill for skill in ordered}, progress, manifest=manifest)


def _zipped(skills: dict[str, PackedSkill], progress: Progress = silently, *, manifest: str = "") -> bytes:
    """Return a zip of skills, the files of each below its key."""
    out = io.BytesIO()
    total, done = sum(file.size for skill in skills.values() for file in skill.files), 0
    with zipfile.ZipFile(out, "w") as archive:
        if manifest:
            _add(archive, MANIFEST, manifest.encode())
        for prefix, skill in skills.items():
            for file in skill.files:
                data = (skill.place / file.path).read_bytes()
                _add(archive, f"{prefix}{file.path}", data, executable=file.executable)
                done += file.size
                progress(done, total)
    return out.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes, *, executable: bool = False) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data, compresslevel=6)


def publish(skills: Iterable[PackedSkill], folder: Path) -> list[Offer]:
    """Write skills, and then the list, so that it never names missing files."""
    listing = folder / WELL_KNOWN
    ordered = sorted(skills, key=lambda skill: skill.name)
    published = [_published(skill, listing.parent) for skill in ordered]
    write_atomic(listing, json_text({"$schema": SCHEMA, "skills": published}).encode())
    return published


def _published(skill: PackedSkill, place: Path) -> Offer:
    if [file.path for file in skill.files] == [SKILL_FILE]:
        data, kind, suffix = (skill.place / SKILL_FILE).read_bytes(), "skill-md", "md"
    else:
        # Its document is at the top.
        data, kind, suffix = _zipped({"": skill}), "archive", "zip"
    digest = hashlib.sha256(data).hexdigest()
    # Named by its content, so that older lists and locks still find their files.
    url = f"{skill.name}-{digest[:12]}.{suffix}"
    write_atomic(place / url, data)
    return Offer(skill.name, kind, skill.description, url, f"sha256:{digest}")


class Staged(Struct, frozen=True):
    """An unpacked skill in the staging directory; ``inside`` is its directory in the source."""

    name: str
    document: Document
    files: tuple[SkillFile, ...]
    inside: str

    @property
    def files_in_source(self) -> list[SkillFile]:
        """Return the files with their paths in the source."""
        return [structs.replace(file, path=os.path.join(self.inside, file.path)) for file in self.files]


def unpack(
    source: Source, staging: Path, *, only: Collection[str] = (), progress: Progress = silently
) -> tuple[list[Staged], list[str]]:
    """Unpack every skill of a source into a directory of its name.

    Return the skills, and the directories without one. A pack with skills at its top is refused if one of
    its directories is not a skill, unless ``only`` names the wanted skills.
    """
    with source.open() as opened:
        places = skill_places(file.name for file in opened.files)
        if not places:
            raise PackRefused(f"{source.name} contains no {SKILL_FILE}, so there is no skill in it.")
        parents = {file.name.rpartition("/")[0] for file in opened.files}
        without = left_out({*opened.directories, *parents}, places)
        if without and opened.packed and not only and all(place and "/" not in place for place in places):
            raise PackRefused(
                f"{source.name} has a directory without {SKILL_FILE} ({', '.join(without[:5])}): nothing was "
                "installed. Correct the pack, or name the skills to install with --only."
            )
        staging.mkdir(parents=True, exist_ok=True)
        manifest = _manifest_of(opened)
        by_place = _files_by_place(opened, places, manifest=manifest is not None)
        staged: dict[str, Staged] = {}
        for number, (place, files) in enumerate(by_place.items()):
            target = f"{staging}/.{number}"
            skill = _named(staging, target, _write_all(files, target, place), place, source.name)
            if skill.name in staged:
                raise PackRefused(
                    f"{source.name} has two skills called {skill.name!r}: nothing was installed."
                )
            staged[skill.name] = skill
            progress(number + 1, len(by_place))
        if manifest is not None:
            _check_manifest(manifest, staged.values())
    return list(staged.values()), without


def _files_by_place(opened: Opened, places: list[str], *, manifest: bool) -> dict[str, list[SourceFile]]:
    """Return the files of each skill to install; refuse a file that must not be in a skill."""
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
    written = []
    for file in files:
        relative = file.name.removeprefix(f"{place}/")
        os.makedirs(os.path.dirname(f"{target}/{relative}"), exist_ok=True)
        digest = hashlib.sha256()
        mode = 0o755 if file.executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(f"{target}/{relative}", flags, mode), "wb") as out:
            for piece in pieces_of(file):
                digest.update(piece)
                out.write(piece)
        written.append(SkillFile(relative, digest.hexdigest(), file.size, file.executable))
    return tuple(sorted(written))


def _named(staging: Path, target: str, files: tuple[SkillFile, ...], place: str, source: str) -> Staged:
    """Rename an unpacked skill to its own name; it must be valid."""
    file = document_in(found.path for found in files) or SKILL_FILE
    with open(f"{target}/{file}", "rb") as opened:
        document = parse_document(opened.read(MAX_DOCUMENT_BYTES), directory=place.rpartition("/")[2])
    if not document.valid:
        problem = next(problem for problem in document.problems if problem.severity == "error")
        line = f"line {problem.line}: " if problem.line else ""
        where = f"{os.path.join(place, file)} in {source}"
        raise PackRefused(f"{where} is not valid ({line}{problem.message}): nothing was installed.")
    check_name(document.name)
    if not os.path.lexists(f"{staging}/{document.name}"):
        os.rename(target, f"{staging}/{document.name}")
    return Staged(document.name, document, files, place)


def _manifest_of(opened: Opened) -> Manifest | None:
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
    """Raise ``IntegrityFailed`` if the manifest does not list exactly the unpacked files."""
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
