"""O5: what a result depends on: nothing runs twice, and what changed runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.agent.support import Stage
from tests.evals.support import BASE, Lab, case, final, ran_of, select, tool, write, writes
from vademecum.evals.cases import Case
from vademecum.evals.isolation import room_for
from vademecum.evals.reports.summary import summarise
from vademecum.evals.results import CaseResult, read_evaluation
from vademecum.evals.units import Configuration, EvalSettings, plan, with_and_without
from vademecum.models import offline


def test_nothing_runs_twice_and_what_changed_runs_again(lab: Lab) -> None:
    cases = [writes(n) for n in range(3)]
    ran: list[str] = []

    def progress(*, done: int, total: int, result: CaseResult | None) -> None:
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
        return plan([one], [configuration], EvalSettings(index, tmp_path, **more))[0].key

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
    keys += [
        unit.key
        for unit in plan([only.model_copy(update={"repeat": 2})], [BASE], EvalSettings(index, tmp_path))
    ][1:]
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
        return plan([one], [msgspec.structs.replace(BASE, name=name)], EvalSettings(index, tmp_path, **more))[
            0
        ].key

    assert key() == key(name="other") == key(only.model_copy(update={"tags": ("slow",), "repeat": 7}))
    assert key() == key(only.model_copy(update={"place": "/elsewhere", "description": "what for"}))
    assert key() == key(env={"OPENAI_BASE_URL": "http://a"})
    before = key(project=tmp_path / "project")
    write(tmp_path / "project/.agent/evals/results/x/results.jsonl", "{}")
    write(tmp_path / "project/.agent/runs/1/events.jsonl", "{}")
    write(tmp_path / "project/.git/HEAD", "history")
    assert key(project=tmp_path / "project") == before


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
    only = case("x", final())
    with room_for(only, tmp_path, project=lab.project, env={}) as room:
        assert (room.cwd / "linked").is_symlink()
        assert (room.cwd / "empty").is_dir()
        assert not (room.cwd / ".git").is_file()


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
