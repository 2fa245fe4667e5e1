"""Text → words: how documents, queries and requests are taken apart, the same way for all."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

from vademecum.skill.text import without_hidden

# Han, Kana and Hangul are written without spaces: a run of them is indexed as its overlapping pairs.
# This is a text, because compiling it takes 4 ms and most processes see nothing but English.
UNSPACED = (
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
# A word with a capital inside, such as JavaScript or PDFForm, and where it is to be cut.
_MIXED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_CUT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def prepared(text: str) -> str:
    """Text in which every word that can be asked for stands by itself.

    >>> prepared("fillPDFForm in ＪａｖａＳｃｒｉｐｔ 技能说明")
    'fillPDFForm fill PDF Form in JavaScript Java Script  技能 能说 说明 '
    """
    if not text.isascii():
        whole = text.encode("utf-8", "replace").decode()  # half a character is no text to search for
        text = re.sub(UNSPACED, _pairs, simplified(unicodedata.normalize("NFKC", without_hidden(whole)[0])))
    return _MIXED.sub(_with_parts, text)


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


def _with_parts(word: re.Match[str]) -> str:
    return f"{word[0]} {_CUT.sub(' ', word[0])}"
