"""Clean text from outside: remove hidden characters, and escape it for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Controls (tab and newline aside), soft hyphen, Arabic letter mark, Mongolian vowel separator, zero-width
# space, direction marks, bidirectional overrides and isolates, invisible operators, byte-order mark,
# interlinear anchors, tag characters, and the variation selectors that no font uses.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
)
# Joiners shape Persian and Indic words and build emoji, always between characters far above ASCII. Anywhere
# else they are hidden text.
_SCRIPT = "[^\x00-\u02ff\u2000-\u206f]"
HIDDEN_CHARACTERS = re.compile(f"[{_HIDDEN}]|(?<!{_SCRIPT})[\u200c\u200d]|[\u200c\u200d](?!{_SCRIPT})")
SUSPECT = re.compile(f"[{_HIDDEN}\u200c\u200d]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_ASCII_CONTROLS = bytes([*range(9), *range(11, 32), 127])


def without_hidden(text: str) -> tuple[str, int]:
    r"""Return the text without hidden characters, and how many there were.

    >>> without_hidden("safe\u200b text\U000e0041")
    ('safe text', 2)
    >>> without_hidden("می\u200cخواهم")[1]
    0
    """
    if text.isascii():
        kept = text.encode().translate(None, _ASCII_CONTROLS)
        return (text, 0) if len(kept) == len(text) else (kept.decode(), len(text) - len(kept))
    return HIDDEN_CHARACTERS.subn("", text) if SUSPECT.search(text) else (text, 0)


def visible(text: str) -> str:
    r"""Return the text on one line, with unprintable characters escaped: safe for a terminal.

    >>> visible("a\x1b[2Jb\nc")
    'a\\x1b[2Jb c'
    """
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    r"""Return the text with unprintable characters escaped.

    >>> escaped("  a\x1b[2J")
    '  a\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_lines(text: str) -> str:
    r"""Return a text of several lines with other unprintable characters escaped.

    >>> escaped_lines("a\tb\n\x1b[2J")
    'a   b\n\\x1b[2J'
    """
    return "\n".join(map(escaped, text.expandtabs(4).split("\n")))


def outside_fences(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of Markdown that are not in a code fence, with their numbers from zero."""
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            yield number, line


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "skill"), counted(1200, "skill")
    ('1 skill', '1,200 skills')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
