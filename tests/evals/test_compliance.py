"""L2: the rules of the house hold of every run; each one is broken here on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.support import Stage, final, run_script, select
from tests.support import Place
from vademecum.evals.checks.watching import check_compliance
from vademecum.runs.record import Event

NAMES = [
    "one action a turn",
    "nothing loaded that was not selected",
    "nothing run without its approval",
    "budgets kept",
]


@pytest.fixture
def events(place: Place) -> list[Event]:
    stage = Stage(place)
    stage.script("demo", "print('hello')\n")
    outcome = stage.run(select("demo"), run_script("demo", "scripts/x.py"), final())
    assert outcome.status == "done"
    return list(stage.past(outcome).events)


def broken(events: list[Event], **more: Any) -> list[str]:
    return [check.name for check in check_compliance(events, **more) if check.holds == "fail"]


def without(events: list[Event], type_: str) -> list[Event]:
    return [event for event in events if event.type != type_]


def changed(events: list[Event], type_: str, **data: Any) -> list[Event]:
    return [Event(e.number, e.time, e.type, {**e.data, **data}) if e.type == type_ else e for e in events]


def test_a_real_run_keeps_them(events: list[Event]) -> None:
    found = check_compliance(events, streamed="done")
    assert [(check.name, check.holds) for check in found] == [
        *((name, "pass") for name in NAMES),
        ("streamed pieces equal the final text", "pass"),
    ]


def test_two_actions_for_one_reply(events: list[Event]) -> None:
    place = max(n for n, event in enumerate(events) if event.type == "model_replied")
    assert broken(events[:place] + events[place + 1 :]) == [NAMES[0]]


def test_a_skill_that_nobody_selected(events: list[Event]) -> None:
    assert broken(changed(events, "skill_loaded", skill="project:other")) == [NAMES[1]]
    assert broken(without(events, "skill_loaded")) == [NAMES[1]]


def test_a_script_that_nobody_approved(events: list[Event]) -> None:
    assert broken(without(events, "approval_answered")) == [NAMES[2]]
    assert broken(changed(events, "approval_answered", verdict="reject")) == [NAMES[2]]
    assert broken(changed(events, "tool_called", approved_by=None)) == [NAMES[2]]
    assert broken(changed(events, "tool_called", decision={"effect": "deny"})) == [NAMES[2]]


def test_a_script_that_ran_and_failed_ran_all_the_same(events: list[Event]) -> None:
    """A script that was started counts, whatever it came to; a call that was refused did nothing."""
    stopped = {"ok": False, "code": "stopped-time", "result": {"exit_code": None}}
    assert broken(changed(events, "tool_called", **stopped)) == []
    wrong = changed(events, "tool_called", **stopped, approved_by=None, decision={"effect": "deny"})
    assert broken(wrong) == [NAMES[2]]
    assert broken(changed(events, "tool_called", **stopped, skill="never-loaded")) == [NAMES[1]]
    refused = {"ok": False, "code": "denied", "result": {"text": "no"}, "approved_by": None}
    assert broken(changed(events, "tool_called", **refused, skill="never-loaded")) == []


def test_what_children_do_is_checked_too(events: list[Event]) -> None:
    wrong = changed(events, "tool_called", approved_by=None)
    (found,) = [check for check in check_compliance(events, children={"kid": wrong}) if check.holds == "fail"]
    number = next(event.number for event in events if event.type == "tool_called")
    assert (found.name, found.events, found.elsewhere) == (NAMES[2], (), (f"kid:{number}",))
    assert found.detail.startswith("in the child run kid: run_script ran at event")
    assert found.always


def test_more_than_the_budget(events: list[Event]) -> None:
    budget = {"turns": 12, "tool_calls": 30, "script_runs": 10, "context_chars": 200_000}
    for name, most in (("turns", 2), ("tool_calls", 0), ("script_runs", 0), ("context_chars", 10)):
        assert broken(changed(events, "run_started", budget={**budget, name: most})) == [NAMES[3]], name


def test_streamed_pieces_that_are_not_the_answer(events: list[Event]) -> None:
    assert broken(events, streamed="don") == ["streamed pieces equal the final text"]
    cut = [event for event in events if event.data.get("action") != "final_answer"]
    assert check_compliance(cut, streamed="")[-1].holds == "vacuous"
