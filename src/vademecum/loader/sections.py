"""Markdown → one section of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from vademecum.errors import LoadRefused

MAX_LISTED_HEADINGS = 20

_HEADING = re.compile(r" {0,3}(#{1,6})(?![^ \t])")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")


class Heading(Struct, frozen=True):
    """A heading, its level, and the line it stands on."""

    text: str
    level: int
    line: int


def find_section(text: str, hint: str, *, where: str) -> str:
    r"""The section under the heading that ``hint`` names, up to the next one of its level or a higher one.

    >>> find_section("# A\none\n## B\ntwo\n# C\nthree", "## b", where="x.md")
    '## B\ntwo'
    """
    lines = text.split("\n")
    found = list(headings(lines))
    wanted = _comparable(hint)
    for place, heading in enumerate(found):
        if _comparable(heading.text) == wanted:
            after = (other.line for other in found[place + 1 :] if other.level <= heading.level)
            return "\n".join(lines[heading.line : next(after, len(lines))]).rstrip("\n")
    listed = ", ".join(repr(heading.text) for heading in found[:MAX_LISTED_HEADINGS])
    there = f"its headings are {listed}" if listed else "it has no headings"
    raise LoadRefused(f"{where!r} has no section {hint!r}: {there}.", code="no-section")


def headings(lines: list[str]) -> Iterator[Heading]:
    """The headings of a text; what stands in a code fence is none."""
    fence: str | None = None
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = None
        elif mark:
            fence = mark[1]
        elif heading := _HEADING.match(line):
            yield Heading(line[heading.end() :].strip().rstrip("#").rstrip(), len(heading[1]), number)


def _comparable(heading: str) -> str:
    return " ".join(heading.strip().strip("#").split()).casefold()
