"""L1: constraints on the steps of a run: what holds, what does not, what is vacuous, and the events that prove it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vademecum.evals.checks.trajectory import CheckResult, Constraint, Trajectory, parse_constraint
from vademecum.runs.record import Event

RUN = [
    Event(1, 0.0, "run_started", {"request": "do it"}),
    Event(2, 0.0, "action", {"action": "select_skills", "payload": {"skills": [{"name": "pdf"}, {"name": "csv"}]}}),
    Event(3, 0.0, "skill_loaded", {"skill": "user:pdf@1.0", "origin": "model"}),
    Event(4, 0.0, "skill_loaded", {"skill": "user:csv", "origin": "model"}),
    Event(5, 0.0, "observation", {"code": ""}),
    Event(6, 0.0, "action", {"action": "call_tool", "payload": {"tool": "read_file", "arguments": {"path": "a.txt", "lines": 3}}}),
    Event(7, 0.0, "tool_called", {"tool": "read_file", "parameters": {"path": "a.txt"}, "ok": True, "code": ""}),
    Event(8, 0.0, "observation", {"code": ""}),
    Event(9, 0.0, "action", {"action": "run_script", "payload": {"skill": {"name": "pdf"}, "relative_path": "scripts/x.py", "args": ["a.txt"]}}),
    Event(10, 0.0, "approval_asked", {"wanted": "script pdf/scripts/x.py"}),
    Event(11, 0.0, "approval_answered", {"verdict": "once"}),
    Event(12, 0.0, "tool_called", {"tool": "run_script", "parameters": {}, "ok": False, "code": "denied"}),
    Event(13, 0.0, "observation", {"code": "denied"}),
    Event(14, 0.0, "action", {"action": "final_answer", "payload": {"text": "完成"}}),
    Event(15, 0.0, "run_finished", {"status": "done"}),
]  # fmt: skip


def called(*tools: str, done: bool = False, first: int = 1) -> list[Event]:
    """Calls of tools; where they are done, with what is on record of that."""
    found: list[Event] = []
    for tool in tools:
        number = first + len(found)
        payload = {"tool": tool, "arguments": {}}
        found.append(Event(number, 0.0, "action", {"action": "call_tool", "payload": payload}))
        if done:
            data = {"tool": tool, "parameters": {}, "ok": True, "code": ""}
            found.append(Event(number + 1, 0.0, "tool_called", data))
            found.append(Event(number + 2, 0.0, "observation", {"code": ""}))
    return found


@pytest.mark.parametrize(
    ("constraint", "holds", "events"),
    [
        ({"require": "run_script"}, "pass", (9,)),
        ({"require": "write_file"}, "fail", ()),
        ({"never": "write_file"}, "pass", ()),
        ({"never": "read_file"}, "fail", (6,)),
        ({"forbid": "call_tool:read_*"}, "fail", (6,)),
        ({"must_occur": "load_skill"}, "pass", (3,)),
        ({"must_occur": "load_skill", "before": "run_script"}, "pass", (3, 9)),
        ({"must_occur": "load_skill:xls", "before": "grep"}, "fail", ()),
        ({"must_occur": "load_skill", "before": "grep"}, "pass", (3,)),
        ({"before": ["load_skill:pdf", "run_script"]}, "pass", (3, 9)),
        ({"before": ["run_script", "load_skill"]}, "fail", (3,)),
        ({"before": ["grep", "delete_file"]}, "vacuous", ()),
        ({"before": ["run_script", "run_script"]}, "fail", (9,)),
        ({"after": "load_skill:pdf", "then": "run_script"}, "pass", (3, 9)),
        ({"after": "run_script", "then": "grep"}, "fail", (9,)),
        ({"after": "grep", "then": "run_script"}, "vacuous", ()),
        ({"sequence": ["load_skill:pdf", "read_file", "final_answer"]}, "pass", (3, 6, 14)),
        ({"sequence": ["read_file", "load_skill"]}, "fail", (6,)),
        ({"sequence": ["select_skills:pdf", "select_skills:csv", "read_file", "run_script", "final_answer"], "mode": "exact"}, "pass", (2, 2, 6, 9, 14)),
        ({"sequence": ["select_skills:pdf", "read_file"], "mode": "exact"}, "fail", (2, 2)),
        ({"at_most": 1, "of": "load_skill"}, "fail", (3, 4)),
        ({"at_least": 2, "of": "load_skill"}, "pass", (3, 4)),
        ({"at_least": 3, "of": "load_skill"}, "fail", (3, 4)),
        ({"require": {"kind": "call_tool", "arguments": {"path": "*.txt", "lines": 3}}}, "pass", (6,)),
        ({"require": {"kind": "call_tool", "arguments": {"path": "re:^b"}}}, "fail", ()),
        ({"require": {"kind": "run_script", "arguments": {"args.0": "a.txt"}, "outcome": "denied"}}, "pass", (13,)),
        ({"require": {"kind": "run_script", "outcome": "ok"}}, "fail", ()),
        ({"require": {"kind": "tool", "name": "re:_file$", "outcome": "ok"}}, "pass", (7,)),
        ({"before": ["approval", "tool:run_script"]}, "pass", (11, 12)),
        ({"require": {"kind": "final_answer", "arguments": {"text": "*完成*"}}}, "pass", (14,)),
        ({"never": {"kind": "run_finished", "arguments": {"status": "failed"}}}, "pass", ()),
        ({"never": {"kind": "write_file"}}, "pass", ()),
        ({"never": {"kind": "read_file"}}, "fail", (6,)),
        ({"require": {"kind": "tool_called", "arguments": {"ok": False}}}, "pass", (12,)),
        ({"at_most": 2, "of": "observation"}, "fail", (5, 8, 13)),
        ({"at_most": 4, "of": "action"}, "pass", (2, 6, 9, 14)),
        ({"require": {"kind": "call_tool", "arguments": {"path.²": "a.txt"}}}, "fail", ()),
        ({"require": {"kind": "call_tool", "arguments": {"lines": True}}}, "fail", ()),
    ],
)  # fmt: skip
def test_constraints(constraint: dict[str, Any], holds: str, events: tuple[int, ...]) -> None:  # L1
    parsed = parse_constraint(constraint)
    said = f"events {', '.join(map(str, events))}" if events else ""
    assert check([parsed], RUN) == [CheckResult(parsed.name, holds, said, events)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "an object"),
        ({"never": ""}, "a pattern is a text"),
        ({"never": {"nope": 1}}, "unknown field `nope`"),
        ({"before": ["grep"]}, "list of two patterns"),
        ({"at_most": -1, "of": "grep"}, "whole number"),
        ({"at_most": True, "of": "grep"}, "whole number"),
        ({"sequence": []}, "1 to 100"),
        ({"sequence": ["grep"], "mode": "sideways"}, "sideways"),
        ({"never": {"name": "grep"}}, "required field `kind`"),
        ({"never": "call_*:grep"}, "no kind of step"),
        ({"sequence": [{"kind": "call_tool", "outcome": "ok"}], "mode": "exact"}, "leave out the outcome"),
        ({"sequence": ["load_skill:pdf", "final_answer"], "mode": "exact"}, "of actions .* not 'load_skill'"),
        ({"never": "wirte_file"}, "no kind of step 'wirte_file': did you mean 'write_file'"),
        ({"never": {"kind": "wirte_file"}}, "did you mean 'write_file'"),
        ({"never": "call_tool:raed_file"}, "no tool 'raed_file': did you mean 'read_file'"),
        ({"never": "tool:rocket"}, "no tool 'rocket': there are delete_file"),
        ({"never": "loadskill:pdf"}, "did you mean 'load_skill'"),
        ({"never": "write_file:a.txt"}, "'write_file' is a tool"),
        ({"never": "tool:re:(?<!a)b"}, "not valid in RE2"),
    ],
)
def test_a_constraint_that_is_none_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_constraint(wrong)


def test_everything_that_is_recorded_can_be_named() -> None:
    """The kinds are those of docs/agent.md: a new event that nobody adds here could not be named in a case."""
    page = (Path(__file__).parents[2] / "docs/agent.md").read_text("utf-8")
    table = page.partition("| event | what happened |")[2].partition("\n\n")[0]
    events = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:]))
    assert len(events) > 15
    for event in events:
        parse_constraint({"never": event})


def check(wanted: Sequence[Constraint], events: Iterable[Event]) -> list[CheckResult]:
    """Check a whole run, as it was recorded."""
    watched = Trajectory(wanted)
    for event in events:
        watched.see(event)
    return watched.verdicts()


CALLS = ["read_file", "grep", "read_file"]


@pytest.mark.parametrize(
    ("sequence", "holds"),
    [
        (["read_file", "grep", "read_file"], "pass"),
        (["call_tool:read_*", "grep", "call_tool"], "pass"),
        (["read_file", "grep"], "fail"),
        (["read_file", "read_file", "grep"], "fail"),
        (["read_file", "grep", "read_file", "read_file"], "fail"),
        (["read_file"] * 3, "fail"),
    ],
)
def test_exact_is_the_whole_list(sequence: list[str], holds: str) -> None:
    parsed = parse_constraint({"sequence": sequence, "mode": "exact"})
    assert check([parsed], called(*CALLS, done=True))[0].holds == holds


def test_exact_looks_at_nothing_but_actions() -> None:
    loaded = Event(1, 0.0, "skill_loaded", {"skill": "user:grep"})
    parsed = parse_constraint({"sequence": ["grep", "read_file"], "mode": "exact"})
    assert check([parsed], [loaded, *called("list_dir", "read_file")])[0].holds == "fail"


def test_exact_has_the_same_name_in_every_process() -> None:
    """Cases are sent to the processes that run them."""
    parsed = parse_constraint({"sequence": ["grep"], "mode": "exact"})
    assert copy.deepcopy(parsed).name == parsed.name == "sequence (exact) call_tool:grep"


def test_many_events_prove_that_it_was_too_often() -> None:
    events = called(*["grep"] * 40)
    verdict = check([parse_constraint({"at_most": 30, "of": "grep"})], events)[0]
    assert verdict.events == tuple(range(1, 32))


def test_a_plan_that_does_not_fit_is_not_what_came_of_the_action() -> None:
    action, ended = called("grep")[0], Event(3, 0.0, "observation", {"line": "[2] call_tool: ok", "code": ""})
    plan = Event(2, 0.0, "observation", {"line": "[1] plan_update: plan", "code": "plan"})
    parsed = parse_constraint({"require": {"kind": "call_tool", "outcome": "ok"}})
    assert check([parsed], [action, plan, ended])[0] == CheckResult(parsed.name, "pass", "events 3", (3,))


def test_what_children_do_counts_and_orders_are_the_runs_own() -> None:
    started = Event(1, 0.0, "child_started", {"run": "kid", "skill": "user:alone"})
    inside = [
        Event(1, 0.0, "skill_loaded", {"skill": "user:alone", "origin": "nested"}),
        *called("write_file", first=2),
        Event(3, 0.0, "action", {"action": "final_answer", "payload": {"text": "x"}}),
    ]
    constraints = [
        {"never": "write_file"},
        {"at_most": 0, "of": "call_tool"},
        {"at_most": 1, "of": "load_skill"},
        {"never": "final_answer"},
        {"before": ["grep", "write_file"]},
    ]
    watched = Trajectory([parse_constraint(each) for each in constraints])
    watched.see(started)
    for event in inside:
        watched.see(event, "kid")
    assert [(found.holds, found.events, found.elsewhere) for found in watched.verdicts()] == [
        ("fail", (), ("kid:2",)),
        ("fail", (), ("kid:2",)),
        ("pass", (1,), ()),
        ("pass", (), ()),
        ("vacuous", (), ()),
    ]


def test_a_violation_is_known_when_it_happens() -> None:
    watched = Trajectory([parse_constraint({"require": "grep"}), parse_constraint({"never": "run_script"})])
    seen = []
    for event in RUN:
        watched.see(event)
        if watched.violation is not None:
            seen.append(event.number)
    assert seen[0] == 9
    assert watched.violation == CheckResult("never run_script", "fail", "events 9", (9,))


TOOLS = st.sampled_from(["read_file", "grep", "list_dir"])


@given(st.lists(TOOLS, max_size=12))
def test_after_is_what_its_words_say(names: list[str]) -> None:
    """after a comes b: behind every a there is some b, and nothing else decides it."""
    parsed = parse_constraint({"after": "read_file", "then": "grep"})
    wanted = [n for n, name in enumerate(names) if name == "read_file"]
    kept = all("grep" in names[n + 1 :] for n in wanted)
    expected = "vacuous" if not wanted else "pass" if kept else "fail"
    assert check([parsed], called(*names))[0].holds == expected


@given(st.lists(TOOLS, max_size=10))
def test_before_is_what_its_words_say(names: list[str]) -> None:
    verdict = check([parse_constraint({"before": ["read_file", "grep"]})], called(*names))[0]
    if "grep" not in names:
        assert verdict.holds == "vacuous"
    else:
        assert verdict.holds == ("pass" if "read_file" in names[: names.index("grep")] else "fail")


@given(
    st.lists(TOOLS, max_size=6),
    st.lists(st.sampled_from(["read_file", "grep", "*"]), min_size=1, max_size=4),
)
def test_sequences_are_what_their_words_say(names: list[str], wanted: list[str]) -> None:
    """With the call, what came of it and the tool itself on record, each action still counts once."""

    def fits(pattern: str, name: str) -> bool:
        return pattern in {name, "*"}

    def holds(mode: str) -> bool:
        parsed = parse_constraint({"sequence": [f"call_tool:{p}" for p in wanted], "mode": mode})
        return check([parsed], called(*names, done=True))[0].holds == "pass"

    rest = iter(names)
    in_order = all(any(fits(pattern, name) for name in rest) for pattern in wanted)
    exact = len(names) == len(wanted) and all(map(fits, wanted, names))
    assert [holds("in_order"), holds("exact")] == [in_order, exact]
