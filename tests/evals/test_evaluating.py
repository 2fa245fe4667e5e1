"""O5, L3: runs that cannot see one another, results that are kept, evaluations that go on where they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.support import Stage
from tests.evals.support import BASE, Lab, case, final, script, select, tool, write
from tests.support import VADE, Place
from vademecum.errors import CaseRefused
from vademecum.evals.cases import Case
from vademecum.evals.configurations import by_model, by_size, with_and_without
from vademecum.evals.plan import Configuration, plan
from vademecum.evals.results import Ledger, Result, read_evaluation
from vademecum.evals.summary import summarise
from vademecum.models import offline, recorded
from vademecum.models.base import Reply
from vademecum.runs.reading import read_run


def writes(number: int) -> Case:
    """A case that is right only where no other run can be seen."""
    turns = [
        tool("list_dir", path="."),
        tool("write_file", path="mine.txt", content=str(number)),
        final("written"),
    ]
    files = [{"path": "mine.txt", "equals": str(number)}]
    alone = {"never": {"kind": "tool", "name": "list_dir", "arguments": {"path": "nothing"}}}
    return case(f"c{number}", *turns, expected={"output": {"files": files}, "trajectory": [alone]})


def test_runs_cannot_see_one_another(lab: Lab, place: Place, tmp_path: Path) -> None:
    lab.project, lab.workers = tmp_path / "given", 4
    write(lab.project / "shared.txt", "from the project")
    write(lab.project / ".git/config", "history")
    (place.home / ".agent").mkdir()
    write(
        place.home / ".agent/config.json",
        {"permissions": [{"permission": "tool", "pattern": "*", "effect": "deny"}]},
    )
    evaluation = lab.evaluate([writes(n) for n in range(12)])
    assert {result.outcome for result in evaluation.results} == {"pass"}
    for result in evaluation.results:
        run = read_run(lab.out / "runs", result.run)
        (listed,) = [e for e in run.events if e.type == "tool_called" and e.data["tool"] == "list_dir"]
        assert "shared.txt" in listed.data["result"]["text"]
        assert "mine.txt" not in listed.data["result"]["text"]
    assert sorted(os.listdir(lab.project)) == [".git", "shared.txt"]
    assert not list(Path("/tmp").glob("vade-eval-*/project/mine.txt"))


def test_nothing_runs_twice_and_what_changed_runs_again(lab: Lab) -> None:
    cases = [writes(n) for n in range(3)]
    ran: list[str] = []

    def progress(*, done: int, total: int, result: Result | None) -> None:
        ran.extend([] if result is None else [result.case])

    first = lab.evaluate(cases, progress=progress)
    again = lab.evaluate(cases, progress=progress)
    assert sorted(ran) == ["c0", "c1", "c2"]
    assert again.results == first.results
    changed = cases[1].model_copy(update={"input": "do it otherwise"})
    lab.evaluate([cases[0], changed, cases[2]], progress=progress)
    assert ran[3:] == ["c1"]
    Stage(lab.place).skill("new-one")
    lab.evaluate(cases, progress=progress)
    assert sorted(ran[4:]) == ["c0", "c1", "c2"]


def test_keys_depend_on_everything_a_unit_depends_on(lab: Lab, tmp_path: Path) -> None:
    index = lab.place.build()
    write(tmp_path / "cases/data.txt", "one")
    only = case("x", final(), files=["data.txt"]).model_copy(update={"place": str(tmp_path / "cases")})

    def key(one: Case = only, configuration: Configuration = BASE) -> str:
        return plan([one], [configuration], index)[0].key

    keys = [key(), key(configuration=msgspec.structs.replace(BASE, model="offline"))]
    keys += [key(configuration=msgspec.structs.replace(BASE, skills=("file-diff",)))]
    keys += [key(only.model_copy(update={"tags": ("slow",)}))]
    keys += [unit.key for unit in plan([only.model_copy(update={"repeat": 2})], [BASE], index)]
    write(tmp_path / "cases/data.txt", "two")
    keys += [key()]
    assert len(set(keys)) == len(keys)
    assert key() == key(configuration=msgspec.structs.replace(BASE, name="other name"))


def test_a_case_without_its_file_is_an_error_of_its_own(lab: Lab) -> None:
    missing = case("missing", final(), files=["nowhere.txt"]).model_copy(update={"place": str(lab.place.cwd)})
    evaluation = lab.evaluate([missing, writes(1)])
    assert [result.outcome for result in evaluation.results] == ["error", "pass"]
    assert "names the file 'nowhere.txt', which is not beside it" in evaluation.results[0].error


def test_errors_can_be_tried_again(lab: Lab) -> None:
    broken = case("broken", {"error": "refused", "message": "I will not."})
    first = lab.evaluate([broken])
    assert [(r.outcome, r.error) for r in first.results] == [("error", "The model failed: I will not.")]
    ran: list[Any] = []
    lab.evaluate([broken], progress=lambda *, done, total, result: ran.append(result))
    assert ran == [None]
    lab.evaluate([broken], progress=lambda *, done, total, result: ran.append(result), retry=True)
    assert len(ran) == 3


def test_a_case_can_say_no_and_nobody_says_yes_for_it(lab: Lab) -> None:
    turns = [tool("write_file", path="a.txt", content="x"), final("I may not")]
    no = lab.one(case("no", *turns, setup={"answer": "no"}, expected={"status": "declined"}))
    assert no.outcome == "pass"
    nobody = lab.one(case("nobody", *turns, expected={"status": "refused"}), Configuration("default"))
    assert nobody.outcome == "pass"
    with pytest.raises(ValueError, match="answer"):
        case("yes", *turns, setup={"answer": "yes"})


def test_a_violation_ends_the_run_before_it_happens(lab: Lab) -> None:
    turns = [tool("write_file", path="a.txt", content="x"), final()]
    result = lab.one(case("x", *turns, expected={"trajectory": [{"never": "write_file"}]}))
    assert (result.outcome, result.stop_reason, result.files) == ("fail", "stopped", ())
    assert [check.name for check in result.failed] == ["never call_tool:write_file"]
    run = read_run(lab.out / "runs", result.run)
    assert [event.type for event in run.events][-2:] == ["action", "run_finished"]
    assert run.answer == "Stopped at the first violation: never call_tool:write_file."


def test_runs_wait_side_by_side(lab: Lab) -> None:
    """Both are inside their models at the same time, or the barrier breaks."""

    class Meeting:
        name = "meeting"
        barrier = threading.Barrier(2)

        def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
            self.barrier.wait(timeout=20)
            return Reply(json.dumps(final("met")))

    lab.models["meeting"] = Meeting()
    found = lab.evaluate([case("a"), case("b")], msgspec.structs.replace(BASE, model="meeting"))
    assert [(result.outcome, result.answer) for result in found.results] == [("pass", "met")] * 2


def test_children_are_loaded_skills_and_count(lab: Lab) -> None:
    Stage(lab.place).skill("alone", "run-mode: subagent\n")
    turns = [select("alone"), tool("grep", pattern="x"), final("inside"), final("outside")]
    good = case("good", *turns, expected={"skills_any_of": ["alone"], "output": ["outside"]})
    assert lab.one(good).outcome == "pass"
    bound = lab.one(case("bound", *turns, constraints={"deny_tools": ["grep"]}))
    assert [check.name for check in bound.failed] == ["deny_tools grep"]


def test_with_and_without_a_skill_and_between_models(lab: Lab) -> None:
    """L2: pairs by case; what is inconclusive is called so."""
    files = {"a.txt": "1\n", "b.txt": "2\n"}
    cases = [
        case(
            f"c{n}", input="Compare a.txt with b.txt", files=files, expected={"output": ["-1"]}, tags=[str(n)]
        )
        for n in range(6)
    ]
    index = lab.place.build()
    ways = with_and_without([BASE], "file-diff", index)
    assert [way.name for way in ways] == ["with_skill", "without_skill"]
    summary = summarise(lab.evaluate(cases, *ways))
    assert [(column.rate.passed, column.rate.total) for column in summary.columns] == [(6, 6), (0, 6)]
    (comparison,) = summary.comparisons
    assert comparison.said.startswith("better: +100.0% from without_skill to with_skill")
    assert summary.never_discriminating == ()
    same = summarise(lab.evaluate(cases[:2], *by_model(BASE, ["offline", "case"])))
    assert same.comparisons[0].said.endswith("no case differs, so more of the same would not settle it")
    assert same.never_discriminating == ("c0", "c1")


def test_repeats_flaky_and_vacuous(lab: Lab) -> None:
    class Moody:
        name = "moody"
        asked = 0

        def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
            self.asked += 1
            return Reply(json.dumps(final("yes" if self.asked % 2 else "no")))

    lab.models["moody"], lab.workers = Moody(), 1
    expected = {"output": ["yes"], "trajectory": [{"before": ["load_skill", "run_script"]}]}
    cases = [case("x", repeat=4, expected=expected)]
    (column,) = summarise(lab.evaluate(cases, msgspec.structs.replace(BASE, model="moody"))).columns
    assert (column.rate.passed, column.rate.total, column.flaky, column.vacuous) == (2, 4, ("x",), 4)
    assert column.repeats is not None
    assert (column.repeats.k, column.repeats.pass_at_k, column.repeats.pass_hat_k) == (4, 1.0, 0.0)


def test_replies_are_recorded_once_and_replayed_strictly(lab: Lab, tmp_path: Path) -> None:
    """L3: a real run with a script, on tape; the tape is enough in another place, and nothing else is asked."""
    tape = tmp_path / "tape.jsonl"
    files = {"a.txt": "1\n", "b.txt": "2\n"}
    only = case("x", input="Compare a.txt with b.txt", files=files, expected={"output": ["-1"]})
    lab.models["inner"] = offline()
    first = lab.one(only, msgspec.structs.replace(BASE, model="inner", tape=str(tape)))
    assert (first.outcome, len(tape.read_text().splitlines())) == ("pass", 3)
    lab.out = tmp_path / "elsewhere"
    lab.models["replayed"] = recorded(tape, mode="strict")
    again = lab.one(only, msgspec.structs.replace(BASE, model="replayed"))
    assert (again.outcome, again.turns) == ("pass", 3)
    other = lab.one(
        only.model_copy(update={"input": "Compare b.txt with a.txt"}),
        msgspec.structs.replace(BASE, model="replayed"),
    )
    assert (other.outcome, "has no reply to this" in other.error) == ("error", True)


def test_libraries_of_several_sizes(lab: Lab) -> None:
    for number in range(30):
        Stage(lab.place).skill(f"filler-{number}")
    cases = [case("c", input="Compare two files", expected={"skills_any_of": ["file-diff"]}, until="loaded")]
    ways = by_size([BASE], [2, 10, 1000], cases, lab.place.build())
    assert [way.name for way in ways] == ["2 skills", "10 skills", "33 skills"]
    assert all("file-diff" in (way.skills or ()) for way in ways)
    summary = summarise(lab.evaluate(cases, *ways))
    assert [column.triggers.overall.recall for column in summary.columns if column.triggers] == [
        1.0,
        1.0,
        1.0,
    ]


def test_two_evaluations_do_not_share_a_directory(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(CaseRefused, match="Another evaluation writes to"):
        Ledger(tmp_path)
    ledger.close()
    Ledger(tmp_path).close()


def test_a_line_that_was_cut_short_counts_as_not_there(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(Result("k1", "a", "default", 1, "pass"))
    ledger.close()
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"key": "k2", "ca')
    ledger = Ledger(tmp_path)
    ledger.add(Result("k3", "c", "default", 1, "fail"))
    assert set(ledger.known) == {"k1", "k3"}
    ledger.close()
    assert [json.loads(line)["key"] for line in (tmp_path / "results.jsonl").read_text().splitlines()] == [
        "k1",
        "k3",
    ]


def _settled(place: Path) -> list[tuple[Any, ...]]:
    found = read_evaluation(place)
    assert found.missing == 0
    return [(r.key, r.case, r.outcome, r.checks, r.skills, r.answer, r.turns) for r in found.results]


def test_killed_at_twenty_random_points_it_ends_the_same(place: Place, tmp_path: Path) -> None:
    """Each time another part is done; at the end everything is there once, as if nothing had happened."""
    turns = [{"seconds": 0.02, "reply": select("file-diff")}, tool("read_file", path="a.txt"), final("done")]
    cases = [
        {"id": f"c{n}", "input": "x", "files": {"a.txt": "x"}, "mock": {"turns": turns}, "expected": {"output": "done" if n % 3 else "other"}}
        for n in range(100)
    ]  # fmt: skip
    suite = write(tmp_path / "cases.json", cases)
    for name, kills in (("killed", 20), ("whole", 0)):
        words = [sys.executable, "-m", "tests.evals.killing", str(suite), str(tmp_path / name), str(kills)]
        env = {**place.env, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(words, cwd=place.cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert _settled(tmp_path / "killed") == _settled(tmp_path / "whole")
    lines = (tmp_path / "killed/results.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == 100


def test_ctrl_c_keeps_what_is_finished(place: Place, tmp_path: Path) -> None:
    turns = [{"seconds": 0.05, "reply": final("done")}]
    suite = write(
        tmp_path / "cases.json", [{"id": f"c{n}", "input": "x", "mock": {"turns": turns}} for n in range(200)]
    )
    out = tmp_path / "out"
    process = subprocess.Popen(
        [VADE, "eval", "run", str(suite), "-j", "2", "--out", str(out)],
        cwd=place.cwd,
        env=place.env,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "results.jsonl").exists() or (out / "results.jsonl").read_bytes().count(b"\n") < 5:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    kept = len((out / "results.jsonl").read_text().splitlines())
    assert 5 <= kept < 200
    assert f"{kept:,} of 200 runs are kept; the same command goes on from there" in err


def test_a_script_of_a_case_runs_in_the_sandbox(lab: Lab) -> None:
    Stage(lab.place).script("maker", "open('made.txt', 'w').write('hello')\n")
    turns = [select("maker"), script("maker", "scripts/x.py"), final()]
    result = lab.one(
        case("x", *turns, expected={"output": {"files": [{"path": "made.txt", "equals": "hello"}]}})
    )
    assert (result.outcome, result.script_runs) == ("pass", 1)
