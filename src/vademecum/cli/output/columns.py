"""Print rows of name, source and description: columns on a terminal, tabs elsewhere.

A table of rich takes seconds for ten thousand rows, and importing it takes 40 ms, so the layout is done here.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from vademecum.cli.output.printing import paint
from vademecum.skill.text import visible
from vademecum.skill.words import UNSPACED

if TYPE_CHECKING:
    from vademecum.search.matches import Matches

MAX_LISTED_DESCRIPTION = 180

Row = tuple[str, str, str]

_STYLES = {"name": "1;36", "source": "2", "match": "1;33"}
_CHARACTER = UNSPACED.pattern.removesuffix("+")
# A word with the blanks behind it, or one character of a script without spaces with its punctuation.
_PIECE = re.compile(rf"{_CHARACTER}[，。、；：！？）」』…]*\s*|(?:(?!{_CHARACTER})\S)+\s*|\s+")


def print_rows(rows: list[Row], *, terms: set[str] | None = None) -> None:
    """Print columns on a terminal, with ``terms`` highlighted; elsewhere one line for each row, with tabs."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        sys.stdout.writelines("\t".join(map(visible, row)) + "\n" for row in rows)
        return
    widths = [max((_cells(visible(row[n])) for row in rows), default=0) for n in (0, 1)]
    indent = sum(widths) + 4
    room = max(20, terminal_width() - indent)
    matches = _matches(terms)
    for name, source, description in rows:
        first = _padded(name, widths[0], "name") + _padded(source, widths[1], "source")
        lines = wrapped(_shortened(visible(description)), room)
        marked = [_marked(line, matches) for line in lines]
        sys.stdout.write((first + f"\n{' ' * indent}".join(marked)).rstrip() + "\n")


def terminal_width() -> int:
    """Return the width to wrap text at: that of ``COLUMNS`` or of the terminal, else 100."""
    try:
        return int(os.environ.get("COLUMNS", "")) or 100
    except ValueError:
        pass
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 100
    except OSError:
        return 100


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines between words, or between characters of a script without spaces.

    >>> wrapped("one two three", 8)
    ['one two', 'three']
    >>> wrapped("整理会议，列出结论", 10)
    ['整理会议，', '列出结论']
    """
    lines, line, used = [], "", 0
    for piece in _PIECE.findall(text):
        if line and used + _cells(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, used = "", 0
        line += piece
        used += _cells(piece)
    return [*lines, line.rstrip()]


def fitted(text: str, width: int) -> str:
    """Return a text on one line, cut with an ellipsis if it is wider than ``width`` columns.

    >>> fitted("summarise cities.csv", 10)
    'summarise…'
    """
    if _cells(text) <= width:
        return text
    while text and _cells(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _shortened(text: str, most: int = MAX_LISTED_DESCRIPTION) -> str:
    if len(text) <= most:
        return text
    head, space, tail = text[:most].rpartition(" ")
    return f"{head if space and len(tail) < most // 4 else text[: most - 1]}…"


def _cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, style: str) -> str:
    shown = visible(text)
    return paint(shown, _STYLES[style]) + " " * (width - _cells(shown) + 2)


def _matches(terms: set[str] | None) -> Matches | None:
    if not terms or paint("x", "1") == "x":  # without colour nothing is highlighted
        return None
    from vademecum.search.matches import Matches

    return Matches(terms)


def _marked(line: str, matches: Matches | None) -> str:
    """Return a line with the words that matched highlighted."""
    if matches is None:
        return line
    parts, done = [], 0
    for start, end in matches.spans(line):
        begin = max(start, done)
        parts += [line[done:begin], paint(line[begin:end], _STYLES["match"])]
        done = end
    return "".join([*parts, line[done:]])
