"""Read the frontmatter of a document, and the whole document of a skill that was chosen.

Most frontmatter has only ``key: value`` lines and a flat ``metadata``. It is parsed here, several times
faster than by a YAML parser and with the same result: a property test and real documents compare the two.
The YAML parser reads the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from vademecum.errors import FileRefused, PathRefused
from vademecum.files import open_plain, read_capped, read_up_to
from vademecum.paths import read_contained
from vademecum.skill.skill import Problem, Reading, Skill

FIRST_READ = 4096
MAX_FRONTMATTER_BYTES = 64 * 1024
MAX_FRONTMATTER_LINES = 200
MAX_LINE_CHARS = 4096

_OPENING = re.compile(rb"---[ \t]*\r?\n")
# The fence is alone on its line, so a `---` inside a value is just text. The second form is for a block that
# ends with the file.
_CLOSING = re.compile(rb"^---[ \t]*\r?\n", re.MULTILINE)
_CLOSING_AT_END = re.compile(rb"^---[ \t]*\r?\n?\Z", re.MULTILINE)
_BOM = b"\xef\xbb\xbf"

# The opening fence is line 1 of the document; lines of the frontmatter are counted from zero.
FIRST_LINE = 2
# YAML's spellings of a missing value.
NOTHING = frozenset({"~", "null", "Null", "NULL"})

# Characters that YAML refuses, folds or escapes.
_SPECIAL = re.compile(r"[\x00-\x09\x0b-\x1f\\\x7f-\xa0\u2028-\u202e\ud800-\udfff\ufeff\ufffe\uffff]")
_LINE = re.compile(
    r"(  )?([A-Za-z][A-Za-z0-9_-]{0,60}):"
    r"""(?: +(?:([^\x00-/:-@\[-`{-\xa0].*)|"([^"]*)" *|'([^']*)' *))?"""
)

# None: a value that is not read because it is nested or an alias.
Value = str | tuple[str, ...] | Mapping[str, str] | None


class Field(Struct, frozen=True, gc=False):
    """One key of the frontmatter: its value and its line."""

    value: Value
    line: int


class Fields(Struct, frozen=True):
    """All keys in their order, and the problems found."""

    by_name: Mapping[str, Field]
    problems: tuple[Problem, ...] = ()
    broken: bool = False
    # Names of variables that `metadata` lists for scripts, as written.
    secrets: tuple[str, ...] = ()


def read_opening(path: str | Path) -> bytes:
    """Read a document up to the end of its frontmatter, usually in one read."""
    descriptor = open_plain(path)
    try:
        head = os.read(descriptor, FIRST_READ)
        if (
            len(head) == FIRST_READ
            and _OPENING.match(head.removeprefix(_BOM))
            and not _CLOSING.search(head, 4)
        ):
            head += read_up_to(descriptor, MAX_FRONTMATTER_BYTES + 1 - FIRST_READ)
        return head
    finally:
        os.close(descriptor)


def find_block(head: bytes) -> str | Problem:
    r"""Return the frontmatter in a document's opening bytes, or the problem if there is none.

    Its first line is line 2 of the file.

    >>> find_block(b"---\nname: a\n---\n# Body")
    'name: a\n'
    """
    data = head.removeprefix(_BOM)
    opening = _OPENING.match(data)
    if opening is None:
        return _error(*_why_not_opened(data))
    start = opening.end()
    closing = _CLOSING.search(data, start) or _CLOSING_AT_END.search(data, start)
    if closing is not None and closing.start() <= MAX_FRONTMATTER_BYTES:
        return _decoded(data[start : closing.start()])
    if len(data) >= MAX_FRONTMATTER_BYTES:
        return _too_long(f"is longer than {MAX_FRONTMATTER_BYTES:,} bytes")
    text = "SKILL.md frontmatter not properly closed with ---. Add a line --- after the last field"
    return _error("unclosed-frontmatter", text)


def body_start(data: bytes) -> int:
    """Return the offset of the body in a whole document that has frontmatter."""
    bom = len(_BOM) if data.startswith(_BOM) else 0
    closing = _CLOSING.search(data, bom + 3) or _CLOSING_AT_END.search(data, bom + 3)
    return closing.end() if closing else 0


def _why_not_opened(data: bytes) -> tuple[str, str]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "not-utf8", "SKILL.md is saved as UTF-16: save it as UTF-8"
    if b"\0" in data:
        return "binary", "SKILL.md is not text (it contains NUL bytes): replace it"
    wanted = "Begin the file with a line ---, then name: and description:, then a line ---"
    return "no-frontmatter", f"SKILL.md must start with YAML frontmatter (---). {wanted}"


def _decoded(block: bytes) -> str | Problem:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + FIRST_LINE
        return _error("not-utf8", "The frontmatter is not UTF-8: save the file as UTF-8", line)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.count("\n")
    if lines > MAX_FRONTMATTER_LINES:
        return _too_long(f"has {lines} lines, the limit is {MAX_FRONTMATTER_LINES}")
    if len(text) > MAX_LINE_CHARS:
        for number, line_text in enumerate(text.split("\n"), FIRST_LINE):
            if len(line_text) > MAX_LINE_CHARS:
                message = f"The line is {len(line_text):,} characters long, the limit is {MAX_LINE_CHARS:,}"
                return _error("line-too-long", f"{message}: shorten it", number)
    return text


def _too_long(why: str) -> Problem:
    return _error("frontmatter-too-long", f"The frontmatter {why}: move its content to the body")


def _error(code: str, message: str, line: int = 1) -> Problem:
    return Problem(code, "error", message, line=line)


def read_plain_lines(text: str) -> Fields | None:
    r"""Read frontmatter of plain lines; return ``None`` if any line is not plain.

    >>> fields = read_plain_lines("name: pdf\nmetadata:\n  version: '1.10'\n")
    >>> {name: field.value for name, field in fields.by_name.items()}
    {'name': 'pdf', 'metadata': {'version': '1.10'}}
    >>> read_plain_lines("tags: [a, b]\n") is None
    True
    """
    if _SPECIAL.search(text):
        return None
    fields: dict[str, Field] = {}
    entries: dict[str, str] | None = None  # those below `metadata:`
    for number, line in enumerate(text.splitlines(), FIRST_LINE):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        indent, key, plain, double, single = match.groups()
        value = plain.rstrip(" ") if plain else double or single or ""
        if plain and (": " in value or " #" in value or value[-1] == ":"):
            return None
        if indent:
            if entries is None or key in entries:
                return None
            entries[key] = value
        elif key in fields:
            return None
        else:
            entries = {} if key == "metadata" and match.end(2) + 1 == len(line) else None
            fields[key] = Field("" if plain and value in NOTHING else value, number)
        if entries:
            fields["metadata"] = Field(entries, fields["metadata"].line)
    return Fields(fields) if fields else None


def read_manifest(skill: Skill, *, cap: int) -> bytes:
    """Return the document's first ``cap`` bytes.

    Discovery follows a linked document, so this does too. A link that leads out of the skill must still lead
    to the document of that name; otherwise a link swapped since then could make any file readable.
    """
    try:
        return read_contained(skill.location, skill.file, cap)
    except PathRefused:
        data = read_capped(f"{skill.location}/{skill.file}", cap=cap)
    from vademecum.skill.document import parse_document  # noqa: PLC0415 - for links alone

    directory = skill.location.rpartition("/")[2]
    if parse_document(data, directory=directory, reading=Reading(lenient=True)).name != skill.name:
        raise FileRefused(
            f"{skill.location}/{skill.file} is no longer the document of {skill.name!r}.", code="changed"
        )
    return data
