"""Skills → a pack with the same bytes on any machine, or a folder for any web server."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused
from vademecum.files import read_capped, write_atomic
from vademecum.packs.content import SkillFile, digest_of
from vademecum.packs.sources.web import SCHEMA, WELL_KNOWN, WELL_KNOWN_BEFORE
from vademecum.skill.skill import MANIFEST as SKILL_FILE

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE, _EXECUTABLE = 0o100644, 0o100755
MAX_LISTING_BYTES = 16 * 1024 * 1024
_ARTIFACT = re.compile(r".+-[0-9a-f]{12}\.(?:zip|md)\Z")


class PackedSkill(Struct, frozen=True):
    """A skill that is packed: its name and version, its directory and its files."""

    name: str
    version: str | None
    place: Path
    files: tuple[SkillFile, ...]


def manifest_of(skills: list[PackedSkill]) -> dict[str, Any]:
    """Return what a pack says about itself."""
    return {
        "format_version": FORMAT_VERSION,
        "skills": [
            {
                "name": skill.name,
                "version": skill.version,
                "directory": skill.name,
                "digest": digest_of(skill.files),
                "files": [file.to_json() for file in skill.files],
            }
            for skill in sorted(skills, key=lambda skill: skill.name)
        ],
    }


def pack_bytes(skills: list[PackedSkill]) -> Iterator[bytes]:
    """Yield a zip of skills, each in a folder of its name, with a manifest of all files."""
    manifest = json.dumps(manifest_of(skills), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    files = [
        (f"{skill.name}/{file.path}", skill.place / file.path, file.executable)
        for skill in sorted(skills, key=lambda skill: skill.name)
        for file in skill.files
    ]
    return _zipped(files, manifest=manifest.encode())


def bare_bytes(skill: PackedSkill) -> Iterator[bytes]:
    """Yield a zip of one skill with its document at the top, as sites offer them."""
    return _zipped((file.path, skill.place / file.path, file.executable) for file in skill.files)


def _zipped(files: Iterable[tuple[str, Path, bool]], *, manifest: bytes | None = None) -> Iterator[bytes]:
    buffer = _Pieces()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        if manifest is not None:
            archive.writestr(_info(MANIFEST, executable=False), manifest)
        for name, path, executable in files:
            archive.writestr(_info(name, executable=executable), path.read_bytes())
            yield from buffer.taken()
    yield from buffer.taken()


def _info(name: str, *, executable: bool) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = (_EXECUTABLE if executable else _FILE) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


class _Pieces(io.RawIOBase):
    """A file for `zipfile` whose content is passed on piece by piece."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._place = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._written.append(piece)
        self._place += len(piece)
        return len(piece)

    def taken(self) -> list[bytes]:
        found, self._written = self._written, []
        return found


class Published(Struct, frozen=True):
    """One skill of a site."""

    name: str
    type: str
    description: str
    url: str
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return it as the list has it."""
        return structs.asdict(self)


def publish(skills: Iterable[tuple[PackedSkill, str]], folder: Path) -> list[Published]:
    """Write skills with their descriptions, and then both lists, which so are never ahead of the files."""
    ordered = sorted(skills, key=lambda pair: pair[0].name)
    newer, older = folder / WELL_KNOWN, folder / WELL_KNOWN_BEFORE
    before_this = _offered_in(newer)
    published = [_published(skill, description, newer.parent) for skill, description in ordered]
    for skill, _ in ordered:
        for file in skill.files:
            _copy(skill.place / file.path, older.parent / skill.name / file.path, executable=file.executable)
    before = [
        {"name": skill.name, "description": description, "files": _document_first(skill)}
        for skill, description in ordered
    ]
    _write_json(older, {"skills": before})
    _write_json(newer, {"$schema": SCHEMA, "skills": [skill.to_json() for skill in published]})
    offered = {skill.url for skill in published} | before_this
    _sweep(newer.parent, older.parent, offered, {skill.name for skill in published})
    return published


def _published(skill: PackedSkill, description: str, place: Path) -> Published:
    if [file.path for file in skill.files] == [SKILL_FILE]:
        data, kind, suffix = (skill.place / SKILL_FILE).read_bytes(), "skill-md", "md"
    else:
        data, kind, suffix = b"".join(bare_bytes(skill)), "archive", "zip"
    digest = hashlib.sha256(data).hexdigest()
    # Named by its content: readers of the old list, and locks, still find what it says.
    url = f"{skill.name}-{digest[:12]}.{suffix}"
    write_atomic(place / url, data)
    return Published(skill.name, kind, description, url, f"sha256:{digest}")


def _document_first(skill: PackedSkill) -> list[str]:
    return [SKILL_FILE, *(file.path for file in skill.files if file.path != SKILL_FILE)]


def _copy(source: Path, target: Path, *, executable: bool) -> None:
    write_atomic(target, source.read_bytes(), mode=0o755 if executable else 0o644)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())


def _offered_in(listing: Path) -> set[str]:
    """Return what the present list offers: its readers may still fetch it."""
    try:
        skills = json.loads(read_capped(listing, cap=MAX_LISTING_BYTES))["skills"]
        return {str(skill["url"]) for skill in skills}
    except (OSError, FileRefused, ValueError, KeyError, TypeError):
        return set()


def _sweep(newer: Path, older: Path, offered: set[str], names: set[str]) -> None:
    """Remove what neither this list nor the one before it offers."""
    for entry in newer.iterdir():
        if entry.is_file() and _ARTIFACT.match(entry.name) and entry.name not in offered:
            entry.unlink()
    for entry in older.iterdir():
        if entry.is_dir() and (entry / SKILL_FILE).is_file() and entry.name not in names:
            shutil.rmtree(entry)
