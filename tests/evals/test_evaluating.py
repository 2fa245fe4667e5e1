"""O5, L3: runs that cannot see one another, results that are kept, evaluations that go on where they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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
from vademecum.evals.engines import Threads
from vademecum.evals.performing import Performer
from vademecum.evals.plan import Configuration, Unit, plan
from vademecum.evals.results import Ledger, Result, read_evaluation
from vademecum.evals.stopping import Stop
from vademecum.evals.summary import summarise
from vademecum.evals.turns import PATIENCE_SECONDS, Turn, Turns
from vademecum.evals.workshop import Workshop
from vademecum.models import offline, recorded
from vademecum.models.base import Reply
from vademecum.runs.reading import read_run, run_ids


def writes(number: int) -> Case:
    """A case that is right only where no other run can be seen."""
    turns = [
        tool("list_dir", path="."),
        tool("write_file", path="mine.txt", content=str(number)),
        final("written"),
    ]
    files = [{"path": "mine.txt", "equals": str(number)}]
    return case(f"c{number}", *turns, expected={"output": {"files": files}})


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
    write(tmp_path / "project/a.txt", "one")
    tape = write(tmp_path / "tape.jsonl", "")
    only = case("x", final(), files=["data.txt"]).model_copy(update={"place": str(tmp_path / "cases")})
    named = case("x", final(), files=[{"name": "data.txt"}]).model_copy(update={"place": only.place})

    def key(one: Case = only, configuration: Configuration = BASE, **more: Any) -> str:
        return plan([one], [configuration], index, **more)[0].key

    def way(**fields: Any) -> Configuration:
        return msgspec.structs.replace(BASE, **fields)

    project: dict[str, Any] = {"project": tmp_path / "project"}
    keys = [key(), key(named), key(configuration=way(model="offline")), key(**project)]
    keys += [key(configuration=way(skills=("file-diff",))), key(configuration=way(yes=False))]
    keys += [
        key(configuration=way(model=f"recorded:{tape}")),
        key(configuration=way(judge=f"scripted:{tape}")),
    ]
    keys += [
        key(configuration=way(model="openai:x"), env={"OPENAI_BASE_URL": url})
        for url in ("http://a", "http://b")
    ]
    keys += [unit.key for unit in plan([only.model_copy(update={"repeat": 2})], [BASE], index)][1:]
    write(tmp_path / "cases/data.txt", "two")
    keys += [key(), key(named)]
    write(tmp_path / "project/.agent/config.json", {})
    keys += [key(**project)]
    write(tape, "{}")
    keys += [
        key(configuration=way(model=f"recorded:{tape}")),
        key(configuration=way(judge=f"scripted:{tape}")),
    ]
    assert len(set(keys)) == len(keys)


def test_keys_depend_on_nothing_else(lab: Lab, tmp_path: Path) -> None:
    index = lab.place.build()
    only = case("x", final())
    write(tmp_path / "project/a.txt", "one")

    def key(one: Case = only, name: str = "default", **more: Any) -> str:
        return plan([one], [msgspec.structs.replace(BASE, name=name)], index, **more)[0].key

    assert key() == key(name="other") == key(only.model_copy(update={"tags": ("slow",), "repeat": 7}))
    assert key() == key(only.model_copy(update={"place": "/elsewhere", "description": "what for"}))
    assert key() == key(env={"OPENAI_BASE_URL": "http://a"})
    before = key(project=tmp_path / "project")
    write(tmp_path / "project/.agent/evals/results/x/results.jsonl", "{}")
    write(tmp_path / "project/.agent/runs/1/events.jsonl", "{}")
    write(tmp_path / "project/.git/HEAD", "history")
    assert key(project=tmp_path / "project") == before


def ran_of(lab: Lab, cases: list[Case], *ways: Configuration, **more: Any) -> list[str]:
    """The cases that were really run."""
    ran: list[str] = []

    def progress(*, done: int, total: int, result: Result | None) -> None:
        ran.extend([] if result is None else [result.case])

    lab.evaluate(cases, *ways, progress=progress, **more)
    return sorted(ran)


def test_more_repeats_run_only_those_that_are_missing(lab: Lab) -> None:
    one = writes(1)
    assert ran_of(lab, [one.model_copy(update={"repeat": 2})]) == ["c1", "c1"]
    assert ran_of(lab, [one.model_copy(update={"repeat": 3, "tags": ("new",)})]) == ["c1"]


def test_a_project_that_holds_its_results_goes_on_where_it_was(lab: Lab, tmp_path: Path) -> None:
    lab.project, lab.out = tmp_path / "p", tmp_path / "p/.agent/evals/results/x"
    write(lab.project / "a.txt", "x")
    assert ran_of(lab, [writes(1)]) == ["c1"]
    assert ran_of(lab, [writes(1)]) == []


def test_a_reused_result_takes_the_name_of_who_reuses_it(lab: Lab) -> None:
    """The first configuration of the second evaluation is the only one of the first, under another name."""
    cases = [case("a", select("file-diff"), final("x"), expected={"skills_any_of": ["file-diff"]})]
    lab.evaluate(cases)
    ways = with_and_without([BASE], "file-diff", lab.place.build())
    summary = summarise(lab.evaluate(cases, *ways))
    assert [(c.configuration, c.rate.passed, c.rate.total) for c in summary.columns] == [
        ("with_skill", 1, 1),
        ("without_skill", 0, 1),
    ]
    read = read_evaluation(lab.out)
    assert [(r.configuration, r.outcome) for r in read.results] == [
        ("with_skill", "pass"),
        ("without_skill", "fail"),
    ]
    assert {row.configuration for row in summarise(read).rows} == {"with_skill", "without_skill"}


def test_two_units_that_are_the_same_run_once_and_serve_both(lab: Lab) -> None:
    twice = [BASE, msgspec.structs.replace(BASE, name="again")]
    assert ran_of(lab, [writes(1), writes(2)], *twice) == ["c1", "c2"]
    found = read_evaluation(lab.out)
    assert found.missing == 0
    assert [(r.case, r.configuration) for r in found.results] == [
        ("c1", "default"),
        ("c1", "again"),
        ("c2", "default"),
        ("c2", "again"),
    ]


def test_what_a_configuration_is_without_stays_out_of_every_size(lab: Lab) -> None:
    index = lab.place.build()
    only = [case("c", expected={"skills_any_of": ["file-diff"]})]
    ways = by_size(with_and_without([BASE], "file-diff", index), [2, 3], only, index)
    assert [(way.name, "file-diff" in (way.skills or ())) for way in ways] == [
        ("with_skill, 2 skills", True),
        ("with_skill, 3 skills", True),
        ("without_skill, 2 skills", False),
        ("without_skill, 3 skills", False),
    ]
    assert len({unit.key for unit in plan(only, ways, index)}) == 4


def test_rules_come_with_the_project_and_not_from_around_the_results(lab: Lab, tmp_path: Path) -> None:
    deny = {"permissions": [{"permission": "tool", "pattern": "read_file", "effect": "deny"}]}
    turns = [tool("read_file", path="a.txt"), final()]
    only = case(
        "x",
        *turns,
        files={"a.txt": "x"},
        expected={"trajectory": [{"require": {"kind": "tool", "outcome": "ok"}}]},
    )
    around = tmp_path / "around"
    write(around / ".agent/config.json", deny)
    write(around / ".git/HEAD", "x")
    lab.out = around / ".agent/evals/results/x"
    assert lab.one(only).outcome == "pass"
    write(tmp_path / "strict/.agent/config.json", deny)
    lab.project = tmp_path / "strict"
    assert lab.one(only).outcome == "fail"
    (lab.project / ".agent/config.json").unlink()
    assert lab.one(only).outcome == "pass"


def test_a_copy_has_the_links_and_not_the_history(lab: Lab, tmp_path: Path) -> None:
    lab.project = tmp_path / "p"
    write(lab.project / ".git", "gitdir: /elsewhere\n")
    write(lab.project / "real/a.txt", "x")
    (lab.project / "linked").symlink_to("real")
    (lab.project / "empty").mkdir()
    check = "import os; os._exit(not (os.path.islink('linked') and os.path.isdir('empty') and not os.path.exists('.git')))"
    command = {"argv": ["python", "-c", check]}
    assert lab.one(case("x", final(), expected={"output": {"command": command}})).outcome == "pass"


def test_a_tape_that_is_asked_for_is_made(lab: Lab, tmp_path: Path) -> None:
    """Results that are there already are no reason to record nothing."""
    lab.models["inner"] = offline()
    only = [case("x", input="Compare a.txt with b.txt", files={"a.txt": "1\n", "b.txt": "2\n"})]
    way = msgspec.structs.replace(BASE, model="inner")
    assert ran_of(lab, only, way) == ["x"]
    taped = msgspec.structs.replace(way, tape=str(tmp_path / "tape.jsonl"))
    assert ran_of(lab, only, taped) == ["x"]
    assert len((tmp_path / "tape.jsonl").read_text().splitlines()) == 3
    assert ran_of(lab, only, taped) == []
    (tmp_path / "tape.jsonl").unlink()
    assert ran_of(lab, only, taped) == ["x"]


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


def interrupted(
    place: Place, suite: Path, out: Path, rooms: Path, *, after: Callable[[], bool]
) -> tuple[int, str]:
    """Run a suite, and stop it as Ctrl-C does once something is so."""
    process = subprocess.Popen(
        [VADE, "eval", "run", str(suite), "--yes", "-j", "2", "--out", str(out)],
        cwd=place.cwd,
        env={**place.env, "TMPDIR": str(rooms)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not after() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    return process.returncode, err


def test_ctrl_c_keeps_what_is_finished(place: Place, tmp_path: Path, rooms: Path) -> None:
    turns = [{"seconds": 0.05, "reply": final("done")}]
    suite = write(
        tmp_path / "cases.json", [{"id": f"c{n}", "input": "x", "mock": {"turns": turns}} for n in range(200)]
    )
    out = tmp_path / "out"
    results = out / "results.jsonl"

    def after() -> bool:
        return results.exists() and results.read_bytes().count(b"\n") >= 5

    code, err = interrupted(place, suite, out, rooms, after=after)
    assert code == 130
    kept = len(results.read_text().splitlines())
    assert 5 <= kept < 200
    assert f"{kept:,} of 200 runs are kept; the same command goes on from there" in err
    assert not list(rooms.iterdir())


def test_ctrl_c_ends_what_is_running_and_tidies_up(place: Place, tmp_path: Path, rooms: Path) -> None:
    """A script that would run for a minute, and a model that takes its time: no room, no process, whole records."""
    Stage(place).script("slow", "import time\nprint('here', flush=True)\ntime.sleep(55)\n")
    turns = [select("slow"), script("slow", "scripts/x.py"), final()]
    cases = [
        {"id": "script", "input": "x", "mock": {"turns": turns}},
        {"id": "model", "input": "x", "mock": {"turns": [{"seconds": 50, "reply": final()}]}},
    ]
    suite, out = write(tmp_path / "cases.json", cases), tmp_path / "out"

    def after() -> bool:
        return any(b"here" in file.read_bytes() for file in out.glob("runs/*/calls/*/stdout"))

    assert interrupted(place, suite, out, rooms, after=after)[0] == 130
    assert not list(rooms.iterdir())
    runs = [read_run(out / "runs", run) for run in run_ids(out / "runs")]
    assert [run.status for run in runs] == ["interrupted", "interrupted"]
    held = [call.data for run in runs for call in run.events if call.type == "tool_called"]
    assert [call["code"] for call in held] == ["interrupted"]
    assert (out / "results.jsonl").read_bytes() == b""


@pytest.mark.parametrize("what", ["model", "script", "mock"])
def test_what_takes_too_long_is_ended(lab: Lab, rooms: Path, what: str) -> None:
    """Whatever a run waits for when its time is over, it comes back as a time-out, and nothing of it is left."""

    class Endless:
        name = "endless"

        def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
            released.wait(60)
            return Reply(json.dumps(final()))

    released = threading.Event()
    Stage(lab.place).script("slow", "import time\ntime.sleep(55)\n")
    lab.models["endless"] = Endless()
    turns: dict[str, list[Any]] = {
        "model": [],
        "script": [select("slow"), script("slow", "scripts/x.py"), final()],
        "mock": [{"seconds": 50, "reply": final()}],
    }
    only = case("x", *turns[what], constraints={"max_seconds": 0.5})
    result = lab.one(only, msgspec.structs.replace(BASE, model="case" if turns[what] else "endless"))
    released.set()
    assert (result.outcome, result.error) == ("timeout", "It was not done after 0.5 s.")
    assert not list(rooms.iterdir())
    assert read_run(lab.out / "runs", result.run).status in {"failed", "interrupted"}


def test_one_that_never_ends_is_left_behind_and_the_others_go_on(lab: Lab, rooms: Path) -> None:
    """A call into the system that never returns cannot be ended; it is given up, and keeps nobody waiting."""

    released = threading.Lock()
    released.acquire()

    class Performing(Performer):
        def perform(self, unit: Unit, stop: Stop | None = None) -> Result:
            if unit.case.id == "stuck":
                with self.rooms.room_for(unit.case):
                    released.acquire()
            return super().perform(unit, stop)

    quick = [case(f"c{n}", {"seconds": 0.05, "reply": final()}) for n in range(40)]
    cases = [case("stuck", final(), constraints={"max_seconds": 0.1}), *quick]
    performer = Performing(Workshop(lab.place.build(), lab.out, None, {"PATH": os.environ["PATH"]}))
    units = plan(cases, [BASE], lab.place.build())
    found = [(r.case, r.outcome) for r in Threads(2, grace=0.1, last=0.1).run(units, performer)]
    assert sorted(found) == sorted([("stuck", "timeout"), *((each.id, "pass") for each in quick)])
    assert found.index(("stuck", "timeout")) < 30  # although results kept coming
    assert not list(rooms.iterdir())
    released.release()


def test_whoever_holds_the_turn_for_long_holds_up_nobody() -> None:
    now = [10.0]
    turns = Turns(lambda: now[0])
    first, second = (Turn(turns, Stop(threading.Event(), 60)) for _ in range(2))
    first.take()
    assert turns.patience == PATIENCE_SECONDS
    now[0] += 60
    assert turns.patience == 0
    for _ in range(1000):
        second.take()
    first.give()
    assert turns.patience == PATIENCE_SECONDS
    second.take()
    second.give()


def test_a_script_of_a_case_runs_in_the_sandbox(lab: Lab) -> None:
    Stage(lab.place).script("maker", "open('made.txt', 'w').write('hello')\n")
    turns = [select("maker"), script("maker", "scripts/x.py"), final()]
    result = lab.one(
        case("x", *turns, expected={"output": {"files": [{"path": "made.txt", "equals": "hello"}]}})
    )
    assert (result.outcome, result.script_runs) == ("pass", 1)
