"""Rows of name, source and description, laid out for whoever reads them.

Ten thousand rows take a moment, so they are laid out here and not by a table of the library.
"""

from __future__ import annotations

import os
import re

from rich.cells import cell_len
from rich.console import Console

from vademecum.search.matches import Matches
from vademecum.skill.text import visible
from vademecum.skill.words import UNSPACED

MAX_LISTED_DESCRIPTION = 180

Row = tuple[str, str, str]

_STYLES = {"name": "1;36", "source": "2", "match": "1;33"}
_CHARACTER = UNSPACED.pattern.removesuffix("+")
# A word with the blanks behind it, or one character of a script without spaces with its punctuation.
_PIECE = re.compile(rf"{_CHARACTER}[，。、；：！？）」』…]*\s*|(?:(?!{_CHARACTER})\S)+\s*|\s+")


def print_rows(out: Console, rows: list[Row], *, terms: set[str] | None = None) -> None:
    """Columns on a terminal; elsewhere one line a row with all of its text, for other programs."""
    if not out.is_terminal and "COLUMNS" not in os.environ:
        for row in rows:
            out.file.write("\t".join(map(visible, row)) + "\n")
        return
    matches = Matches(terms) if terms else None
    widths = [max((cell_len(visible(row[n])) for row in rows), default=0) for n in (0, 1)]
    indent = sum(widths) + 4
    room = max(20, out.width - indent)
    for name, source, description in rows:
        first = _padded(out, name, widths[0], "name") + _padded(out, source, widths[1], "source")
        lines = wrapped(_shortened(visible(description)), room)
        marked = [_marked(out, line, matches) for line in lines]
        out.file.write((first + f"\n{' ' * indent}".join(marked)).rstrip() + "\n")


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines: between words, and inside runs that are written without spaces.

    >>> wrapped("one two three", 8)
    ['one two', 'three']
    >>> wrapped("整理会议，列出结论", 10)
    ['整理会议，', '列出结论']
    """
    lines, line, used = [], "", 0
    for piece in _PIECE.findall(text):
        if line and used + cell_len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, used = "", 0
        line += piece
        used += cell_len(piece)
    return [*lines, line.rstrip()]


def _shortened(text: str, most: int = MAX_LISTED_DESCRIPTION) -> str:
    if len(text) <= most:
        return text
    head, space, tail = text[:most].rpartition(" ")
    return f"{head if space and len(tail) < most // 4 else text[: most - 1]}…"


def _padded(out: Console, text: str, width: int, style: str) -> str:
    shown = visible(text)
    return _styled(out, shown, style) + " " * (width - cell_len(shown) + 2)


def _marked(out: Console, line: str, matches: Matches | None) -> str:
    """A line with the words that matched standing out."""
    if matches is None:
        return line
    parts, done = [], 0
    for start, end in matches.spans(line):
        begin = max(start, done)
        parts += [line[done:begin], _styled(out, line[begin:end], "match")]
        done = end
    return "".join([*parts, line[done:]])


def _styled(out: Console, text: str, style: str) -> str:
    if not out.color_system or not text:
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
