"""Patterns with ``*`` and ``?``, matched whole and exactly as written, in time linear in the text."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text: ``*`` is any run, ``?`` is one character.

    A trailing `` *`` is optional, so that ``git *`` also matches ``git``.

    >>> matches("git *", "git"), matches("git *", "gitk"), matches("a?c*", "abcd"), matches("[a]", "a")
    (True, False, True, False)
    """
    if pattern.endswith(" *") and matches_exactly(pattern[:-2], text):
        return True
    return matches_exactly(pattern, text)


def matches_exactly(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text, without an optional end.

    The pieces between stars are looked for from left to right, each as early as possible: if any way of
    matching exists, this one does, so nothing is ever tried twice.
    """
    first, *rest = _pieces(pattern)
    if not rest:
        return len(first) == len(text) and _stands_at(first, text, 0)
    *middle, last = rest
    end = len(text) - len(last)
    if len(first) > end or not _stands_at(first, text, 0) or not _stands_at(last, text, end):
        return False
    position = len(first)
    for piece in middle:
        position = _find(piece, text, position, end)
        if position < 0:
            return False
        position += len(piece)
    return True


def comparable(text: str) -> str:
    """Return the one spelling (NFKC) in which names and patterns are compared."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has no wildcard."""
    return "*" not in pattern and "?" not in pattern


def covers(wide: str, narrow: str) -> bool:
    """Return whether ``wide`` certainly matches everything that ``narrow`` matches.

    >>> covers("a*", "ab*"), covers("*", "x?"), covers("a?", "a*")
    (True, True, False)
    """
    return wide == narrow or ("?" not in wide and matches_exactly(wide, narrow))


@lru_cache(maxsize=4096)
def _pieces(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))


def _stands_at(piece: str, text: str, position: int) -> bool:
    if "?" not in piece:
        return text.startswith(piece, position)
    window = text[position : position + len(piece)]
    return len(window) == len(piece) and all(a in {"?", b} for a, b in zip(piece, window, strict=True))


def _find(piece: str, text: str, start: int, end: int) -> int:
    if "?" not in piece:
        return text.find(piece, start, end)
    return next((n for n in range(start, end - len(piece) + 1) if _stands_at(piece, text, n)), -1)
