"""Clean text from outside: remove hidden characters, escape it for terminals, prepare it for search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

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

# Han, Kana and Hangul are written without spaces: a run of them is indexed as its overlapping pairs.
# It is not compiled here, because that takes 4 ms and most processes see only English.
UNSPACED = (
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
# A word with a capital inside, such as JavaScript or PDFForm, and where to cut it.
_MIXED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_CUT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


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


def prepared(text: str) -> str:
    """Return the text with its searchable words separated by spaces.

    Documents, queries and requests are all split in this way.

    >>> prepared("fillPDFForm in ＪａｖａＳｃｒｉｐｔ 技能说明")
    'fillPDFForm fill PDF Form in JavaScript Java Script  技能 能说 说明 '
    """
    if not text.isascii():
        whole = text.encode("utf-8", "replace").decode()  # half a character is no text to search for
        text = re.sub(UNSPACED, _pairs, simplified(unicodedata.normalize("NFKC", without_hidden(whole)[0])))
    return _MIXED.sub(lambda word: f"{word[0]} {_CUT.sub(' ', word[0])}", text)


def simplified(text: str) -> str:
    """Return the text with simplified Chinese characters in place of traditional ones.

    >>> simplified("簡歷 CV")
    '简历 CV'
    """
    return text.translate(_simplified_characters())


@cache
def _simplified_characters() -> dict[int, str]:
    pairs = Path(__file__).with_name("simplified.txt").read_text("utf-8")
    return {ord(old): new for old, new in zip(pairs[::2], pairs[1::2], strict=True)}


def _pairs(run: re.Match[str]) -> str:
    text = run[0]
    pairs = [text[n : n + 2] for n in range(max(1, len(text) - 1))]
    return f" {' '.join(pairs)} "
