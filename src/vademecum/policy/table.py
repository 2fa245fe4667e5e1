"""Ordered rules → the last one that matches, without trying each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vademecum.policy.base import Rule
from vademecum.wildcards import is_plain, matches_exactly


class _Test(NamedTuple):
    """One pattern, and what can be told of it quickly: how a text must begin and end, its least length."""

    place: int
    beginning: str
    ending: str
    least: int
    pattern: str | None


class RuleTable:
    """The rules for one permission, in their order.

    A pattern without wildcards is looked up. The others are kept by the character they begin with, the last
    ones first, so that few are tried, and none that stands before what was found.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._plain: dict[str, int] = {}
        self._by_first: dict[str, list[_Test]] = {}
        self._anywhere: list[_Test] = []
        for place, rule in enumerate(self._rules):
            self._add(rule.pattern, place)
        self._anywhere.reverse()
        for first, tests in self._by_first.items():
            self._by_first[first] = sorted([*tests, *self._anywhere], key=lambda test: -test.place)

    def last_match(self, resource: str) -> Rule | None:
        """The last rule whose pattern matches, if any does."""
        found = self._plain.get(resource, -1)
        length = len(resource)
        for place, beginning, ending, least, pattern in self._by_first.get(resource[:1], self._anywhere):
            if place < found:
                break
            if (
                length >= least
                and resource.startswith(beginning)
                and resource.endswith(ending)
                and (pattern is None or matches_exactly(pattern, resource))
            ):
                found = place
                break
        return self._rules[found] if found >= 0 else None

    def _add(self, pattern: str, place: int) -> None:
        if is_plain(pattern):
            self._plain[pattern] = place
            return
        if pattern.endswith(" *"):  # which is optional
            self._add(pattern[:-2], place)
        beginning, *_, ending = pattern.split("*") if "*" in pattern else ("", "")
        beginning, ending = beginning.partition("?")[0], ending.rpartition("?")[2]
        simple = pattern.count("*") == 1 and "?" not in pattern
        least = len(pattern) - pattern.count("*")
        test = _Test(place, beginning, ending, least, None if simple else pattern)
        if beginning:
            self._by_first.setdefault(beginning[0], []).append(test)
        else:
            self._anywhere.append(test)
