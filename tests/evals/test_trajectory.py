"""L1: constraints on the steps of a run: what holds, what does not, what is vacuous, and the events that prove it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vademecum.evals.constraints import parse_constraint
from vademecum.evals.trajectory import Trajectory, Verdict, check
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
        ({"after": "load_skill:pdf", "then": "run_script", "within": 2}, "pass", (3, 9)),
        ({"after": "load_skill:pdf", "then": "run_script", "within": 1}, "fail", (3,)),
        ({"after": "run_script", "then": "grep"}, "fail", (9,)),
        ({"after": "grep", "then": "run_script"}, "vacuous", ()),
        ({"between": ["load_skill:csv", "run_script"], "require": "read_file"}, "pass", (4, 6, 9)),
        ({"between": ["load_skill:csv", "run_script"], "never": "read_file"}, "fail", (4, 6, 9)),
        ({"between": ["load_skill:csv", "run_script"], "require": "grep"}, "fail", (4, 9)),
        ({"between": ["run_script", "grep"], "never": "final_answer"}, "vacuous", ()),
        ({"sequence": ["load_skill:pdf", "read_file", "final_answer"]}, "pass", (3, 6, 14)),
        ({"sequence": ["read_file", "load_skill"]}, "fail", (6,)),
        ({"sequence": ["select_skills:pdf", "select_skills:csv", "read_file", "run_script", "final_answer"], "mode": "exact"}, "pass", (2, 2, 6, 9, 14)),
        ({"sequence": ["select_skills:pdf", "read_file"], "mode": "exact"}, "fail", (2, 2)),
        ({"sequence": ["final_answer", "select_skills:csv", "select_skills:*"], "mode": "any_order"}, "pass", (2, 14)),
        ({"sequence": ["run_script", "run_script"], "mode": "any_order"}, "fail", (9,)),
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
    ],
)  # fmt: skip
def test_constraints(constraint: dict[str, Any], holds: str, events: tuple[int, ...]) -> None:  # L1
    parsed = parse_constraint(constraint)
    assert check([parsed], RUN) == [Verdict(str(parsed), holds, events)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"never": ""},
        {"never": {"nope": 1}},
        {"before": ["a"]},
        {"at_most": -1, "of": "x"},
        {"at_most": True, "of": "x"},
        {"sequence": []},
        {"sequence": ["a"], "mode": "sideways"},
        {"sequence": [{"kind": "a", "outcome": "ok"}], "mode": "exact"},
        {"after": "a", "then": "b", "within": 0},
    ],
)
def test_a_constraint_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        parse_constraint(wrong)


def test_a_violation_is_known_when_it_happens() -> None:
    watched = Trajectory([parse_constraint({"require": "grep"}), parse_constraint({"never": "run_script"})])
    seen = []
    for event in RUN:
        watched.see(event)
        if watched.violation is not None:
            seen.append(event.number)
    assert seen[0] == 9
    assert watched.violation == Verdict("never run_script", "fail", (9,))


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12), st.integers(1, 4))
def test_within_is_what_its_words_say(names: list[str], within: int) -> None:
    """after a comes b within k: for every a one of the next k actions is b, and nothing else decides it."""
    events = [
        Event(n, 0.0, "action", {"action": "call_tool", "payload": {"tool": name, "arguments": {}}})
        for n, name in enumerate(names, 1)
    ]
    parsed = parse_constraint({"after": "call_tool:a", "then": "call_tool:b", "within": within})
    wanted = [n for n, name in enumerate(names) if name == "a"]
    kept = all("b" in names[n + 1 : n + 1 + within] for n in wanted)
    expected = "vacuous" if not wanted else "pass" if kept else "fail"
    assert check([parsed], events)[0].holds == expected


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=10))
def test_before_is_what_its_words_say(names: list[str]) -> None:
    events = [
        Event(n, 0.0, "action", {"action": "call_tool", "payload": {"tool": name, "arguments": {}}})
        for n, name in enumerate(names, 1)
    ]
    verdict = check([parse_constraint({"before": ["call_tool:a", "call_tool:b"]})], events)[0]
    if "b" not in names:
        assert verdict.holds == "vacuous"
    else:
        assert verdict.holds == ("pass" if "a" in names[: names.index("b")] else "fail")
