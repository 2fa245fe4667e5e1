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


def _latest(test: _Test) -> int:
    return -test.place


_EDGE = 3  # characters; patterns are told apart by so many of them at either end


class RuleTable:
    """The rules for one permission, in their order.

    A pattern without wildcards is looked up. The others are kept by the characters they begin with, or else
    end with, the last ones first, so that few are tried, and none that stands before what was found.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._plain: dict[str, int] = {}
        self._by_start: dict[str, list[_Test]] = {}
        self._by_end: dict[str, list[_Test]] = {}
        self._short: list[_Test] = []
        for place, rule in enumerate(self._rules):
            self._add(rule.pattern, place)
        self._short.sort(key=_latest)
        for start, tests in self._by_start.items():
            others = [test for test in self._short if start.startswith(test.beginning)]
            self._by_start[start] = sorted([*tests, *others], key=_latest)
        for tests in self._by_end.values():
            tests.sort(key=_latest)

    def last_match(self, resource: str) -> Rule | None:
        """The last rule whose pattern matches, if any does."""
        found = self._plain.get(resource, -1)
        found = _last_of(self._by_start.get(resource[:_EDGE], self._short), resource, found)
        if resource[-_EDGE:] in self._by_end:
            found = _last_of(self._by_end[resource[-_EDGE:]], resource, found)
        return self._rules[found] if found >= 0 else None

    def _add(self, pattern: str, place: int, *, whole: bool = True) -> None:
        if is_plain(pattern):
            self._plain[pattern] = place
            return
        if whole and pattern.endswith(" *"):  # which is optional, once
            self._add(pattern[:-2], place, whole=False)
        beginning, *_, ending = pattern.split("*") if "*" in pattern else ("", "")
        beginning, ending = beginning.partition("?")[0], ending.rpartition("?")[2]
        simple = pattern.count("*") == 1 and "?" not in pattern
        least = len(pattern) - pattern.count("*")
        test = _Test(place, beginning, ending, least, None if simple else pattern)
        if len(beginning) >= _EDGE:
            self._by_start.setdefault(beginning[:_EDGE], []).append(test)
        elif len(ending) >= _EDGE:
            self._by_end.setdefault(ending[-_EDGE:], []).append(test)
        else:
            self._short.append(test)


def _last_of(tests: list[_Test], resource: str, found: int) -> int:
    """The place of the first of these tests that holds, unless what was found stands behind it."""
    length = len(resource)
    for place, beginning, ending, least, pattern in tests:
        if place < found:
            break
        if (
            length >= least
            and resource.startswith(beginning)
            and resource.endswith(ending)
            and (pattern is None or matches_exactly(pattern, resource))
        ):
            return place
    return found
