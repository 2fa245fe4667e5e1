"""What must hold of every run, whatever the case: computed from its events alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vademecum.evals.checks import Check
from vademecum.evals.steps import skill_of
from vademecum.runs.record import Event

_RAN = frozenset({"once", "always", "remembered", "rule"})


def check_compliance(events: Sequence[Event], *, streamed: str | None = None) -> list[Check]:
    """The rules of the house; ``streamed`` is the answer as it came in pieces, where somebody listened."""
    found = [
        _check("one action a turn", _second_actions(events)),
        _check("nothing loaded that was not selected", _unselected(events)),
        _check("nothing run without its approval", _unapproved(events)),
        _check("budgets kept", _beyond_budget(events)),
    ]
    return found if streamed is None else [*found, _streamed(events, streamed)]


def _check(name: str, broken: Iterator[tuple[int, str]]) -> Check:
    first = next(broken, None)
    if first is None:
        return Check(name, "pass")
    return Check(name, "fail", first[1], (first[0],) if first[0] else ())


def _second_actions(events: Sequence[Event]) -> Iterator[tuple[int, str]]:
    """Actions for which the model was not asked anew."""
    asked = False
    for event in events:
        if event.type == "model_replied":
            asked = True
        elif event.type == "action":
            if not asked:
                yield event.number, f"event {event.number} is an action without a reply of its own"
            asked = False


def _unselected(events: Sequence[Event]) -> Iterator[tuple[int, str]]:
    """Skills that were loaded, read or run though nobody chose them before."""
    chosen: set[str] = set()
    loaded: set[str] = set()
    for event in events:
        data = event.data
        match event.type:
            case "run_started":
                chosen |= {str(name).rpartition("/")[2] for name in data.get("skills_named") or ()}
            case "action" if data.get("action") == "select_skills":
                chosen |= {_name(named) for named in _payload(data).get("skills") or ()}
            case "skill_loaded" | "child_started":
                name = skill_of(data)
                if data.get("origin") != "nested" and name not in chosen:
                    yield event.number, f"{name} was loaded at event {event.number} and never selected"
                loaded.add(name)
            case "resource_loaded":
                if skill_of(data) not in loaded:
                    yield (
                        event.number,
                        f"a file of {skill_of(data)} was read at event {event.number} before it was loaded",
                    )
            case "tool_called" if data.get("tool") == "run_script" and data.get("ok"):
                if str(data.get("skill")) not in loaded:
                    yield (
                        event.number,
                        f"a script of {data.get('skill')} ran at event {event.number} before it was loaded",
                    )


def _unapproved(events: Sequence[Event]) -> Iterator[tuple[int, str]]:
    """Calls that did something though a rule said no, or asked and nobody said yes."""
    answered = False
    for event in events:
        data = event.data
        if event.type == "approval_answered":
            answered = data.get("verdict") in {"once", "always"}
        if event.type != "tool_called" or not data.get("ok"):
            continue
        decision = data.get("decision") or {}
        effect, by = decision.get("effect"), data.get("approved_by")
        if effect == "deny" or by not in _RAN or (effect == "ask" and by == "rule"):
            yield event.number, f"{data.get('tool')} ran at event {event.number} without its approval"
        elif by in {"once", "always"}:
            if not answered:
                yield event.number, f"{data.get('tool')} ran at event {event.number} and nobody was asked"
            answered = False


def _beyond_budget(events: Sequence[Event]) -> Iterator[tuple[int, str]]:
    """The first thing that was more than the budget allows."""
    started = next((event for event in events if event.type == "run_started"), None)
    budget = started.data.get("budget") if started else None
    if not isinstance(budget, Mapping):
        return
    turns: set[Any] = set()
    calls = scripts = 0
    for event in events:
        if event.type == "model_asked":
            turns.add(event.data.get("turn"))
            if event.data.get("characters", 0) > budget.get("context_chars", 0):
                yield event.number, f"the prompt at event {event.number} is longer than context_chars"
        elif event.type == "tool_called":
            calls += 1
            scripts += event.data.get("tool") == "run_script"
        for name, used in (("turns", len(turns)), ("tool_calls", calls), ("script_runs", scripts)):
            if used > budget.get(name, 0):
                yield (
                    event.number,
                    f"{used} {name.replace('_', ' ')} at event {event.number}, {budget.get(name)} allowed",
                )


def _streamed(events: Sequence[Event], streamed: str) -> Check:
    name = "streamed pieces equal the final text"
    ended = next((event for event in reversed(events) if event.type == "run_finished"), None)
    final = any(e.type == "action" and e.data.get("action") == "final_answer" for e in events)
    if ended is None or not final:
        return Check(name, "vacuous")
    if ended.data.get("answer") == streamed:
        return Check(name, "pass")
    return Check(
        name,
        "fail",
        f"{len(streamed)} characters were streamed, and they are not the answer",
        (ended.number,),
    )


def _payload(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("payload")
    return found if isinstance(found, Mapping) else {}


def _name(named: Any) -> str:
    return (str(named.get("name", "")) if isinstance(named, Mapping) else str(named)).rpartition("/")[2]
