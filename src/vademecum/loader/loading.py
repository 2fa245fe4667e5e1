"""Load text of a skill: its instructions, its whole document or one of its files, with a report."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, structs

from vademecum.errors import FileRefused, LoadRefused
from vademecum.paths import read_contained
from vademecum.skill.assets import Sees, asset_path, everything, list_assets, no_file
from vademecum.skill.frontmatter import body_start, read_manifest
from vademecum.skill.skill import Printable, Skill
from vademecum.skill.text import escaped, outside_fences, without_hidden

MAX_BODY_LINES = 500
MAX_BODY_CHARS = 40_000
MAX_LISTED_RESOURCES = 50
MAX_EXCERPT_CHARS = 40_000
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_LISTED_HEADINGS = 20

# Text that could be mistaken for the tags around loaded text.
# Writers of languages without spaces often omit the one after the signs: `##标题`.
_HEADING = re.compile(r" {0,3}(#{1,6})(?:(?![^ \t])|(?<=##)(?=\w))")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*(?:[-*+>|]|\d{1,9}[.)]|$)")
# The sign of a folded block (`description: >`) is not part of a value.
_VALUE_BRACKET = re.compile(r"<|(?<!: )>")
_ESCAPES = {"<": "&lt;", ">": "&gt;"}
_FRAME = re.compile(r"<(\s*/?\s*(?:skill_content|skill_resources|available_skills))", re.IGNORECASE)


class LoadReport(Printable, frozen=True):
    """How much was read and how much was returned; ``path`` is the file with the full text."""

    path: str
    sha256: str
    bytes_read: int
    characters: int
    truncated: bool
    hidden_removed: int


class Loaded(Struct, frozen=True):
    """Loaded text, and its report."""

    text: str
    report: LoadReport

    def shown(self, text: str, *, truncated: bool = False) -> Loaded:
        """Return another form or a part of this text, with its report."""
        report = structs.replace(self.report, characters=len(text), truncated=truncated)
        return Loaded(text, report)


class BodyLimits(Struct, frozen=True):
    """How much of a body is returned, and what happens to a longer one."""

    lines: int = MAX_BODY_LINES
    characters: int = MAX_BODY_CHARS
    excess: Literal["refuse", "truncate"] = "refuse"


def load_body(
    skill: Skill,
    *,
    limits: BodyLimits | None = None,
    section: str | None = None,
    whole: bool = False,
    sees: Sees = everything,
) -> Loaded:
    """Return the body framed with the skill's name, source, directory and files, or only one section.

    Only files that the reader ``sees`` are named. If ``whole``, the frontmatter comes first, with angle
    brackets in its values escaped, because a model reads it.
    """
    file = load_document(skill, body_only=not whole)
    head, body = "", file.text
    if whole:
        data = body.encode()
        start = body_start(data)
        head, body = data[:start].decode(), data[start:].decode()
    body = find_section(body, section, where=skill.file) if section else body.strip("\n")
    shown, truncated = _within(skill, _without_frames(body), limits or BodyLimits())
    if head:
        shown = f"{_VALUE_BRACKET.sub(lambda found: _ESCAPES[found[0]], head)}\n{shown}"
    return file.shown(shown if section else _framed(skill, shown, sees), truncated=truncated)


def load_document(skill: Skill, *, body_only: bool = False) -> Loaded:
    """Return the whole document, or only its body."""
    return _read(skill, skill.file, body_only=body_only)


def load_resource(
    skill: Skill, relative_path: str, *, section_hint: str | None = None, sees: Sees = everything
) -> Loaded:
    """Return a file below ``references/``, ``assets/`` or ``scripts/``; long text is cut, with a note.

    If the file is missing, the error suggests files that the reader ``sees``.
    """
    relative = asset_path(skill, relative_path, sees=sees)
    whole = _read(skill, relative, sees=sees)
    text = find_section(whole.text, section_hint, where=relative) if section_hint else whole.text
    text = _without_frames(text)
    if len(text) <= MAX_EXCERPT_CHARS:
        return whole.shown(text)
    note = f"[Truncated: {len(text):,} characters, {MAX_EXCERPT_CHARS:,} are shown.]"
    return whole.shown(f"{text[:MAX_EXCERPT_CHARS]}\n\n{note}", truncated=True)


def _within(skill: Skill, body: str, limits: BodyLimits) -> tuple[str, bool]:
    lines = body.count("\n") + 1
    if lines <= limits.lines and len(body) <= limits.characters:
        return body, False
    size = f"{lines:,} lines and {len(body):,} characters"
    most = f"{limits.lines:,} lines and {limits.characters:,} characters"
    if limits.excess == "refuse":
        advice = "move details to references/, or cut it with --truncate or BodyLimits(excess='truncate')"
        text = f"The body of skill {skill.name!r} has {size}, over {most}: {advice}."
        raise LoadRefused(text, code="body-too-long")
    kept = "\n".join(body.split("\n")[: limits.lines])[: limits.characters].rstrip()
    return f"{kept}\n\n[Truncated: the body has {size}; {len(kept):,} characters are shown.]", True


def _framed(skill: Skill, body: str, sees: Sees) -> str:
    files = list_assets(skill, sees=sees)
    listed = "".join(f"\n<file>{_without_frames(name)}</file>" for name in files[:MAX_LISTED_RESOURCES])
    if len(files) > MAX_LISTED_RESOURCES:
        listed += "\n<!-- and more: list_skill_assets names them -->"
    resources = f"\n<skill_resources>{listed}\n</skill_resources>" if files else ""
    return (
        f'<skill_content name="{skill.name}" source="{skill.source}">\n{body}\n\n'
        f"Skill directory: {_without_frames(escaped(skill.location))}\n"
        "Relative paths in this skill are relative to that directory."
        f"{resources}\n</skill_content>"
    )


def _without_frames(text: str) -> str:
    """Return the text with anything that looks like our own tags escaped."""
    return _FRAME.sub(r"&lt;\1", text)


def _read(skill: Skill, relative: str, *, sees: Sees = everything, body_only: bool = False) -> Loaded:
    """Return a file as text, with normalised line ends, and hidden characters removed and counted."""
    try:
        if relative == skill.file:
            data = read_manifest(skill, cap=MAX_FILE_BYTES + 1)
        else:
            data = read_contained(skill.location, relative, MAX_FILE_BYTES + 1)
    except FileRefused as error:
        raise _refused(skill, relative, error.code, "is not a plain file of that skill") from error
    except FileNotFoundError as error:
        raise no_file(skill, relative, sees) from error
    except OSError as error:
        raise _refused(skill, relative, "missing", f"cannot be read ({error.strerror})") from error
    if len(data) > MAX_FILE_BYTES:
        raise _refused(skill, relative, "too-large", f"is larger than {MAX_FILE_BYTES:,} bytes")
    if b"\0" in data:
        raise _refused(skill, relative, "not-text", f"is not text ({len(data):,} bytes)")
    start = body_start(data) if body_only else 0
    try:
        decoded = data[start:].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(skill, relative, "not-text", "is not UTF-8 text") from error
    text, hidden = without_hidden(decoded.replace("\r\n", "\n").replace("\r", "\n"))
    path, digest = f"{skill.location}/{relative}", hashlib.sha256(data).hexdigest()
    return Loaded(
        text, LoadReport(path, digest, len(data), len(text), truncated=False, hidden_removed=hidden)
    )


def _refused(skill: Skill, relative: str, code: str, reason: str) -> LoadRefused:
    advice = "only text files of the skill can be loaded, list_skill_assets names its files"
    return LoadRefused(f"{relative[:200]!r} of skill {skill.name!r} {reason}: {advice}.", code=code)


def find_section(text: str, hint: str, *, where: str) -> str:
    r"""Return the section under the heading ``hint``, up to the next heading of its level or higher.

    >>> find_section("# A\none\n## B\ntwo\n# C\nthree", "## b", where="x.md")
    '## B\ntwo'
    """
    lines = text.split("\n")
    found = list(headings(lines))
    wanted = _comparable(hint)
    for place, (heading, level, line) in enumerate(found):
        if _comparable(heading) == wanted:
            after = (other for _, below, other in found[place + 1 :] if below <= level)
            return "\n".join(lines[line : next(after, len(lines))]).rstrip("\n")
    listed = ", ".join(repr(heading) for heading, _, _ in found[:MAX_LISTED_HEADINGS])
    there = f"its headings are {listed}" if listed else "it has no headings"
    raise LoadRefused(f"{where!r} has no section {hint!r}: {there}.", code="no-section")


def headings(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield each heading with its level and line: with ``#`` signs or underlined, not in code fences."""
    paragraph: int | None = None  # the first of the lines that an underline would make a heading
    before = -1
    for number, line in outside_fences(lines):
        if number - before > 1:
            paragraph = None
        before = number
        if heading := _HEADING.match(line):
            yield line[heading.end() :].strip().rstrip("#").rstrip(), len(heading[1]), number
            paragraph = None
        elif paragraph is not None and (underline := _UNDERLINE.match(line)):
            text = " ".join(part.strip() for part in lines[paragraph:number])
            yield text, 1 if underline[1][0] == "=" else 2, paragraph
            paragraph = None
        elif _NO_PARAGRAPH.match(line):
            paragraph = None
        elif paragraph is None:
            paragraph = number


def _comparable(heading: str) -> str:
    return " ".join(heading.strip().strip("#").split()).casefold()
