"""Skills → a pack with the same bytes on any machine, or a folder for any web server."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from msgspec import Struct, structs

from vademecum.errors import PackRefused
from vademecum.files import write_atomic
from vademecum.packs.content import SkillFile, digest_of, files_of
from vademecum.packs.sources.archive import Progress, silently
from vademecum.packs.sources.entry_names import objection
from vademecum.packs.sources.web import SCHEMA, WELL_KNOWN
from vademecum.skill.skill import MANIFEST as SKILL_FILE
from vademecum.skill.skill import Document, Skill

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_EPOCH = (1980, 1, 1, 0, 0, 0)


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


def write_pack(skills: list[PackedSkill], out: IO[bytes], progress: Progress = silently) -> None:
    """Write a zip of skills, each in a folder of its name, with a manifest of all files."""
    ordered = sorted(skills, key=lambda skill: skill.name)
    listed = [
        {
            "name": skill.name,
            "version": skill.version,
            "directory": skill.name,
            "digest": digest_of(skill.files),
            "files": [structs.asdict(file) for file in skill.files],
        }
        for skill in ordered
    ]
    document = {"format_version": FORMAT_VERSION, "skills": listed}
    manifest = json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    total, done = sum(file.size for skill in skills for file in skill.files), 0
    with zipfile.ZipFile(out, "w") as archive:
        _add(archive, MANIFEST, manifest.encode())
        for skill in ordered:
            for file in skill.files:
                data = (skill.place / file.path).read_bytes()
                _add(archive, f"{skill.name}/{file.path}", data, executable=file.executable)
                done += file.size
                progress(done, total)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, *, executable: bool = False) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data, compresslevel=6)


class Published(Struct, frozen=True):
    """One skill of a site."""

    name: str
    type: str
    description: str
    url: str
    digest: str


def publish(skills: Iterable[PackedSkill], folder: Path) -> list[Published]:
    """Write skills, and then the list, which so is never ahead of the files."""
    listing = folder / WELL_KNOWN
    ordered = sorted(skills, key=lambda skill: skill.name)
    published = [_published(skill, listing.parent) for skill in ordered]
    document = {"$schema": SCHEMA, "skills": [structs.asdict(skill) for skill in published]}
    write_atomic(listing, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
    return published


def _published(skill: PackedSkill, place: Path) -> Published:
    if [file.path for file in skill.files] == [SKILL_FILE]:
        data, kind, suffix = (skill.place / SKILL_FILE).read_bytes(), "skill-md", "md"
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:  # its document is at the top
            for file in skill.files:
                content = (skill.place / file.path).read_bytes()
                _add(archive, file.path, content, executable=file.executable)
        data, kind, suffix = out.getvalue(), "archive", "zip"
    digest = hashlib.sha256(data).hexdigest()
    # Named by its content: readers of older lists, and locks, still find what they say.
    url = f"{skill.name}-{digest[:12]}.{suffix}"
    write_atomic(place / url, data)
    return Published(skill.name, kind, skill.description, url, f"sha256:{digest}")
