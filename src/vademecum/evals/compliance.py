"""What must hold of every run and its children, whatever the case: computed from events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vademecum.evals.results import Check
from vademecum.evals.steps import skill_of
from vademecum.runs.record import Event

_RAN = frozenset({"once", "always", "remembered", "rule"})


Broken = Iterator[tuple[int, str]]


def check_compliance(
    events: Sequence[Event],
    *,
    streamed: str | None = None,
    children: Mapping[str, Sequence[Event]] | None = None,
) -> list[Check]:
    """The rules of the house; ``streamed`` is the answer as it came in pieces, where somebody listened.

    ``children`` are the events of child runs by their ids: the rules hold of each.
    """
    runs = {"": events, **(children or {})}
    found = [_check(name, rule, runs) for name, rule in _RULES.items()]
    return found if streamed is None else [*found, _streamed(events, streamed)]


def _check(
    name: str, rule: Callable[[Sequence[Event]], Broken], runs: Mapping[str, Sequence[Event]]
) -> Check:
    """Where a rule is broken first: in the run itself, or in one of its children."""
    for run, events in runs.items():
        number, why = next(rule(events), (0, ""))
        if why and run:
            return Check(
                name, "fail", f"in the child run {run}: {why}", elsewhere=(f"{run}:{number}",), always=True
            )
        if why:
            return Check(name, "fail", why, (number,), always=True)
    return Check(name, "pass", always=True)


def _second_actions(events: Sequence[Event]) -> Broken:
    """Actions for which the model was not asked anew."""
    asked = 0
    for event in events:
        if event.type == "model_replied":
            asked = len(event.data.get("calls") or (1,))
        elif event.type == "action":
            if not asked:
                yield event.number, f"event {event.number} is an action without a reply of its own"
            asked = max(0, asked - 1)


def _unselected(events: Sequence[Event]) -> Broken:
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
            case "tool_called" if data.get("tool") == "run_script" and _ran(data):
                if str(data.get("skill")) not in loaded:
                    yield (
                        event.number,
                        f"a script of {data.get('skill')} ran at event {event.number} before it was loaded",
                    )


def _unapproved(events: Sequence[Event]) -> Broken:
    """Calls that did something though a rule said no, or asked and nobody said yes."""
    answered = False
    for event in events:
        data = event.data
        if event.type == "approval_answered":
            answered = data.get("verdict") in {"once", "always"}
        if event.type != "tool_called" or not _ran(data):
            continue
        decision = data.get("decision") or {}
        effect, by = decision.get("effect"), data.get("approved_by")
        if effect == "deny" or by not in _RAN or (effect == "ask" and by == "rule"):
            yield event.number, f"{data.get('tool')} ran at event {event.number} without its approval"
        elif by in {"once", "always"}:
            if not answered:
                yield event.number, f"{data.get('tool')} ran at event {event.number} and nobody was asked"
            answered = False


def _ran(data: Mapping[str, Any]) -> bool:
    """Whether a call did something: it went well, or a command was started, whatever came of that."""
    result = data.get("result")
    return bool(data.get("ok")) or (isinstance(result, Mapping) and "exit_code" in result)


def _beyond_budget(events: Sequence[Event]) -> Broken:
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
            for size, most in (("characters", "context_chars"), ("tokens", "context_tokens")):
                if most in budget and event.data.get(size, 0) > budget[most]:
                    yield event.number, f"the prompt at event {event.number} is longer than {most}"
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
        return Check(name, "vacuous", always=True)
    if ended.data.get("answer") == streamed:
        return Check(name, "pass", always=True)
    why = f"{len(streamed)} characters were streamed, and they are not the answer"
    return Check(name, "fail", why, (ended.number,), always=True)


_RULES: dict[str, Callable[[Sequence[Event]], Broken]] = {
    "one action a turn": _second_actions,
    "nothing loaded that was not selected": _unselected,
    "nothing run without its approval": _unapproved,
    "budgets kept": _beyond_budget,
}


def _payload(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("payload")
    return found if isinstance(found, Mapping) else {}


def _name(named: Any) -> str:
    return (str(named.get("name", "")) if isinstance(named, Mapping) else str(named)).rpartition("/")[2]
