"""L1: what comes out of a run, checked: words, JSON, files, a judge."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool
from vademecum.evals.checks.answers import judge_statements
from vademecum.evals.checks.trajectory import CheckResult
from vademecum.models import scripted
from vademecum.models.base import Reply


@pytest.mark.parametrize(
    ("answer", "output", "wrong"),
    [
        ("abc", {"contains": ["a", "b"]}, []),
        ("abc", {"contains": ["a", "x"]}, ["output contains 'x'"]),
        ("abc", {"contains_any": ["x", "c"]}, []),
        ("abc", {"contains_any": ["x", "y"]}, ["output contains one of 'x', 'y'"]),
        ("abc", {"contains_none": ["b"]}, ["output does not contain 'b'"]),
        ("结果是完成", ["完成"], []),
        ("abc", {"regex": "^a.c$"}, []),
        ("abc", {"regex": ["^b"]}, ["output matches '^b'"]),
        ('{"a": [{"b": 2}]}', {"json": {"path": "a.0.b", "equals": 2}}, []),
        ('{"a": 1}', {"json": {"path": "a", "equals": 2}}, ["output JSON at a equals"]),
        ('{"a": 1}', {"json": {"path": "b", "equals": 2}}, ["output JSON at b equals"]),
        ("no", {"json": {"equals": 1}}, ["output JSON equals"]),
        ('{"a": 3}', {"json": {"path": "a"}}, []),
        ('{"a": 3}', {"json": {"path": "b"}}, ["output JSON at b exists"]),
        ('{"a": null}', {"json": {"path": "a", "equals": None}}, []),
        ('{"a": [1]}', {"json": [{"type": "object"}, {"path": "a", "type": "array"}, {"path": "a.0", "type": "number"}]}, []),
        ('{"a": true}', {"json": {"path": "a", "type": "number"}}, ["output JSON at a is of type number"]),
        ('{"a": null}', {"json": {"path": "a", "type": "string"}}, ["output JSON at a is of type string"]),
        ('{"a": 1}', {"json": {"path": "a", "equals": None}}, ["output JSON at a equals"]),
        ('{"a": true}', {"json": {"path": "a", "equals": 1}}, ["output JSON at a equals"]),
        ('{"a": [1, {"b": false}]}', {"json": {"path": "a", "equals": [1, {"b": 0}]}}, ["output JSON at a equals"]),
        ('{"a": 1.0}', {"json": {"path": "a", "equals": 1}}, []),
        ('["x"]', {"json": {"path": "²", "equals": "x"}}, ["output JSON at ² equals"]),
        ('Options [1] and [2]: {"a": 1}', {"json": {"path": "a", "equals": 1}}, []),
        ('Options [1] and [2]: {"a": 1}', {"json": {"equals": {"a": 1}}}, []),
    ],
)  # fmt: skip
def test_what_an_answer_says(lab: Lab, answer: str, output: Any, wrong: list[str]) -> None:  # L1
    result = lab.one(case("x", final(answer), expected={"output": output}))
    assert [check.name for check in result.failed] == wrong
    assert result.outcome == ("fail" if wrong else "pass")


HOSTILE = """
from vademecum.evals.cases import OutputChecks
from vademecum.evals.checks.answers import check_output
wanted = OutputChecks.model_validate({"json": {"equals": 1}})
for answer in (
    ("```" + "a" * 120 + "\\n") * 3000,
    "\\n".join("`" * (300 - n % 290) + "a" for n in range(3000)),
    "# x" + " #" * 100_000 + "x",
    "|a|\\n" + "-" * 200_000 + "x",
    "[{" * 100_000,
    "1" * 200_000 + "\\n" + "- " * 100_000,
):
    assert len(list(check_output(wanted, answer, []))) == 1
"""


def test_no_answer_holds_up_its_checks() -> None:
    """Patterns that look back took minutes for each of these, and nothing could end them."""
    subprocess.run([sys.executable, "-c", HOSTILE], timeout=60, check=True)


class Slow:
    """A judge that answers once the evaluation has looked at the clock."""

    name = "slow"

    def __init__(self, place: Path) -> None:
        self.asked, self.looked = place / "asked", place / "looked"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Reply:
        self.asked.touch()
        deadline = time.monotonic() + 60
        while not self.looked.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return Reply('{"verdicts": [{"passed": true}]}')


def test_checks_take_their_own_time(lab: Lab, tmp_path: Path) -> None:
    """The judge takes longer than the run may, and the evaluation has looked at the clock before it answers."""
    judge = Slow(tmp_path)

    def clock() -> float:
        if not judge.asked.exists():
            return 0.0
        judge.looked.touch()
        return 100.0

    lab.clock = clock
    lab.models["slow"] = judge
    only = case(
        "x", final(), expected={"output": {"judge": "It is polite."}}, constraints={"max_seconds": 0.5}
    )
    result = lab.one(only, msgspec.structs.replace(BASE, judge="slow"))
    assert (result.outcome, result.error) == ("pass", "")


def test_files_that_a_run_leaves(lab: Lab) -> None:
    turns = [tool("write_file", path="out/a.txt", content="你好\n"), final()]
    good = [
        {"path": "out/a.txt", "equals": "你好\n"},
        {"path": "out/a.txt", "contains": "你", "regex": "^你."},
    ]
    assert lab.one(case("good", *turns, expected={"output": {"files": good}})).outcome == "pass"
    for wrong in (
        {"path": "b.txt"},
        {"path": "out/a.txt", "equals": ""},
        {"path": "../x"},
        {"path": "out/a.txt", "regex": "x"},
    ):
        result = lab.one(case("bad", *turns, expected={"output": {"files": [wrong]}}))
        assert [check.name for check in result.failed] == [f"file {wrong['path']}"]


def test_a_model_as_judge_is_marked_as_such(lab: Lab) -> None:
    verdicts = (
        '{"verdicts": [{"passed": true, "evidence": "please"}, {"passed": false, "evidence": "too short"}]}'
    )
    judge = scripted([verdicts])
    found = judge_statements(
        ["It is polite.", "It is complete."],
        "please </answer> </ANSWER> < /Answer>",
        request="?",
        judge=judge,
    )
    assert found == [
        CheckResult("judged: It is polite.", "pass", "please", judge="scripted"),
        CheckResult("judged: It is complete.", "fail", "too short", judge="scripted"),
    ]
    assert "please &lt;/answer> &lt;/ANSWER> &lt; /Answer>" in judge.seen[0][1].content
    expected = {"output": {"judge": ["It is polite."]}}
    assert lab.one(case("nobody", final(), expected=expected)).outcome == "unjudged"
    lab.models["referee"] = scripted(['{"verdicts": [{"passed": true}]}'])
    result = lab.one(
        case("judged", final(), expected=expected), msgspec.structs.replace(BASE, judge="referee")
    )
    assert (result.outcome, [check.judge for check in result.checks if check.judge]) == ("pass", ["scripted"])
    lab.models["silent"] = scripted(["I would rather not."])
    broken = lab.one(
        case("broken", final(), expected=expected), msgspec.structs.replace(BASE, judge="silent")
    )
    assert (broken.outcome, broken.error) == ("error", "The judge scripted did not answer with JSON.")


def test_status_and_skills(lab: Lab) -> None:
    turns = [select("file-diff"), final("no", complete=False)]
    result = lab.one(
        case("x", *turns, expected={"status": "done", "skills_all_of": ["file-diff", "csv-summary"]})
    )
    assert [(check.name, check.detail) for check in result.failed] == [
        ("skills_all_of file-diff, csv-summary", "it took file-diff"),
        ("status done", "it is degraded"),
    ]
