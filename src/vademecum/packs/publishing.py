"""Skills → a folder that any web server can hand out, with the lists that installers look for."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused
from vademecum.files import read_capped, write_atomic
from vademecum.packs.packing import PackedSkill, bare_bytes
from vademecum.packs.sites import SCHEMA, WELL_KNOWN, WELL_KNOWN_BEFORE
from vademecum.skill.skill import MANIFEST as SKILL_FILE

MAX_LISTING_BYTES = 16 * 1024 * 1024
_ARCHIVE = re.compile(r"(?P<name>.+)-[0-9a-f]{12}\.zip\Z")


class Published(Struct, frozen=True):
    """One skill of a site."""

    name: str
    type: str
    description: str
    url: str
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As the list has it."""
        return structs.asdict(self)


def publish(skills: Iterable[tuple[PackedSkill, str]], folder: Path) -> list[Published]:
    """Write skills, each with its description, and both lists: these last, so that they are never ahead."""
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
        data, kind, url = (skill.place / SKILL_FILE).read_bytes(), "skill-md", f"{skill.name}/{SKILL_FILE}"
    else:
        data, kind, url = b"".join(bare_bytes(skill)), "archive", ""
    digest = hashlib.sha256(data).hexdigest()
    # Named by its content: whoever read the old list still finds what it says.
    url = url or f"{skill.name}-{digest[:12]}.zip"
    write_atomic(place / url, data)
    return Published(skill.name, kind, description, url, f"sha256:{digest}")


def _document_first(skill: PackedSkill) -> list[str]:
    return [SKILL_FILE, *(file.path for file in skill.files if file.path != SKILL_FILE)]


def _copy(source: Path, target: Path, *, executable: bool) -> None:
    write_atomic(target, source.read_bytes(), mode=0o755 if executable else 0o644)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())


def _offered_in(listing: Path) -> set[str]:
    """What the list that is there offers: whoever read it may still come for it."""
    try:
        skills = json.loads(read_capped(listing, cap=MAX_LISTING_BYTES))["skills"]
        return {str(skill["url"]) for skill in skills}
    except (OSError, FileRefused, ValueError, KeyError, TypeError):
        return set()


def _sweep(newer: Path, older: Path, offered: set[str], names: set[str]) -> None:
    """Remove what neither this list nor the one before it offers."""
    documents = {url.partition("/")[0] for url in offered if url.endswith(f"/{SKILL_FILE}")}
    for entry in newer.iterdir():
        if entry.is_file() and _ARCHIVE.match(entry.name) and entry.name not in offered:
            entry.unlink()
        elif entry.is_dir() and (entry / SKILL_FILE).is_file() and entry.name not in documents:
            shutil.rmtree(entry)
    for entry in older.iterdir():
        if entry.is_dir() and (entry / SKILL_FILE).is_file() and entry.name not in names:
            shutil.rmtree(entry)
