"""O5: `vade eval` as a person and as CI run it: text, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evals.support import final, select, write
from tests.support import Place, write_skill
from tests.support import Result as Done
from vademecum.cli.eval_progress import EvalProgress
from vademecum.cli.main import run
from vademecum.evals.results import Result

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
    assert lines[:2] == ["✓ good", "✗ 坏: output contains '好': the answer is 'no'"]
    assert "✗ malformed cases.json, case odd, field input: Field required" in lines
    assert any(line.startswith("default") and "1 of 2" in line and "9.5% to 90.5%" in line for line in lines)
    assert vade("eval", "report").out == done.out
    assert vade("eval", "report", "suite", "--json").json["columns"][0]["rate"]["passed"] == 1


def test_before_and_after_an_edit(place: Place, vade: Vade) -> None:  # L2
    skill = place.cwd / ".agent/skills/greeter"
    text = "---\nname: greeter\ndescription: {}\n---\nSay hello.\n"
    queries = ["greet the new colleague", "say welcome to our guest", "欢迎新同事", "write a welcome note"]
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
    assert [(c["configuration"], c["rate"]["passed"]) for c in beside["columns"]] == [("new", 4), ("old", 0)]
    assert (
        vade("eval", "report", "new", "--against", "old", "--html", "r.html").out
        == "Wrote r.html and 8 pages of runs\n"
    )
    back = vade("eval", "compare", "new", "old", "--fail-on", "regression")
    assert back.code == 1
    assert "passed every time, and now fail every time: triggers-1" in back.out
    assert vade("eval", "compare", "new", "old").code == 0
    found = vade("eval", "compare", "old", "old", "--fail-on", "inconclusive", "--json")
    assert (found.code, found.json["regression"], found.json["comparisons"][0]["verdict"]) == (
        1,
        False,
        "inconclusive",
    )
    tape = write(place.cwd / "judge.json", ['{"better": "B"}', '{"better": "A"}'])
    judged = vade("eval", "compare", "old", "new", "--judge", f"scripted:{tape}")
    assert "judged by scripted: new is better 1, old 0, tie 3 times" in judged.out


def test_a_report_in_every_form(place: Place, vade: Vade) -> None:
    vade("eval", "run", "skill-author", "--yes")
    words = ["--html", "r.html", "--markdown", "r.md", "--junit", "r.xml", "--workspace", "."]
    done = vade("eval", "report", *words)
    assert done.code == 0
    assert done.out.splitlines() == [
        "Wrote r.html and 6 pages of runs",
        "Wrote r.md",
        "Wrote r.xml",
        "Wrote skill-author-workspace/iteration-1",
    ]
    assert all((place.cwd / name).stat().st_size > 300 for name in ("r.html", "r.md", "r.xml"))


def test_a_first_suite(place: Place, vade: Vade) -> None:
    done = vade("eval", "init", "csv-summary")
    assert done.out.splitlines()[-1] == "Fill them in, then: vade eval run csv-summary"
    assert vade("eval", "run", "csv-summary").code == 0
    again = vade("eval", "init", "csv-summary")
    assert (again.code, again.err) == (
        1,
        f"vade: {place.cwd}/.agent/evals/csv-summary is there already: edit it, or remove it first.\n",
    )
    assert [Path(path).name for path in vade("eval", "init", "file-diff", "--json").json["written"]] == [
        "triggers.json",
        "first.json",
    ]


def test_options_that_choose(place: Place, vade: Vade) -> None:
    cases = [
        {"id": "slow", "input": "x", "tags": ["slow"], "mock": {"turns": [final()]}},
        {"id": "fast", "input": "x", "mock": {"turns": [select("file-diff"), final()]}, "expected": {"skills_any_of": ["file-diff"]}},
    ]  # fmt: skip
    suite = str(write(place.cwd / "cases.json", cases))
    only = vade("eval", "run", suite, "--tag", "slow", "--repeat", "3", "--json").json
    assert [(r["case"], r["repetition"]) for r in only["results"]] == [("slow", 1), ("slow", 2), ("slow", 3)]
    sizes = vade("eval", "run", suite, "--sizes", "1,3", "--model", "mock", "--json").json
    assert [column["configuration"] for column in sizes["columns"]] == ["1 skills", "3 skills"]
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
        (["run", "file-diff", "--sizes", "many"], 2, "write numbers with commas between"),
        (["run", "file-diff", "--sizes", "0"], 2, "at least one skill"),
        (["run", "file-diff", "--without", "nope"], 4, "No skill is called 'nope'"),
        (["run", "file-diff", "--engine", "abacus"], 2, "'abacus' is not one of"),
        (["run", "file-diff", "--tag", "nope"], 4, "No case of file-diff has the tag nope"),
    ],
)
def test_what_is_wrong_is_said(vade: Vade, words: list[str], code: int, said: str) -> None:
    done = vade("eval", *words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert "Traceback" not in done.err


def test_the_bar() -> None:
    times = iter([0.0, 10.0, 20.0, 30.0])
    progress = EvalProgress(quiet=True, clock=lambda: next(times))
    progress(done=4, total=24, result=None)
    progress(done=5, total=24, result=Result("k", "c", "x", 1, "pass"))
    progress(done=6, total=24, result=Result("k", "c", "x", 1, "fail"))
    assert progress.line(20.0) == "[######..................] 6 of 24, 50% pass, 3:00 left"


def test_the_installed_command(place: Place) -> None:
    done = place.vade("eval", "run", "csv-summary", "--yes", "--json")
    assert done.code == 0
    assert set(json.loads(done.out)) == {
        "name", "skill", "started", "cases", "missing", "malformed", "columns", "rows", "comparisons",
        "never_discriminating", "passed", "results", "place",
    }  # fmt: skip
    assert done.err == ""
