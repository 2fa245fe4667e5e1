"""Check a skill's directory against the full specification.

The index only checks that a skill is usable; this also reads the body and checks the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import structs

from vademecum.errors import FileRefused, PathRefused
from vademecum.files import read_capped
from vademecum.nearest import nearest
from vademecum.paths import contained, leads_out
from vademecum.skill.document import parse_document, with_file_name
from vademecum.skill.frontmatter import Fields, body_start, find_block
from vademecum.skill.skill import (
    KNOWN_FIELDS,
    MANIFEST,
    OWN_FIELDS,
    SPECIFIED_FIELDS,
    Document,
    Printable,
    Problem,
    Reading,
)
from vademecum.skill.text import outside_fences
from vademecum.skill.yaml_subset import read_fields

MAX_DOCUMENT_BYTES = 10 * 1024 * 1024
MAX_BODY_LINES = 500
MAX_FILES = 10_000
MAX_REFERENCES = 200

# Problems that are warnings in the index, and errors by the specification.
_ERRORS_HERE = frozenset({"name-directory-mismatch", "file-name"})

_ALLOWED = f"Only {', '.join(sorted(SPECIFIED_FIELDS))} are allowed."
_LINK = re.compile(r"\]\(\s*(?:<([^<>\n]+)>|([^)<>\s]+))")
_CODE = re.compile(r"`[^`]+`")
_MENTION = re.compile(r"`((?:scripts|references?|assets)/[^`\s*<>{}$]+)`")
# The placeholders of a template; a mention in the middle of a sentence does not count.
_UNFILLED = re.compile(r"^[\s>*\d.)-]*(?:[\w ]+: )?\[?TODO: ")
_EXTERNAL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|#|//|/")


class Validation(Printable, frozen=True):
    """The result of checking one directory.

    >>> from vademecum import BUILTIN_ROOT
    >>> verdict = validate_skill(BUILTIN_ROOT / "file-diff")
    >>> verdict.valid, verdict.name, verdict.problems
    (True, 'file-diff', ())
    """

    path: str
    name: str | None
    description: str | None
    problems: tuple[Problem, ...]

    @property
    def valid(self) -> bool:
        """True if the skill has no errors; warnings do not count."""
        return all(problem.severity != "error" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that ``vade validate`` prints."""
        return {"path": self.path, "valid": self.valid} | super().to_json()


def validate_skill(
    path: str | Path, *, reading: Reading | None = None, max_body_lines: int = MAX_BODY_LINES
) -> Validation:
    """Check one skill, given by its directory or by its ``SKILL.md``.

    >>> validate_skill("/nonexistent").problems[0].message
    'Path does not exist: /nonexistent. Name the directory of a skill'
    """
    place = Path(os.path.abspath(path))
    if place.name.lower() == MANIFEST.lower() and not place.is_dir():
        place = place.parent
    manifest = _manifest(place)
    if isinstance(manifest, Problem):
        return Validation(str(place), None, None, (manifest,))
    try:
        data = read_capped(manifest, cap=MAX_DOCUMENT_BYTES)
    except (OSError, FileRefused) as error:
        problem = Problem("unreadable", "error", f"{MANIFEST} cannot be read: {error}")
        return Validation(str(place), None, None, (problem,))
    document = with_file_name(parse_document(data, directory=place.name, reading=reading), manifest.name)
    problems = [
        *(
            structs.replace(problem, severity="error") if problem.code in _ERRORS_HERE else problem
            for problem in document.problems
        ),
        *_unknown_fields(data),
        *_values(place, document),
        *(_body(place, data, max_body_lines) if document.digest else ()),
        *_links(place),
    ]
    problems.sort(key=lambda problem: (problem.severity != "error", problem.line or 0))
    return Validation(str(place), document.name or None, document.description or None, tuple(problems))


def _manifest(place: Path) -> Path | Problem:
    if not os.path.lexists(place):
        text = f"Path does not exist: {place}. Name the directory of a skill"
        return Problem("missing-path", "error", text)
    if not os.path.isdir(place):
        text = f"Not a directory: {place}. Name the directory of a skill"
        return Problem("not-a-directory", "error", text)
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        return Problem(
            "unreadable", "error", f"{place} cannot be read ({error.strerror}): check its permissions"
        )
    for name in (MANIFEST, *names):
        if name.lower() == MANIFEST.lower() and name in names:
            return place / name
    text = f"Missing required file: {MANIFEST}. `vade new` writes one to start from"
    return Problem("missing-file", "error", text)


def _unknown_fields(data: bytes) -> Iterator[Problem]:
    block = find_block(data)
    fields = read_fields(block) if isinstance(block, str) else Fields({})
    unknown = [key for key in fields.by_name if key not in KNOWN_FIELDS]
    if unknown:
        missing = sorted(KNOWN_FIELDS - fields.by_name.keys())
        meant = ((key[:40], nearest(key, missing, like=0.8)) for key in sorted(unknown))
        listed = [f"{key} (did you mean {near!r}?)" if near else key for key, near in meant]
        text = f"Unexpected fields in frontmatter: {', '.join(listed)}. {_ALLOWED}"
        line = fields.by_name[unknown[0]].line
        text += " Move them under metadata if other tools are to read the skill"
        yield Problem("unknown-field", "error", text, unknown[0], line)
    for key in OWN_FIELDS:
        if key in fields.by_name:
            text = f"Unexpected fields in frontmatter: {key}. {_ALLOWED}"
            moved = f"The specification's place for it is metadata: write metadata: {{{key}: …}}"
            advice = moved if key in {"version", "author"} else "It is read here; other tools may refuse it"
            yield Problem("extension-field", "warning", f"{text} {advice}", key, fields.by_name[key].line)


def _values(place: Path, document: Document) -> Iterator[Problem]:
    """Check that the entry script exists, and that the description is not the template's."""
    if _UNFILLED.match(document.description):
        text = "The description is still that of the template: say what the skill does and when to use it"
        yield Problem("template", "warning", text, "description")
    entry = document.meta.metadata.get("entry")
    if entry is None:
        return
    try:
        there = entry.startswith("scripts/") and os.path.isfile(contained(place, entry))
    except (PathRefused, OSError):
        there = False
    if not there:
        text = f"'metadata.entry' names {entry!r}, which is not a file below scripts/: correct it"
        yield Problem("entry-missing", "warning", text, field="metadata")


def _body(place: Path, data: bytes, max_lines: int) -> Iterator[Problem]:
    start = body_start(data)
    first_line = data.count(b"\n", 0, start) + 1
    try:
        body = data[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", start, start + error.start)
        yield Problem("not-utf8", "error", "The body is not UTF-8: save the file as UTF-8", line=line)
        return
    lines = body.splitlines()
    if not body.strip():
        yield Problem(
            "empty-body", "warning", "The body is empty: write the steps to follow", line=first_line
        )
    if len(lines) > max_lines:
        text = f"The body has {len(lines):,} lines, over the advised {max_lines}: move details to references/"
        yield Problem("body-too-long", "warning", text, line=first_line)
    prose = [
        (first_line + number, line)
        for number, line in outside_fences(lines)
        if not line.startswith(("    ", "\t"))
    ]
    unfilled = [number for number, line in prose if _UNFILLED.match(line)]
    if unfilled:
        text = f"The body still has {len(unfilled)} of the template's TODO lines: write what each asks for"
        yield Problem("template", "warning", text, line=unfilled[0])
    yield from _missing_references(place, prose)


def _missing_references(place: Path, prose: list[tuple[int, str]]) -> Iterator[Problem]:
    """Yield missing files that the body names: an error for a link, a warning for a mention."""
    seen: set[str] = set()
    for number, line in prose:
        named = [(target, False) for target in _MENTION.findall(line)]
        links = _LINK.findall(_CODE.sub("", line))
        # A link to elsewhere need not be in the skill.
        own = [target for target in map("".join, links) if not _EXTERNAL.match(target)]
        named += [(unquote(re.split(r"[#?]", target)[0]), True) for target in own]
        for target, promised in named:
            if target and target not in seen and len(seen) < MAX_REFERENCES:
                seen.add(target)
                yield from _reference(place, target, number, promised=promised)


def _reference(place: Path, target: str, number: int, *, promised: bool) -> Iterator[Problem]:
    try:
        missing = not contained(place, target).exists()
    except (PathRefused, OSError, ValueError):
        text = (
            f"{target[:80]!r} lies outside the skill, where others will not have it: copy it into the skill"
        )
        yield Problem("reference-outside", "warning", text, line=number)
        return
    if missing:
        text = f"{target[:80]!r} is named but does not exist: add the file, or correct the path"
        yield Problem("missing-reference", "error" if promised else "warning", text, line=number)


def _links(place: Path) -> Iterator[Problem]:
    """Yield links that lead out of the skill: they break, or leak files, when it is shared."""
    seen = 0
    for directory, names, files in os.walk(place):
        names.sort()
        for name in sorted([*names, *files]):
            seen += 1
            if seen > MAX_FILES:
                text = f"The skill contains more than {MAX_FILES:,} files: remove what it does not need"
                yield Problem("too-many-files", "error", text)
                return
            path = Path(directory, name)
            if path.is_symlink() and leads_out(place, path):
                relative = str(path.relative_to(place))
                text = f"{relative!r} is a link that leads out of the skill: replace it with a file"
                yield Problem("link-outside", "error", text)
