"""O5: sixty cases, nine kinds of planted faults: each is caught and named, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.agent.support import Stage
from tests.evals.support import final, script, select, tool, write
from tests.support import Place

RUN = "scripts/x.py"
EXPECTED: dict[str, Any] = {
    "skills_any_of": ["demo"],
    "skills_none_of": ["other"],
    "trajectory": [
        {"must_occur": "load_skill:demo", "before": "run_script"},
        {"never": "delete_file"},
        {"before": ["approval", "tool:run_script"]},
    ],
    "output": {"contains": ["总计 42"]},
}
GOOD = [select("demo"), script("demo", RUN), final("总计 42")]
QUICK = [select("demo"), tool("read_file", path="a.txt"), final("总计 42")]
# Whoever runs the suite lets files be written without a question: these cases find out.
WRITE = [select("demo"), tool("write_file", path="b.txt", content="x"), final("总计 42")]
CAREFUL = {**EXPECTED, "trajectory": [{"before": ["approval", "tool:write_file"]}]}
LIMITS = {"max_turns": 5, "max_tool_calls": 2, "deny_tools": ["write_file"], "max_seconds": 300}


def good(number: int, **fields: Any) -> dict[str, Any]:
    found = {"id": f"good-{number}", "input": f"第 {number} 次", "expected": EXPECTED, "constraints": LIMITS}
    turns = GOOD if number % 6 == 0 else QUICK
    return {**found, "files": {"a.txt": "42"}, "mock": {"turns": turns, "piece": number % 5}, **fields}


def faulty(name: str, number: int, turns: list[Any], **fields: Any) -> dict[str, Any]:
    return good(number, id=f"{name}-{number}", mock={"turns": turns}, **fields)


def suite() -> list[Any]:
    cases: list[Any] = [good(n) for n in range(33)]
    for n in range(3):
        delay = {"seconds": 30, "reply": final("总计 42")}
        cases += [
            faulty(
                "wrong-skill", n, [select("other"), final("总计 42")], expected={**EXPECTED, "trajectory": []}
            ),
            faulty("wrong-order", n, [script("demo", RUN), select("demo"), final("总计 42")]),
            faulty(
                "forbidden-tool",
                n,
                [select("demo"), tool("write_file", path="b", content="c"), final("总计 42")],
            ),
            faulty(
                "budget-broken", n, [select("demo"), *[tool("read_file", path="a.txt")] * 3, final("总计 42")]
            ),
            faulty("approval-skipped", n, WRITE, expected=CAREFUL, constraints={}),
            faulty("wrong-output", n, [select("demo"), final("总计 41")]),
            faulty("time-out", n, [select("demo"), delay], constraints={**LIMITS, "max_seconds": 0.3}),
            faulty("crash", n, [select("demo"), {"error": "crash", "message": "boom"}]),
            {"id": f"malformed-{n}", "input": "x", "expected": {"skils_any_of": ["demo"]}},
        ]
    return cases


NAMED = {
    "wrong-skill": ("fail", ["skills_any_of demo", "skills_none_of other"]),
    "wrong-order": ("fail", ["load_skill:demo before run_script"]),
    "forbidden-tool": ("fail", ["deny_tools write_file"]),
    "budget-broken": ("fail", ["max_tool_calls"]),
    "approval-skipped": ("fail", ["approval before tool:write_file"]),
    "wrong-output": ("fail", ["output contains '总计 42'"]),
    "time-out": ("timeout", []),
    "crash": ("error", []),
    "good": ("pass", []),
}


def test_every_fault_is_caught_and_named_and_nothing_else(place: Place, tmp_path: Path) -> None:
    stage = Stage(place)
    stage.script("demo", "print(42)\n")
    stage.skill("other")
    write(tmp_path / "suite/cases.json", suite())
    words = ["--yes", "--allow", "write_file", "--json", "-j", "4"]
    done = place.vade("eval", "run", str(tmp_path / "suite"), *words)
    assert done.code == 1, done.err
    report = done.json
    assert len(report["results"]) + len(report["malformed"]) == 60
    for result in report["results"]:
        kind = result["case"].rpartition("-")[0]
        outcome, names = NAMED[kind]
        assert (result["outcome"], [c["name"] for c in result["checks"] if c["holds"] == "fail"]) == (
            outcome,
            names,
        ), result
        if kind == "crash":
            assert result["error"].startswith("Unexpected RuntimeError: boom\nWhat was done:")
        if kind == "time-out":
            assert result["error"].startswith("It did not finish within 0.3 s")
    assert [
        (wrong["file"], wrong["case"], wrong["field"], wrong["message"]) for wrong in report["malformed"]
    ] == [
        (
            "cases.json",
            f"malformed-{n}",
            "expected.skils_any_of",
            "there is no such field: did you mean 'skills_any_of'?",
        )
        for n in range(3)
    ]
