"""One named file of a skill, whole or one section of it."""

from __future__ import annotations

from vademecum.errors import LoadRefused, PathRefused
from vademecum.loader.assets import ASSET_DIRECTORIES
from vademecum.loader.reading import FileText, Loaded, read_text
from vademecum.loader.sections import find_section
from vademecum.skill.skill import Skill

MAX_EXCERPT_CHARS = 40_000

_SAME = {"references": "reference", "reference": "references"}


def load_resource(
    skill: Skill, relative_path: str, *, section_hint: str | None = None, most: int = MAX_EXCERPT_CHARS
) -> Loaded:
    """A file below ``references/``, ``assets/`` or ``scripts/``; longer text is cut, saying so."""
    file = _read(skill, relative_path)
    text = file.text
    if section_hint:
        text = find_section(file.text, section_hint, where=relative_path)
    if len(text) <= most:
        return file.handed_over(text)
    cut = f"{text[:most]}\n\n[Truncated: {len(text):,} characters, {most:,} are shown.]"
    return file.handed_over(cut, truncated=True)


def _read(skill: Skill, relative_path: str) -> FileText:
    top, _, rest = relative_path.removeprefix("./").partition("/")
    if relative_path == skill.file:  # the document itself, for a section of it
        return read_text(skill, skill.file)
    if top not in ASSET_DIRECTORIES or not rest:
        allowed = "references/, assets/ or scripts/"
        raise PathRefused(f"The path {relative_path!r} is not below {allowed}: name a file that is.")
    try:
        return read_text(skill, f"{top}/{rest}")
    except LoadRefused as error:
        # `reference/` and `references/` are one directory under two names.
        if error.code != "missing" or top not in _SAME or not (skill.path / _SAME[top]).is_dir():
            raise
        return read_text(skill, f"{_SAME[top]}/{rest}")
