"""L1: what comes out of a run, checked: words, JSON, Markdown, files, a function, a command, a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool, write
from vademecum.evals.checks import Check
from vademecum.evals.judging import judge_pair, judge_statements
from vademecum.models import scripted

TABLE = (
    "# Result\n\n| 城市 | people |\n|---|---|\n| Oslo | 7 |\n\n- one\n- two\n\n```python\n# no heading\n```\n"
)


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
        (TABLE, {"markdown": {"headings": ["Result"], "table_columns": ["城市"], "code": "python", "list_items": 2}}, []),
        (TABLE, {"markdown": {"headings": ["no heading"]}}, ["output has the heading 'no heading'"]),
        (TABLE, {"markdown": {"table_columns": ["town"]}}, ["output has a table with town"]),
        (TABLE, {"markdown": {"code": "rust"}}, ["output has code (rust)"]),
        (TABLE, {"markdown": {"list_items": 3}}, ["output has 3 list items"]),
    ],
)  # fmt: skip
def test_what_an_answer_says(lab: Lab, answer: str, output: Any, wrong: list[str]) -> None:  # L1
    result = lab.one(case("x", final(answer), expected={"output": output}))
    assert [check.name for check in result.failed] == wrong
    assert result.outcome == ("fail" if wrong else "pass")


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
    checks = (
        "import os\n"
        "def polite(left): return 'please' in left['answer']\n"
        "def says(left): return 'it is rude'\n"
        "def crash(left): raise RuntimeError('broken check')\n"
        "def sees(left): return open(left['project'] + '/a.txt').read() == 'x' and 'home' not in os.listdir(left['project'] + '/..')\n"
    )
    write(tmp_path / "cases/checks.py", checks)
    found = {}
    for name in ("polite", "says", "crash", "sees"):
        fields: dict[str, Any] = {
            "files": {"a.txt": "x"},
            "expected": {"output": {"python": f"checks.py:{name}"}},
        }
        only = case(name, final("yes, please"), **fields).model_copy(
            update={"place": str(tmp_path / "cases")}
        )
        found[name] = lab.one(only)
    assert [found[name].outcome for name in ("polite", "says", "crash", "sees")] == [
        "pass",
        "fail",
        "fail",
        "pass",
    ]
    assert "it is rude" in found["says"].why
    assert "broken check" in found["crash"].why
    command = {"argv": ["grep", "-q", "x", "a.txt"]}
    turns = [tool("write_file", path="a.txt", content="x"), final()]
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
        ["It is polite.", "It is complete."], "please </answer>", request="?", judge=judge
    )
    assert found == [
        Check("judged: It is polite.", "pass", "please", judge="scripted"),
        Check("judged: It is complete.", "fail", "too short", judge="scripted"),
    ]
    assert "please &lt;/answer>" in judge.seen[0][1].content
    expected = {"output": {"judge": ["It is polite."]}}
    assert lab.one(case("nobody", final(), expected=expected)).outcome == "unjudged"
    lab.models["referee"] = scripted(['{"verdicts": [{"passed": true}]}'])
    import msgspec

    result = lab.one(
        case("judged", final(), expected=expected), msgspec.structs.replace(BASE, judge="referee")
    )
    assert (result.outcome, [check.judge for check in result.checks if check.judge]) == ("pass", ["scripted"])
    lab.models["silent"] = scripted(["I would rather not."])
    broken = lab.one(
        case("broken", final(), expected=expected), msgspec.structs.replace(BASE, judge="silent")
    )
    assert (broken.outcome, broken.error) == ("error", "The judge scripted did not answer with JSON.")


def test_pairs_are_judged_in_both_orders() -> None:
    judge = scripted(['{"better": "B"}', '{"better": "A"}'])
    assert judge_pair("q", "first", "second", judge=judge) == "second"
    texts = [asked[1].content for asked in judge.seen]
    assert [text.index("first") < text.index("second") for text in texts] == [True, False]
    assert judge_pair("q", "a", "b", judge=scripted(['{"better": "B"}'])) == "tie"


def test_status_and_skills(lab: Lab) -> None:
    turns = [select("file-diff"), final("no", complete=False)]
    result = lab.one(
        case("x", *turns, expected={"status": "done", "skills_all_of": ["file-diff", "csv-summary"]})
    )
    assert [(check.name, check.detail) for check in result.failed] == [
        ("skills_all_of file-diff, csv-summary", "it took file-diff"),
        ("status done", "it is degraded"),
    ]
