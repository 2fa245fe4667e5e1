"""Characters that a person does not see but a model reads."""

from __future__ import annotations

import re

# Controls (tab and newline aside), soft hyphen, Arabic letter mark, Mongolian vowel separator, zero-width
# space, direction marks, bidirectional overrides and isolates, invisible operators, byte-order mark,
# interlinear anchors, tag characters, and the variation selectors that no font uses.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
)
# The joiners shape Persian and Indic words and build emoji, always between characters far above ASCII;
# anywhere else they are hidden text.
_SCRIPT = "[^\x00-\u02ff\u2000-\u206f]"
HIDDEN_CHARACTERS = re.compile(f"[{_HIDDEN}]|(?<!{_SCRIPT})[\u200c\u200d]|[\u200c\u200d](?!{_SCRIPT})")
_SUSPECT = re.compile(f"[{_HIDDEN}\u200c\u200d]")
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
    return HIDDEN_CHARACTERS.subn("", text) if _SUSPECT.search(text) else (text, 0)


def visible(text: str) -> str:
    r"""Return the text on one line, with everything unprintable written as an escape: safe for a terminal.

    >>> visible("a\x1b[2Jb\nc")
    'a\\x1b[2Jb c'
    """
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    r"""Return the text as it is, with everything unprintable written as an escape.

    >>> escaped("  a\x1b[2J")
    '  a\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_lines(text: str) -> str:
    r"""Return a text of several lines with everything else that is unprintable written as an escape.

    >>> escaped_lines("a\tb\n\x1b[2J")
    'a   b\n\\x1b[2J'
    """
    lines = text.expandtabs(4).split("\n")
    return "\n".join(line if line.isprintable() else escaped(line) for line in lines)
