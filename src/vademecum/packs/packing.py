"""Skills → a pack: a zip that is the same bytes for the same files, on any machine."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.packs.content import SkillFile, digest_of

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE, _EXECUTABLE = 0o100644, 0o100755


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
