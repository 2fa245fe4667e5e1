"""O5: `vade eval` as a person and as CI run it: text, JSON, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.evals.support import final, select, write
from tests.support import VADE, Place, write_skill
from tests.support import Result as Done
from vademecum import BUILTIN_ROOT
from vademecum.cli.eval.reporting import EvalProgress
from vademecum.cli.main import run
from vademecum.evals.results import CaseResult

Vade = Callable[..., Done]


@pytest.fixture
def vade(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Vade:
    """The command in this process, which saves its start; `test_the_installed_command` starts it."""
    monkeypatch.chdir(place.cwd)
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)

    def command(*words: str) -> Done:
        capfd.readouterr()
        code = run(words)
        return Done(code, *capfd.readouterr())

    return command


@pytest.mark.parametrize("skill", ["file-diff", "csv-summary", "skill-author"])
def test_the_suites_of_the_built_in_skills(vade: Vade, skill: str) -> None:  # O5
    done = vade("eval", "run", skill, "--yes", "--json")
    assert done.code == 0, [(r["case"], r["checks"]) for r in done.json["results"] if r["outcome"] != "pass"]
    assert done.json["passed"]
    assert len(done.json["results"]) >= 6
    (column,) = done.json["columns"]
    assert column["triggers"]["overall"]["missed"] == column["triggers"]["overall"]["wrongly_taken"] == 0


def test_text_says_what_did_not_pass_and_why(place: Place, vade: Vade) -> None:
    cases = [
        {"id": "good", "input": "x", "mock": {"turns": [final("好")]}, "expected": {"output": "好"}},
        {"id": "坏", "input": "x", "mock": {"turns": [final("no")]}, "expected": {"output": "好"}},
        {"id": "odd", "inputs": "x"},
    ]
    write(place.cwd / "suite/cases.json", cases)
    done = vade("eval", "run", "suite")
    assert done.code == 1
    lines = done.out.splitlines()
    told = ["    asked: x", "    expected: output contains '好'", "    answered: no"]
    assert lines[:5] == ["✗ 坏: output contains '好': the answer is 'no'", *told, "✓ good"]
    assert "✗ malformed cases.json, case odd, field input: Field required" in lines
    assert any(line.startswith("default") and "1 of 2" in line and "9.5% to 90.5%" in line for line in lines)
    assert vade("eval", "report").out == done.out
    assert vade("eval", "report", "suite", "--json").json["columns"][0]["rate"]["passed"] == 1


def test_every_configuration_has_its_name_and_its_figures(place: Place, vade: Vade) -> None:
    names = ["skills_any_of", "skills_none_of"]
    cases = [
        {"id": name, "input": "x", "expected": {name: "file-diff"}, "mock": {"turns": [select("file-diff"), final("a")]}}
        for name in names
    ]  # fmt: skip
    cases += [{"id": "bad", "input": "x", "mock": {"turns": ["no", "no", "no", "no"]}}]
    cases += [
        {"id": "ask", "input": "x", "expected": {"output": {"judge": "kind"}}, "mock": {"turns": [final()]}}
    ]
    write(place.cwd / "cases.json", cases)
    lines = vade("eval", "run", "cases.json", "--without", "file-diff").out.splitlines()
    assert ["with_skill", "without_skill"] in [line.split() for line in lines]
    assert "…" not in "".join(line for line in lines if line.startswith(("precision", "not judged", "95 %")))
    assert lines[2] == "    asked: x"  # once, below the results of both configurations


def test_requests_one_in_a_line(place: Place, vade: Vade) -> None:
    """`queries-none.jsonl` has requests that no skill should take: `gold` is empty."""
    text = '{"query": "how are you?", "gold": []}\n{"query": "Compare a.txt with b.txt", "gold": ["file-diff"]}\n'
    (place.cwd / "queries.jsonl").write_text(text)
    done = vade("eval", "run", "queries.jsonl", "--json")
    found = done.json["columns"][0]["triggers"]
    assert (done.code, found["negatives"], found["false_triggers"], found["overall"]["right"]) == (0, 1, 0, 1)


def test_a_suite_by_the_name_of_its_skill_is_about_that_skill(place: Place, vade: Vade) -> None:
    entries = [
        {"query": "Compare a.txt with b.txt", "should_trigger": True},
        {"query": "Summarise sales.csv", "should_trigger": False},
    ]
    triggers = write(place.cwd / ".agent/evals/file-diff/triggers.json", entries)
    found = vade("eval", "run", "file-diff", "--json").json
    assert (found["malformed"], found["skill"], found["columns"][0]["rate"]["passed"]) == ([], "file-diff", 2)
    assert found["columns"][0]["triggers"]["negatives"] == 1  # another skill may take it
    write(triggers, [*entries, {"query": ""}])
    (place.cwd / "c.txt").write_text("Compare.\n")
    done = vade("eval", "improve", "file-diff", "--candidates", "c.txt")
    said = "1 case cannot be read: triggers.json, case #3, field query: it has no text under query."
    assert (done.code, said in done.err) == (1, True), done.err


def test_before_and_after_an_edit(place: Place, vade: Vade) -> None:  # L2
    skill = place.cwd / ".agent/skills/greeter"
    text = "---\nname: greeter\ndescription: {}\n---\nSay hello.\n"
    queries = [
        "greet the new colleague",
        "say welcome to our guest",
        "欢迎新同事",
        "greet a guest with a note",
    ]
    queries += ["welcome our new colleagues", "greet people and guests"]
    entries = [{"query": query, "should_trigger": True} for query in queries]
    write_skill(skill.parent, "greeter", text.format("Does things."))
    write(skill / "evals/triggers.json", {"triggers": entries})
    assert vade("eval", "run", "greeter", "--out", "old").code == 1
    better = "Greet and welcome people, guests and new colleagues with a note. 欢迎新同事。"
    write_skill(skill.parent, "greeter", text.format(better))
    assert vade("eval", "run", "greeter", "--out", "new").code == 0
    there = vade("eval", "compare", "old", "new", "--fail-on", "regression")
    assert there.code == 0
    assert "better: +100.0% from old to new" in there.out
    beside = vade("eval", "report", "new", "--against", "old", "--json").json
    assert [(c["configuration"], c["rate"]["passed"]) for c in beside["columns"]] == [("new", 6), ("old", 0)]
    assert (
        vade("eval", "report", "new", "--against", "old", "--html", "r.html").out
        == "Wrote r.html and 12 pages of runs\n"
    )
    back = vade("eval", "compare", "new", "old", "--fail-on", "regression")
    assert back.code == 1
    assert "passed every time, and now fail every time: greet-the-new-colleague" in back.out
    assert vade("eval", "compare", "new", "old").code == 0
    found = vade("eval", "compare", "old", "old", "--fail-on", "inconclusive", "--json")
    assert (found.code, found.json["regression"], found.json["comparisons"][0]["verdict"]) == (
        1,
        False,
        "inconclusive",
    )


PASSING: list[dict[str, object]] = [
    {"id": f"c{n}", "input": "x", "mock": {"turns": [final("yes")]}, "expected": {"output": "yes"}}
    for n in range(5)
]
BROKEN: dict[str, list[dict[str, object]]] = {
    "crash": [{**one, "mock": {"turns": [{"error": "crash"}]}} for one in PASSING],
    "garbage": [{**one, "mock": {"turns": ["garbage"]}} for one in PASSING],
    "renamed": [{**one, "id": f"new-{one['id']}"} for one in PASSING],
    "malformed": [PASSING[0], *({**one, "expectd": 1} for one in PASSING[1:])],
    "unjudged": [{**one, "expected": {"output": {"judge": "It is kind."}}} for one in PASSING],
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_gate_is_shut_when_nobody_knows(place: Place, vade: Vade, how: str) -> None:
    """In CI: what passed before and now crashes, is gone or cannot be read is no success."""
    write(place.cwd / "old.json", PASSING)
    write(place.cwd / "new.json", BROKEN[how])
    assert vade("eval", "run", "old.json", "--out", "old").code == 0
    assert vade("eval", "run", "new.json", "--out", "new").code == (0 if how == "renamed" else 1)
    done = vade("eval", "compare", "old", "new", "--fail-on", "regression")
    assert (done.code, "passed before, and now have no verdict: c" in done.out) == (1, True)
    found = vade("eval", "compare", "old", "new", "--fail-on", "regression", "--json")
    (one,) = found.json["comparisons"]
    assert (found.code, found.json["regression"], one["regression"], one["verdict"]) == (
        1,
        True,
        True,
        "inconclusive",
    )
    assert set(one["lost"]) == {f"c{n}" for n in range(1 if how == "malformed" else 0, 5)}
    assert vade("eval", "compare", "old", "new").code == 0
    assert vade("eval", "compare", "old", "old", "--fail-on", "regression").code == 0


def test_every_run_has_to_pass(place: Place, vade: Vade) -> None:
    """One pass, then errors: neither the exit code nor the JSON calls that passed."""
    turns = [json.dumps(final("yes")), "garbage", "garbage", "garbage"]
    tape = write(place.cwd / "turns.json", turns)
    case = {"id": "x", "input": "x", "repeat": 2, "expected": {"output": "yes"}}
    write(place.cwd / "cases.json", [case])
    done = vade("eval", "run", "cases.json", "--model", f"scripted:{tape}", "-j", "1", "--json")
    assert [result["outcome"] for result in done.json["results"]] == ["pass", "unusable"]
    assert (done.code, done.json["passed"], done.json["rows"][0]["mark"]) == (1, False, "unusable")
    shown = vade("eval", "report").out
    assert "! x unusable: 1 of 2 passed" in shown


def test_the_same_results_in_two_evaluations(place: Place, vade: Vade) -> None:
    """What was run before is not run again, and stands in its own column in every report."""
    expected = {"skills_any_of": ["file-diff"]}
    write(
        place.cwd / "cases.json",
        [{"id": "a", "input": "x", "mock": {"turns": [select("file-diff"), final()]}, "expected": expected}],
    )
    assert vade("eval", "run", "cases.json", "--yes").code == 0
    both = vade("eval", "run", "cases.json", "--yes", "--without", "file-diff", "--json").json
    assert [(c["configuration"], c["rate"]["passed"], c["rate"]["total"]) for c in both["columns"]] == [
        ("with_skill", 1, 1),
        ("without_skill", 0, 1),
    ]
    words = ["--html", "r.html"]
    assert vade("eval", "report", *words).code == 0


def test_marks_stand_apart(place: Place, vade: Vade) -> None:
    slow = {
        "id": "slow",
        "input": "x",
        "mock": {"turns": [{"seconds": 9, "reply": final()}]},
        "constraints": {"max_seconds": 0.1},
    }
    crash = {"id": "bye", "input": "x", "mock": {"turns": [{"error": "crash", "message": "boom"}]}}
    write(place.cwd / "cases.json", [slow, crash, {"id": "none", "input": "x", "mock": {"turns": [final()]}}])
    lines = vade("eval", "run", "cases.json").out.splitlines()
    assert lines[0].startswith("⧖ slow timeout: It did not finish within 0.1 s")
    assert "! bye error: Unexpected RuntimeError: boom" in lines
    assert lines[1:3] == ["    asked: x", "    expected: max_seconds 0.1"]
    assert "bye, none expect nothing: they always pass" in lines


def test_a_report_in_every_form(place: Place, vade: Vade) -> None:
    vade("eval", "run", "skill-author", "--yes")
    words = ["--html", "r.html"]
    done = vade("eval", "report", *words)
    assert done.code == 0
    assert done.out.splitlines() == [
        "Wrote r.html and 6 pages of runs",
    ]
    assert all((place.cwd / name).stat().st_size > 300 for name in ("r.html",))


def test_a_first_suite(place: Place, vade: Vade) -> None:
    done = vade("eval", "init", "csv-summary")
    assert done.out.splitlines()[-2:] == [
        "Edit it, then: vade eval run csv-summary",
        f"vade eval runs it instead of the skill's own cases in {BUILTIN_ROOT}/csv-summary/evals",
    ]
    assert vade("eval", "run", "csv-summary").code == 0
    again = vade("eval", "init", "csv-summary")
    assert (again.code, again.err) == (
        1,
        f"vade: {place.cwd}/.agent/evals/csv-summary exists already: edit it, or remove it first.\n",
    )
    assert [Path(path).name for path in vade("eval", "init", "file-diff", "--json").json["written"]] == [
        "triggers.json",
    ]


def test_what_nobody_approved_is_said(vade: Vade) -> None:
    done = vade("eval", "run", "csv-summary")
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("nobody could approve something: --yes approves it")
    assert "--yes" not in vade("eval", "run", "csv-summary", "--yes", "--out", "approved").err


def test_options_that_choose(place: Place, vade: Vade) -> None:
    cases = [
        {"id": "slow", "input": "x", "tags": ["slow"], "mock": {"turns": [final()]}},
        {"id": "fast", "input": "x", "mock": {"turns": [select("file-diff"), final()]}, "expected": {"skills_any_of": ["file-diff"]}},
    ]  # fmt: skip
    suite = str(write(place.cwd / "cases.json", cases))
    only = vade("eval", "run", suite, "--tag", "slow", "--repeat", "3", "--json").json
    assert [(r["case"], r["repetition"]) for r in only["results"]] == [("slow", 1), ("slow", 2), ("slow", 3)]
    mock = vade("eval", "run", suite, "--model", "mock", "--json").json
    assert [column["configuration"] for column in mock["columns"]] == ["default"]
    both = vade("eval", "run", suite, "--without", "file-diff", "--json")
    assert both.code == 1
    assert [column["rate"]["passed"] for column in both.json["columns"]] == [2, 1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "nowhere"], 4, "There is neither a file nor a skill 'nowhere'"),
        (["report"], 4, "There are no results yet"),
        (["report", "nowhere"], 4, "There are no results in"),
        (["compare", "a", "b"], 4, "There are no results in"),
        (["init", "nowhere"], 4, "No skill is called 'nowhere'"),
        (["run", "file-diff", "--model", "rocket:1"], 2, "There is no kind of model 'rocket'"),
        (["run", "file-diff", "--judge", "openai"], 2, "Which model of 'openai'?"),
        (["run", "file-diff", "--without", "nope"], 4, "No skill is called 'nope'"),
        (["run", "file-diff", "--engine", "abacus"], 2, "'abacus' is not one of"),
        (["run", "file-diff", "--tag", "nope"], 4, "No case of file-diff has the tag nope"),
        (["run", "file-diff", "--project", "/nope"], 2, "Directory '/nope' does not exist"),
        (["run", "file-diff", "--out", "/proc/x"], 2, "/proc/x cannot be written"),
        (["run", "file-diff", "--out", "/etc/hostname/x"], 2, "cannot be written"),
    ],
)
def test_what_is_wrong_is_said(vade: Vade, words: list[str], code: int, said: str) -> None:
    done = vade("eval", *words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert "Traceback" not in done.err


def test_reports_that_cannot_be_written(vade: Vade) -> None:
    vade("eval", "run", "skill-author", "--yes")
    done = vade("eval", "report", "--html", "/proc/x.html")
    assert (done.code, "/proc/x.html cannot be written" in done.err) == (2, True)


def test_the_bar_on_a_terminal(place: Place) -> None:
    """It is drawn while runs are made, with the rate so far and the time left, and gone at the end."""
    turns = [{"seconds": 0.1, "reply": final("yes")}]
    cases = [
        {"id": f"c{n}", "input": "x", "mock": {"turns": turns}, "expected": {"output": "yes"}}
        for n in range(8)
    ]
    suite = write(place.cwd / "cases.json", cases)
    ours, theirs = pty.openpty()
    words = [VADE, "eval", "run", str(suite), "-j", "1"]
    with subprocess.Popen(
        words, cwd=place.cwd, env=place.env, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end is closed when the command is over
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    assert process.returncode == 0
    drawn = shown.decode().split("\r\x1b[K")
    assert any(re.fullmatch(r"\[#+\.+\] [1-7] of 8, 100% pass, \d+:\d\d left", line) for line in drawn), drawn
    assert drawn[-1] == ""


def test_the_bar() -> None:
    times = iter([0.0, 10.0, 20.0, 30.0])
    progress = EvalProgress(clock=lambda: next(times))
    progress(done=4, total=24, result=None)
    progress(done=5, total=24, result=CaseResult("k", "c", "x", 1, "pass"))
    progress(done=6, total=24, result=CaseResult("k", "c", "x", 1, "fail"))
    assert progress.line(20.0) == "[######..................] 6 of 24, 50% pass, 3:00 left"


def test_the_installed_command(place: Place) -> None:
    done = place.vade("eval", "run", "csv-summary", "--yes", "--json")
    assert done.code == 0
    assert set(json.loads(done.out)) == {
        "name", "skill", "started", "cases", "missing", "malformed", "columns", "rows", "comparisons",
        "expecting_nothing", "stories", "notes", "passed", "results", "place",
    }  # fmt: skip
    assert done.err == ""
