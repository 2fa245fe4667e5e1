"""Match patterns with ``*`` and ``?`` against whole texts, exactly as written and in linear time."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache, partial

# Return the normalized spelling in which names and patterns are compared.
comparable = partial(unicodedata.normalize, "NFKC")


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text: ``*`` is any text, ``?`` is one character.

    A trailing `` *`` is optional, so that ``git *`` also matches ``git``.

    >>> matches("git *", "git"), matches("git *", "gitk"), matches("a?c*", "abcd"), matches("[a]", "a")
    (True, False, True, False)
    """
    return matches_exactly(pattern, text) or (pattern.endswith(" *") and matches_exactly(pattern[:-2], text))


def matches_exactly(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text, without an optional end."""
    return _expression(pattern).fullmatch(text) is not None


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has no wildcard."""
    return "*" not in pattern and "?" not in pattern


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that finds the pieces between stars from left to right.

    Each piece is matched as early as possible: if the text matches at all, it matches this way. Therefore
    the groups are atomic, and nothing is tried twice.
    """
    first, *rest = (re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*"))
    between = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile(f"{first}{between}{f'.*{rest[-1]}' if rest else ''}", re.DOTALL)
