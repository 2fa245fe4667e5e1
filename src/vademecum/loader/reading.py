"""A file of a skill → clean text and a report of how it was read."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from msgspec import Struct

from vademecum.errors import LoadRefused
from vademecum.files import read_up_to
from vademecum.paths import open_contained
from vademecum.skill.skill import Skill
from vademecum.skill.text import without_hidden

MAX_FILE_BYTES = 10 * 1024 * 1024


class LoadReport(Struct, frozen=True):
    """What was read and what of it was handed over; ``path`` is where the full text is."""

    path: str
    sha256: str
    bytes_read: int
    characters: int
    truncated: bool
    hidden_removed: int

    def to_json(self) -> dict[str, Any]:
        """The report as the commands print it."""
        return {
            "path": self.path,
            "sha256": self.sha256,
            "bytes_read": self.bytes_read,
            "characters": self.characters,
            "truncated": self.truncated,
            "hidden_removed": self.hidden_removed,
        }


class Loaded(Struct, frozen=True):
    """Text for a reader, and its report."""

    text: str
    report: LoadReport


class FileText(Struct, frozen=True):
    """A whole file as text: line ends normalised, hidden characters removed and counted."""

    path: str
    text: str
    sha256: str
    bytes_read: int
    hidden_removed: int

    def handed_over(self, text: str, *, truncated: bool = False) -> Loaded:
        """A part or a rendering of this file, with its report."""
        report = LoadReport(
            self.path, self.sha256, self.bytes_read, len(text), truncated, self.hidden_removed
        )
        return Loaded(text, report)


def read_text(skill: Skill, relative: str) -> FileText:
    """Read one file of a skill; refused when it leads out, is too large, or is no text."""
    data = read_bytes(skill, relative)
    if b"\0" in data:
        raise _refused(skill, relative, "not-text", f"is not text ({len(data):,} bytes)")
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(skill, relative, "not-text", "is not UTF-8 text") from error
    if "\r" in decoded:
        decoded = decoded.replace("\r\n", "\n").replace("\r", "\n")
    text, hidden = without_hidden(decoded)
    return FileText(
        path=f"{skill.location}/{relative}",
        text=text,
        sha256=hashlib.sha256(data).hexdigest(),
        bytes_read=len(data),
        hidden_removed=hidden,
    )


def read_bytes(skill: Skill, relative: str) -> bytes:
    """Read one file of a skill as it is, up to the cap."""
    try:
        descriptor = open_contained(skill.location, relative)
    except OSError as error:
        raise _refused(skill, relative, "missing", f"cannot be read ({error.strerror})") from error
    try:
        data = read_up_to(descriptor, MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise _refused(skill, relative, "too-large", f"is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _refused(skill: Skill, relative: str, code: str, reason: str) -> LoadRefused:
    advice = "list_skill_assets names what can be loaded"
    return LoadRefused(f"{relative!r} of skill {skill.name!r} {reason}: {advice}.", code=code)
