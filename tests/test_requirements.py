"""Tests name the rows of docs/requirements.md that they prove: every name exists, and every row is proved or planned."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs/requirements.md"
PLANNED = "**Planned.**"

_TAG = r"[A-S]\d{1,2}"
_TAGS = re.compile(rf"\s*({_TAG}(?:-{_TAG})?(?:, {_TAG}(?:-{_TAG})?)*)(?!\w)")


def tags_in(text: str) -> Iterator[str]:
    """The rows that a comment or a docstring names at its beginning.

    >>> list(tags_in(" B9-B11, A8: the index")), list(tags_in("noqa: B008"))
    (['B9', 'B10', 'B11', 'A8'], [])
    """
    found = _TAGS.match(text)
    for part in found[1].split(", ") if found else ():
        first, _, last = part.partition("-")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"{first[0]}{number}"


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#")


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_tests_and_requirements_name_each_other() -> None:
    rows = dict(re.findall(rf"^\| ({_TAG}) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    used: dict[str, str] = {}
    for file in sorted(TESTS.rglob("*.py")):
        source = file.read_text("utf-8")
        for text in (*comments(source), *docstrings(source)):
            used |= dict.fromkeys(tags_in(text), file.name)
    assert len(rows) > 80
    assert {tag: file for tag, file in used.items() if tag not in rows} == {}
    proved_or_planned = used.keys() | {tag for tag, text in rows.items() if text.startswith(PLANNED)}
    assert rows.keys() - proved_or_planned == set()
