"""A skill's instructions, as a model or a person gets them once the skill was chosen."""

from __future__ import annotations

import re
from html import escape
from typing import Literal

from msgspec import Struct

from vademecum.errors import LoadRefused
from vademecum.loader.assets import list_assets
from vademecum.loader.reading import FileText, Loaded, read_text
from vademecum.skill.skill import Skill

MAX_BODY_LINES = 500
MAX_BODY_CHARS = 40_000
MAX_LISTED_RESOURCES = 50

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_CLOSING_TAG = re.compile(r"</(skill_content|skill_resources)", re.IGNORECASE)


class BodyLimits(Struct, frozen=True):
    """How much of a body is handed over, and what happens to one that is longer."""

    lines: int = MAX_BODY_LINES
    characters: int = MAX_BODY_CHARS
    excess: Literal["refuse", "truncate"] = "refuse"


def load_body(skill: Skill, *, limits: BodyLimits | None = None) -> Loaded:
    """The body with the skill's name, source, directory and files around it."""
    file = read_text(skill, skill.file)
    body, truncated = _within(skill, body_of(file), limits or BodyLimits())
    return file.handed_over(_wrapped(skill, body), truncated=truncated)


def load_document(skill: Skill) -> Loaded:
    """The whole document, frontmatter included."""
    file = read_text(skill, skill.file)
    return file.handed_over(file.text)


def body_of(file: FileText) -> str:
    """What follows the frontmatter."""
    opening = _FENCE.match(file.text)
    closing = _FENCE.search(file.text, opening.end()) if opening else None
    return file.text[closing.end() :].strip("\n") if closing else file.text


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


def _wrapped(skill: Skill, body: str) -> str:
    # A body cannot end its own frame and go on as somebody else.
    if "</skill_" in body.lower():
        body = _CLOSING_TAG.sub(r"&lt;/\1", body)
    files = list_assets(skill)
    listed = "".join(f"\n<file>{escape(name)}</file>" for name in files[:MAX_LISTED_RESOURCES])
    more = len(files) - MAX_LISTED_RESOURCES
    listed += f"\n<!-- and {more:,} more: list_skill_assets names them -->" if more > 0 else ""
    resources = f"\n<skill_resources>{listed}\n</skill_resources>" if files else ""
    return (
        f'<skill_content name="{escape(skill.name)}" source="{skill.source}">\n{body}\n\n'
        f"Skill directory: {escape(skill.location)}\n"
        "Relative paths in this skill are relative to that directory."
        f"{resources}\n</skill_content>"
    )
