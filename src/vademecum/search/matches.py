"""Which parts of a text a query matched, for showing them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vademecum.search.text_index import analyzer
from vademecum.skill.words import UNSPACED, prepared, simplified

_WORD = re.compile(r"[^\W_]+")


class Matches:
    """Finds the words of a query in a text, by the same rules as the search itself.

    >>> list(Matches({"compar", "file"}).spans("Compares two files"))
    [(0, 8), (13, 18)]
    """

    def __init__(self, terms: set[str]) -> None:
        self._terms = terms
        self._analyzer = analyzer()

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match, in order."""
        for word in _WORD.finditer(text):
            if UNSPACED.search(word[0]):
                yield from self._pairs(word)
            elif self._terms.intersection(self._analyzer.analyze(prepared(word[0]))):
                yield word.span()

    def _pairs(self, run: re.Match[str]) -> Iterator[tuple[int, int]]:
        for place in range(run.start(), run.end() - 1):
            if simplified(run.string[place : place + 2]) in self._terms:
                yield place, place + 2
