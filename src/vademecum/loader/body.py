"""A skill's instructions, as a model or a person gets them once the skill was chosen."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from vademecum.errors import LoadRefused
from vademecum.loader.reading import Loaded, read_document, without_frames
from vademecum.loader.sections import find_section
from vademecum.skill.assets import Sees, everything, list_assets
from vademecum.skill.skill import Skill
from vademecum.skill.text import escaped

MAX_BODY_LINES = 500
MAX_BODY_CHARS = 40_000
MAX_LISTED_RESOURCES = 50


class BodyLimits(Struct, frozen=True):
    """How much of a body is handed over, and what happens to one that is longer."""

    lines: int = MAX_BODY_LINES
    characters: int = MAX_BODY_CHARS
    excess: Literal["refuse", "truncate"] = "refuse"


def load_body(
    skill: Skill,
    *,
    limits: BodyLimits | None = None,
    section: str | None = None,
    sees: Sees = everything,
) -> Loaded:
    """The body with the skill's name, source, directory and files around it, or one section of it alone.

    Of the files those are named that the reader ``sees``.
    """
    file = read_document(skill, body_only=True)
    body = find_section(file.text, section, where=skill.file) if section else file.text.strip("\n")
    shown, truncated = _within(skill, without_frames(body), limits or BodyLimits())
    return file.handed_over(shown if section else _framed(skill, shown, sees), truncated=truncated)


def load_document(skill: Skill) -> Loaded:
    """The whole document, frontmatter included."""
    file = read_document(skill)
    return file.handed_over(file.text)


def _within(skill: Skill, body: str, limits: BodyLimits) -> tuple[str, bool]:
    lines = body.count("\n") + 1
    if lines <= limits.lines and len(body) <= limits.characters:
        return body, False
    size = f"{lines:,} lines and {len(body):,} characters"
    most = f"{limits.lines:,} lines and {limits.characters:,} characters"
    if limits.excess == "refuse":
        advice = "move details to references/, or ask for it truncated"
        text = f"The body of skill {skill.name!r} has {size}, over {most}: {advice}."
        raise LoadRefused(text, code="body-too-long")
    kept = "\n".join(body.split("\n")[: limits.lines])[: limits.characters].rstrip()
    return f"{kept}\n\n[Truncated: the body has {size}; {len(kept):,} characters are shown.]", True


def _framed(skill: Skill, body: str, sees: Sees) -> str:
    files = list_assets(skill, sees=sees)
    listed = "".join(f"\n<file>{without_frames(name)}</file>" for name in files[:MAX_LISTED_RESOURCES])
    if len(files) > MAX_LISTED_RESOURCES:
        listed += "\n<!-- and more: list_skill_assets names them -->"
    resources = f"\n<skill_resources>{listed}\n</skill_resources>" if files else ""
    return (
        f'<skill_content name="{skill.name}" source="{skill.source}">\n{body}\n\n'
        f"Skill directory: {without_frames(escaped(skill.location))}\n"
        "Relative paths in this skill are relative to that directory."
        f"{resources}\n</skill_content>"
    )
