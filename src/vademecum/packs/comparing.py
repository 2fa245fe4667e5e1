"""Two directories of a skill → what differs, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from vademecum.errors import PackRefused
from vademecum.packs.content import SkillFile, files_of
from vademecum.packs.signing import SIGNATURES

MAX_COMPARED_BYTES = 1024 * 1024
MAX_DIFF_LINES = 400


def diff_of(old: Path, new: Path) -> list[str]:
    """A unified diff of all files; what is no text, or too long, is only named."""
    before, after = (_by_path(place) for place in (old, new))
    lines: list[str] = []
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            lines += _file_diff(path, old if path in before else None, new if path in after else None)
            lines += _mode_diff(path, before.get(path), after.get(path))
        if len(lines) > MAX_DIFF_LINES:
            return [*lines[:MAX_DIFF_LINES], "… and more"]
    return lines


def _by_path(place: Path) -> dict[str, SkillFile]:
    try:
        return {file.path: file for file in files_of(place)}
    except PackRefused as error:
        raise PackRefused(f"{error} What differs cannot be shown.") from error


def _file_diff(path: str, old: Path | None, new: Path | None) -> Iterator[str]:
    if path in SIGNATURES and old and new:
        yield f"{path} differs: it was signed anew"
        return
    texts = [_lines(place / path) if place else [] for place in (old, new)]
    names = [f"{side}/{path}" if place else "/dev/null" for side, place in (("a", old), ("b", new))]
    if texts[0] is None or texts[1] is None:
        yield f"{path} differs, and is no text or too long to be shown"
        return
    yield from difflib.unified_diff(texts[0], texts[1], names[0], names[1], lineterm="", n=2)


def _mode_diff(path: str, old: SkillFile | None, new: SkillFile | None) -> Iterator[str]:
    if old is not None and new is not None and old.executable != new.executable:
        yield f"{path} {'became' if new.executable else 'is no longer'} executable"


def _lines(file: Path) -> list[str] | None:
    if file.stat().st_size > MAX_COMPARED_BYTES:
        return None
    try:
        return file.read_bytes().decode().splitlines()
    except UnicodeDecodeError:
        return None
