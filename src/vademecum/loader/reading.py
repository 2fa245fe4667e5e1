"""A file of a skill → clean text and a report of how it was read."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused, LoadRefused
from vademecum.files import read_up_to
from vademecum.paths import open_contained
from vademecum.skill.assets import Sees, everything, hint_about, list_assets
from vademecum.skill.frontmatter import body_start
from vademecum.skill.manifest import read_manifest
from vademecum.skill.skill import Skill
from vademecum.skill.text import without_hidden

MAX_FILE_BYTES = 10 * 1024 * 1024

# What could pass for the frames that text is handed over in.
_FRAME = re.compile(r"<(\s*/?\s*(?:skill_content|skill_resources|available_skills))", re.IGNORECASE)


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
        return structs.asdict(self)


class Loaded(Struct, frozen=True):
    """Text for a reader, and its report."""

    text: str
    report: LoadReport


class FileText(Struct, frozen=True):
    """A file as text: line ends normalised, hidden characters removed and counted."""

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


def read_document(skill: Skill, *, body_only: bool = False) -> FileText:
    """The skill's own document, with or without its frontmatter."""
    try:
        data = read_manifest(skill, cap=MAX_FILE_BYTES + 1)
    except (OSError, FileRefused) as error:
        raise _unreadable(skill, skill.file, error) from error
    return _as_text(skill, skill.file, data, start=body_start(data) if body_only else 0)


def read_resource(skill: Skill, relative: str, *, sees: Sees = everything) -> FileText:
    """One file of a skill; refused when it leads out, is too large, or is no text."""
    try:
        descriptor = open_contained(skill.location, relative)
    except (OSError, FileRefused) as error:
        raise _unreadable(skill, relative, error, sees) from error
    try:
        data = read_up_to(descriptor, MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    return _as_text(skill, relative, data)


def without_frames(text: str) -> str:
    """The text with whatever could pass for our own frames written so that it cannot."""
    lowered = text.lower()
    if "skill_content" in lowered or "skill_resources" in lowered or "available_skills" in lowered:
        return _FRAME.sub(r"&lt;\1", text)
    return text


def _as_text(skill: Skill, relative: str, data: bytes, *, start: int = 0) -> FileText:
    if len(data) > MAX_FILE_BYTES:
        raise _refused(skill, relative, "too-large", f"is larger than {MAX_FILE_BYTES:,} bytes")
    if b"\0" in data:
        raise _refused(skill, relative, "not-text", f"is not text ({len(data):,} bytes)")
    try:
        decoded = data[start:].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(skill, relative, "not-text", "is not UTF-8 text") from error
    if "\r" in decoded:
        decoded = decoded.replace("\r\n", "\n").replace("\r", "\n")
    text, hidden = without_hidden(decoded)
    path = f"{skill.location}/{relative}"
    return FileText(path, text, hashlib.sha256(data).hexdigest(), len(data), hidden)


def _unreadable(
    skill: Skill, relative: str, error: OSError | FileRefused, sees: Sees = everything
) -> LoadRefused:
    if isinstance(error, FileRefused):
        return _refused(skill, relative, error.code, "is not a plain file of that skill")
    if isinstance(error, FileNotFoundError):
        hint = hint_about(relative, list_assets(skill, sees=sees))
        text = f"Skill {skill.name!r} has no file {relative[:200]!r}: {hint}"
        return LoadRefused(text, code="missing")
    return _refused(skill, relative, "missing", f"cannot be read ({error.strerror})")


def _refused(skill: Skill, relative: str, code: str, reason: str) -> LoadRefused:
    advice = "list_skill_assets names what can be loaded"
    return LoadRefused(f"{relative[:200]!r} of skill {skill.name!r} {reason}: {advice}.", code=code)
