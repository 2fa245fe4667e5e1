"""What a Markdown text is built of, read line by line: fences, headings, tables, list items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

_MARKS = ("`", "~")
_LONGEST_HEADING = 6


@dataclass(frozen=True)
class Fenced:
    """A block between fences: what language it says it is in, and its text."""

    language: str
    text: str


@dataclass(frozen=True)
class Structure:
    """A text and its parts; what is between fences is no heading, no table and no list."""

    text: str

    @cached_property
    def _parts(self) -> tuple[list[Fenced], list[str]]:
        blocks: list[Fenced] = []
        plain: list[str] = []
        inside: list[str] | None = None
        fence = language = ""
        for line in self.text.split("\n"):
            found = _fence(line)
            if inside is None and found[0]:
                inside, (fence, language) = [], found
            elif inside is not None and found[0].startswith(fence) and not line.strip().strip(fence[0]):
                blocks.append(Fenced(language, "\n".join([*inside, ""]) if inside else ""))
                inside = None
            else:
                (plain if inside is None else inside).append(line)
        return blocks, [*plain, *(inside or ())]

    @property
    def blocks(self) -> list[Fenced]:
        """What is between fences that are closed."""
        return self._parts[0]

    @property
    def headings(self) -> list[str]:
        """The texts of headings."""
        return [text for text in map(_heading, self._parts[1]) if text]

    @property
    def tables(self) -> list[list[str]]:
        """The columns of each table: a row, and under it one of dashes."""
        lines = self._parts[1]
        return [list(_cells(row)) for row, below in pairwise(lines) if _is_head(row, below)]

    @property
    def items(self) -> int:
        """How many list items there are."""
        return sum(map(_is_item, self._parts[1]))


def _fence(line: str) -> tuple[str, str]:
    """The fence that a line is, and the language after it; nothing where it is none."""
    mark = line[:1]
    length = len(line) - len(line.lstrip(mark)) if mark in _MARKS and mark else 0
    if length < 3:
        return "", ""
    rest = line[length:].split(maxsplit=1)
    return mark * length, rest[0] if rest else ""


def _heading(line: str) -> str:
    text = line.lstrip("#")
    level = len(line) - len(text)
    return text.strip().rstrip("# \t") if 1 <= level <= _LONGEST_HEADING and text[:1] in {" ", "\t"} else ""


def _is_head(row: str, below: str) -> bool:
    row, below = row.strip(), below.strip()
    is_row = len(row) > 2 and row[0] == row[-1] == "|"
    return is_row and "-" in below and not below.strip(" \t:|-")


def _cells(row: str) -> Iterator[str]:
    return (cell.strip() for cell in row.strip()[1:-1].split("|"))


def _is_item(line: str) -> bool:
    marker, _, rest = line.strip().partition(" ")
    number = marker[:-1]
    is_marker = marker in {"-", "*", "+"} or (
        marker[-1:] in {".", ")"} and number.isascii() and number.isdigit()
    )
    return is_marker and bool(rest.strip())
