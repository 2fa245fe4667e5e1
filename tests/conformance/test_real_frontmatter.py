"""1,410 openings of real skills: what parses comes out exactly, nothing is lost without a reason."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from tests.support import DATA
from vademecum import Reading
from vademecum.skill.document import parse_document
from vademecum.skill.frontmatter import find_block, read_plain_lines
from vademecum.skill.yaml_subset import read_fields

WITH_SECRETS = 128
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
    """A6: of those with a name and a description at least 99.5 % load, with the description as written."""
    complete = [row for row in rows() if _has_name_and_description(row)]
    loaded = [row for row in complete if _lenient(row).valid]
    assert len(complete) > 1300
    assert len(loaded) / len(complete) >= 0.995
    assert [row["id"] for row in loaded if _lenient(row).description != _description(row)] == []


def test_plain_lines_are_read_as_the_parser_reads_them() -> None:
    fast = 0
    for row in rows():
        block = find_block(row["head"].encode())
        plain = read_plain_lines(block) if isinstance(block, str) else None
        if isinstance(block, str) and plain is not None:
            fast += 1
            assert plain == read_fields(block), row["id"]
    assert fast > len(rows()) / 2


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


def test_secrets_that_real_skills_want() -> None:
    """P4: compare with what PyYAML makes of the same documents."""
    expected, found = {}, {}
    for row in rows():
        if row["yaml"] == "ok":
            metadata = (yaml.safe_load(row["head"].split("---")[1]) or {}).get("metadata")
            expected[row["id"]] = set(_required(metadata))
            document = parse_document(row["head"].encode(), directory=row["dir"])
            found[row["id"]] = set(document.meta.secrets)
            assert "secret-name" not in {problem.code for problem in document.problems}
    assert found == expected
    assert sum(map(bool, found.values())) == WITH_SECRETS


def _required(metadata: Any) -> list[str]:
    names: list[str] = []
    for runtime in ("openclaw", "clawdbot", "moltbot"):
        value = metadata.get(runtime) if isinstance(metadata, dict) else None
        requires = value.get("requires") if isinstance(value, dict) else None
        env = requires.get("env") if isinstance(requires, dict) else None
        names += [env] if isinstance(env, str) else env or []
    return names


def _has_name_and_description(row: dict[str, Any]) -> bool:
    lines = row["head"].splitlines()
    return all(any(line.startswith(f"{key}:") for line in lines) for key in ("name", "description"))


def _description(row: dict[str, Any]) -> str:
    """Return the description that YAML finds, else the rest of its line, escaped and cut as A6 says."""
    written = row.get("description")
    if written is None:
        lines = row["head"].splitlines()
        written = next(line.partition(":")[2] for line in lines if line.startswith("description:"))
    return str(written).strip()[:1024].replace("<", "&lt;").replace(">", "&gt;")


def _lenient(row: dict[str, Any]) -> Any:
    return parse_document(row["head"].encode(), directory=row["dir"], reading=Reading(lenient=True))
