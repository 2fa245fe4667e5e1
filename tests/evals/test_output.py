"""L1: what comes out of a run, checked: words, JSON, Markdown, files, a function, a command, a judge."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool, write
from vademecum.evals.checks.answers import judge_statements
from vademecum.evals.results import CheckResult
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
        ('Here:\n```json\n{"a": 1}\n```', {"json": {"schema": {"type": "object", "required": ["a"]}}}, []),
        ('{"a": "x"}', {"json": {"schema": {"properties": {"a": {"type": "integer"}}}}}, ["output JSON fits its schema"]),
        ("no", {"json": {"equals": 1}}, ["output JSON equals"]),
        ('{"a": 3}', {"json": {"path": "a"}}, []),
        ('{"a": 3}', {"json": {"path": "b"}}, ["output JSON at b is there"]),
        ('{"a": null}', {"json": {"path": "a", "equals": None}}, []),
        ('{"a": 1}', {"json": {"path": "a", "equals": None}}, ["output JSON at a equals"]),
        ('{"a": 3}', {"json": {"path": "a", "schema": {"type": "integer"}, "equals": 2}}, ["output JSON at a equals"]),
        ('{"a": 3}', {"json": {"path": "a", "schema": {"type": "string"}, "equals": 3}}, ["output JSON at a fits its schema"]),
        ('{"a": true}', {"json": {"path": "a", "equals": 1}}, ["output JSON at a equals"]),
        ('{"a": [1, {"b": false}]}', {"json": {"path": "a", "equals": [1, {"b": 0}]}}, ["output JSON at a equals"]),
        ('{"a": 1.0}', {"json": {"path": "a", "equals": 1}}, []),
        ('["x"]', {"json": {"path": "²", "equals": "x"}}, ["output JSON at ² equals"]),
        ('Options [1] and [2]: {"a": 1}', {"json": {"path": "a", "equals": 1}}, []),
        ('Options [1] and [2]: {"a": 1}', {"json": {"equals": {"a": 1}}}, []),
        ('{"a": "xay"}', {"json": {"schema": {"properties": {"a": {"pattern": "^(a+)+$"}}}}}, ["output JSON fits its schema"]),
        ('{"a": {"a": {"a": 1}}}', {"json": {"schema": {"$defs": {"t": {"properties": {"a": {"$ref": "#/$defs/t"}}, "type": "object"}}, "$ref": "#/$defs/t"}}}, ["output JSON fits its schema"]),
    ],
)  # fmt: skip
def test_what_an_answer_says(lab: Lab, answer: str, output: Any, wrong: list[str]) -> None:  # L1
    result = lab.one(case("x", final(answer), expected={"output": output}))
    assert [check.name for check in result.failed] == wrong
    assert result.outcome == ("fail" if wrong else "pass")


HOSTILE = """
from pathlib import Path
from vademecum.evals.cases import OutputChecks
from vademecum.evals.checks.programs import RunArtifacts
from vademecum.evals.checks.answers import check_output
wanted = OutputChecks.model_validate({"json": {"equals": 1}})
nowhere = Path("/nonexistent")
for answer in (
    ("```" + "a" * 120 + "\\n") * 3000,
    "\\n".join("`" * (300 - n % 290) + "a" for n in range(3000)),
    "# x" + " #" * 100_000 + "x",
    "|a|\\n" + "-" * 200_000 + "x",
    "[{" * 100_000,
    "1" * 200_000 + "\\n" + "- " * 100_000,
):
    left = RunArtifacts(answer, (), nowhere, nowhere, "")
    assert len(list(check_output(wanted, left))) == 1
"""


def test_no_answer_holds_up_its_checks() -> None:
    """Patterns that look back took minutes for each of these, and nothing could end them."""
    subprocess.run([sys.executable, "-c", HOSTILE], timeout=60, check=True)


def test_no_pattern_of_a_schema_holds_up_its_check(lab: Lab) -> None:
    """With a pattern that looks back this never ended, and neither time-out nor Ctrl-C could end it."""
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    answer = json.dumps({"a": f"{'a' * 5000}!"})
    result = lab.one(case("x", final(answer), expected={"output": {"json": {"schema": schema}}}))
    assert [check.name for check in result.failed] == ["output JSON fits its schema"]


def test_nothing_is_fetched_for_a_schema(lab: Lab) -> None:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/s.json"
        for schema in (
            {"$ref": address},
            {"$id": address, "$ref": "#/nope"},
            {"$schema": address, "type": "object"},
        ):
            with suppress(ValueError):
                wanted = {"output": {"json": {"schema": schema}}}
                result = lab.one(case(json.dumps(schema)[:99], final('{"a": 1}'), expected=wanted))
                assert result.outcome == ("pass" if "type" in schema else "error")
        server.shutdown()
    assert asked == []


def test_a_fault_of_the_case_is_not_the_models(lab: Lab) -> None:
    nowhere = {"output": {"json": {"schema": {"$ref": "#/nope"}}}}
    result = lab.one(case("reference", final("{}"), expected=nowhere))
    assert (result.outcome, "cannot be followed" in result.error) == ("error", True)
    missing = {"output": {"command": {"argv": ["python", "check.py"], "files": ["check.py"]}}}
    result = lab.one(case("missing", final(), expected=missing))
    assert (result.outcome, "not beside it" in result.error) == ("error", True)
    program = {"output": {"command": {"argv": ["no-such-program"]}}}
    result = lab.one(case("program", final(), expected=program))
    assert (result.outcome, result.error) == (
        "error",
        "The command 'no-such-program' is not installed here.",
    )


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


def test_programs_check_in_the_sandbox(lab: Lab, tmp_path: Path) -> None:
    private = write(tmp_path / "private.txt", "nothing for checks")
    # One sandbox says that the file is not there, the other that it may not be read.
    check = (
        "import os, sys\n"
        "try:\n"
        f"    sys.exit('it has read ' + open({str(private)!r}).read())\n"
        "except OSError:\n"
        "    sys.exit(open('a.txt').read() != 'x')\n"
    )
    write(tmp_path / "cases/check.py", check)
    turns = [tool("write_file", path="a.txt", content="x"), final()]
    sees = {"argv": ["python", "check.py"], "files": ["check.py"]}
    only = case("sees", *turns, expected={"output": {"command": sees}})
    assert lab.one(only.model_copy(update={"place": str(tmp_path / "cases")})).outcome == "pass"
    command = {"argv": ["grep", "-q", "x", "a.txt"]}
    assert lab.one(case("command", *turns, expected={"output": {"command": command}})).outcome == "pass"
    wrong = lab.one(case("exit", *turns, expected={"output": {"command": {**command, "exit_code": 3}}}))
    assert [(check.name, check.detail[:11]) for check in wrong.failed] == [
        ("command grep -q x a.txt", "exit code 0")
    ]


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
