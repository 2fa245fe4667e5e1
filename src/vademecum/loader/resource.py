"""One named file of a skill, whole or one section of it."""

from __future__ import annotations

from vademecum.loader.reading import Loaded, read_resource, without_frames
from vademecum.loader.sections import find_section
from vademecum.skill.assets import Sees, asset_path, everything
from vademecum.skill.skill import Skill

MAX_EXCERPT_CHARS = 40_000


def load_resource(
    skill: Skill,
    relative_path: str,
    *,
    section_hint: str | None = None,
    most: int = MAX_EXCERPT_CHARS,
    sees: Sees = everything,
) -> Loaded:
    """A file below ``references/``, ``assets/`` or ``scripts/``; longer text is cut, saying so.

    Where there is none, those are suggested that the reader ``sees``.
    """
    relative = asset_path(skill, relative_path, sees=sees)
    file = read_resource(skill, relative, sees=sees)
    text = find_section(file.text, section_hint, where=relative) if section_hint else file.text
    text = without_frames(text)
    if len(text) <= most:
        return file.handed_over(text)
    cut = f"{text[:most]}\n\n[Truncated: {len(text):,} characters, {most:,} are shown.]"
    return file.handed_over(cut, truncated=True)
