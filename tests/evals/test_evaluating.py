"""O5, L3: runs that cannot see one another, what they come to, and how they are compared."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.support import Stage
from tests.evals.support import BASE, Lab, case, final, ran_of, script, select, tool, write, writes
from tests.support import Place
from vademecum.errors import CaseRefused
from vademecum.evals.reports.summary import summarise
from vademecum.evals.results import CaseResult, open_results
from vademecum.evals.units import Configuration, by_model, with_and_without
from vademecum.models import offline
from vademecum.models.base import Reply
from vademecum.runs.stored import read_run


class Meeting:
    """A model that answers once it was asked twice at the same time."""

    name = "meeting"

    def __init__(self, place: Path) -> None:
        self._place = place

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
        (self._place / f"here-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while len(list(self._place.glob("here-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return Reply(json.dumps(final("met")))


class Moody:
    name = "moody"
    asked = 0

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
        self.asked += 1
        return Reply(json.dumps(final("yes" if self.asked % 2 else "no")))


def test_runs_cannot_see_one_another(lab: Lab, place: Place, tmp_path: Path, rooms: Path) -> None:
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
    assert not list(rooms.iterdir())


def test_a_case_without_its_file_is_an_error_of_its_own(lab: Lab) -> None:
    missing = case("missing", final(), files=["nowhere.txt"]).model_copy(update={"place": str(lab.place.cwd)})
    evaluation = lab.evaluate([missing, writes(1)])
    assert [result.outcome for result in evaluation.results] == ["error", "pass"]
    assert "names the file 'nowhere.txt', which is not next to it" in evaluation.results[0].error


def test_errors_can_be_tried_again(lab: Lab) -> None:
    broken = case("broken", {"error": "refused", "message": "I will not."})
    first = lab.evaluate([broken])
    assert [(r.outcome, r.error) for r in first.results] == [("error", "The model failed: I will not.")]
    ran: list[Any] = []
    lab.evaluate([broken], progress=lambda *, done, total, result: ran.append(result))
    assert ran == [None]
    lab.evaluate([broken], progress=lambda *, done, total, result: ran.append(result), retry=True)
    assert len(ran) == 3


def test_a_run_that_never_worked_is_no_verdict(lab: Lab) -> None:
    """Replies that nobody can use are neither a hit nor a miss, unless the case wants to see what comes of them."""
    none = {"skills_none_of": ["file-diff"]}
    cases = [
        case("garbage", "garbage", expected=none),
        case("wanted", "garbage", expected={**none, "status": "degraded"}),
        case("incomplete", final("half", complete=False), expected=none),
    ]
    evaluation = lab.evaluate(cases)
    assert [(r.outcome, r.stop_reason) for r in evaluation.results] == [
        ("unusable", "bad_replies"),
        ("pass", "bad_replies"),
        ("pass", "incomplete"),
    ]
    summary = summarise(evaluation)
    (column,) = summary.columns
    assert (column.rate.passed, column.rate.total, column.unusable) == (2, 2, 1)
    assert column.triggers is not None
    assert column.triggers.unknown == 1
    assert (summary.rows[0].mark, summary.is_clean) == ("unusable", False)
    assert ran_of(lab, cases) == []
    assert ran_of(lab, cases, retry=True) == ["garbage"]


def test_a_trigger_run_goes_on_until_it_is_decided(lab: Lab) -> None:
    """It ends after a whole action, once nothing that is loaded later can change the verdict, and no sooner."""
    both, other, wanted = select("csv-summary", "file-diff"), select("csv-summary"), select("file-diff")
    any_of, none_of = {"skills_any_of": ["file-diff"]}, {"skills_none_of": ["file-diff"]}
    all_of = {"skills_all_of": ["csv-summary", "file-diff"]}
    tried = [
        ("together", [both, final()], any_of, "pass", 1),
        ("against", [both, final()], none_of, "fail", 1),
        ("later", [other, wanted, final()], any_of, "pass", 2),
        ("unwanted later", [other, wanted, final()], none_of, "fail", 2),
        ("at once", [wanted, other, final()], any_of, "pass", 1),
        ("all", [other, wanted, final()], all_of, "pass", 2),
        ("never", [other, final()], none_of, "pass", 2),
    ]
    cases = [case(name, *turns, expected=expected, until="loaded") for name, turns, expected, _, _ in tried]
    found = lab.evaluate(cases).results
    assert [(r.case, r.outcome, r.turns) for r in found] == [
        (name, out, turns) for name, _, _, out, turns in tried
    ]


def test_a_case_can_say_no_and_nobody_says_yes_for_it(lab: Lab) -> None:
    turns = [tool("write_file", path="a.txt", content="x"), final("I may not", complete=False)]
    no = lab.one(case("no", *turns, setup={"answer": "no"}, expected={"status": "declined"}))
    assert no.outcome == "pass"
    nobody = lab.one(case("nobody", *turns, expected={"status": "refused"}), Configuration("default"))
    assert nobody.outcome == "pass"
    with pytest.raises(ValueError, match="answer"):
        case("yes", *turns, setup={"answer": "yes"})


def test_a_violation_ends_the_run_before_it_happens(lab: Lab) -> None:
    turns = [tool("write_file", path="a.txt", content="x"), final()]
    result = lab.one(case("x", *turns, expected={"trajectory": [{"never": "write_file"}]}))
    assert (result.outcome, result.stop_reason) == ("fail", "stopped")
    assert [check.name for check in result.failed] == ["never call_tool:write_file"]
    run = read_run(lab.out / "runs", result.run)
    assert [event.type for event in run.events][-2:] == ["action", "run_finished"]
    assert run.answer == "Stopped at the first violation: never call_tool:write_file."


def test_runs_wait_side_by_side(lab: Lab, tmp_path: Path) -> None:
    """Both are inside their models at the same time, or the second waits in vain."""

    lab.models["meeting"] = Meeting(tmp_path)
    found = lab.evaluate([case("a"), case("b")], msgspec.structs.replace(BASE, model="meeting"))
    assert [(result.outcome, result.answer) for result in found.results] == [("pass", "met")] * 2


def test_children_are_loaded_skills_and_count(lab: Lab) -> None:
    Stage(lab.place).skill("alone", "run-mode: subagent\n")
    turns = [select("alone"), tool("grep", pattern="x"), final("inside"), final("outside")]
    good = case("good", *turns, expected={"skills_any_of": ["alone"], "output": ["outside"]})
    assert lab.one(good).outcome == "pass"
    bound = lab.one(case("bound", *turns, constraints={"deny_tools": ["grep"]}))
    assert [check.name for check in bound.failed] == ["deny_tools grep"]
    assert bound.failed[0].elsewhere


def test_what_a_child_does_is_seen(lab: Lab) -> None:
    """B writes a file for A: never means never, and the evidence says in whose run."""
    Stage(lab.place).skill("alone", "run-mode: subagent\n")
    turns = [select("alone"), tool("write_file", path="w.txt", content="1"), final("in"), final("out")]
    for constraint in ({"never": "write_file"}, {"at_most": 0, "of": "tool:write_file"}):
        result = lab.one(case(str(constraint), *turns, expected={"trajectory": [constraint]}))
        (check,) = result.failed
        child, _, number = check.elsewhere[0].partition(":")
        event = read_run(lab.out / "runs", child).events[int(number) - 1]
        assert (result.outcome, check.events) == ("fail", ())
        assert event.type in {"action", "tool_called"}
    once = {"trajectory": [{"at_most": 1, "of": "load_skill"}, {"at_most": 1, "of": "final_answer"}]}
    assert lab.one(case("once", *turns, expected=once)).outcome == "pass"


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
    same = summarise(lab.evaluate(cases[:2], *by_model(BASE, ["offline", "case"])))
    assert same.comparisons[0].said.endswith("no case differs, so more cases like these would not settle it")


def test_repeats_flaky_and_vacuous(lab: Lab) -> None:
    lab.models["moody"], lab.workers = Moody(), 1
    expected = {"output": ["yes"], "trajectory": [{"before": ["load_skill", "run_script"]}]}
    cases = [case("x", repeat=4, expected=expected)]
    (column,) = summarise(lab.evaluate(cases, msgspec.structs.replace(BASE, model="moody"))).columns
    assert (column.rate.passed, column.rate.total, column.flaky, column.vacuous) == (2, 4, ("x",), 4)
    assert (column.rate.cases, column.rate.rate, column.rate.failures_at_most) == (1, 0.5, None)
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
    replayed = msgspec.structs.replace(BASE, model=f"recorded:{tape}")
    again = lab.one(only, replayed)
    assert (again.outcome, again.turns) == ("pass", 3)
    other = lab.one(
        only.model_copy(update={"input": "Compare b.txt with a.txt"}),
        replayed,
    )
    assert (other.outcome, "has no reply to this" in other.error) == ("error", True)


def test_two_evaluations_do_not_share_a_directory(tmp_path: Path) -> None:
    refused = pytest.raises(CaseRefused, match="Another evaluation writes to")
    with open_results(tmp_path), refused, open_results(tmp_path):
        pass
    with open_results(tmp_path):
        pass


def test_a_line_that_was_cut_short_counts_as_not_there(tmp_path: Path) -> None:
    with open_results(tmp_path) as (_, keep):
        keep(CaseResult("k1", "a", "default", 1, "pass"))
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"key": "k2", "ca')
    with open_results(tmp_path) as (_, keep):
        keep(CaseResult("k3", "c", "default", 1, "fail"))
    with open_results(tmp_path) as (known, _):
        assert set(known) == {"k1", "k3"}
    assert [json.loads(line)["key"] for line in (tmp_path / "results.jsonl").read_text().splitlines()] == [
        "k1",
        "k3",
    ]


def test_a_script_of_a_case_runs_in_the_sandbox(lab: Lab) -> None:
    Stage(lab.place).script("maker", "open('made.txt', 'w').write('hello')\n")
    turns = [select("maker"), script("maker", "scripts/x.py"), final()]
    result = lab.one(
        case("x", *turns, expected={"output": {"files": [{"path": "made.txt", "equals": "hello"}]}})
    )
    assert (result.outcome, result.script_runs) == ("pass", 1)
