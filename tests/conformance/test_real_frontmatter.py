"""1,410 openings of real skills: what parses comes out exactly, nothing is lost without a reason."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.support import DATA
from vademecum import Reading
from vademecum.skill.document import parse_document

FILE = DATA / "frontmatter" / "real.jsonl"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not there (set VADE_SHARED_DATA)")


@cache
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def test_name_and_description_come_out_exactly() -> None:
    wrong = []
    for row in rows():
        if row["yaml"] == "ok":
            document = parse_document(row["head"].encode(), directory=row["dir"])
            given = (str(row.get("name") or "").strip(), str(row.get("description") or "").strip())
            if (document.name, document.description) != given:
                wrong.append(row["id"])
    assert wrong == []


def test_lenient_reading_loads_nearly_all() -> None:
    complete = [row for row in rows() if _has_name_and_description(row)]
    loaded = [row for row in complete if _lenient(row).valid]
    assert len(complete) > 1300
    assert len(loaded) / len(complete) >= 0.99


def test_nothing_is_dropped_without_a_reason() -> None:
    for row in rows():
        for reading in (Reading(), Reading(lenient=True)):
            document = parse_document(row["head"].encode(), directory=row["dir"], reading=reading)
            errors = [problem for problem in document.problems if problem.severity == "error"]
            assert document.valid == (not errors), row["id"]
            assert document.valid or all(error.message for error in errors)


def test_what_is_not_yaml_names_its_line() -> None:
    for row in rows():
        if row["yaml"].startswith("error"):
            (problem,) = parse_document(row["head"].encode(), directory=row["dir"]).problems
            assert (problem.code, problem.severity) == ("invalid-yaml", "error")
            assert problem.line is not None


def _has_name_and_description(row: dict[str, Any]) -> bool:
    lines = row["head"].splitlines()
    return row["yaml"] != "no-frontmatter" and all(
        any(line.startswith(f"{key}:") for line in lines) for key in ("name", "description")
    )


def _lenient(row: dict[str, Any]) -> Any:
    return parse_document(row["head"].encode(), directory=row["dir"], reading=Reading(lenient=True))
