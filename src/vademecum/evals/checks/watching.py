"""Check the events of a run: limits and skills while it goes on, general rules afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from vademecum.errors import VademecumError
from vademecum.evals.cases import ANY_SKILL, Case, Expected
from vademecum.evals.checks.steps import skill_of
from vademecum.evals.checks.trajectory import Trajectory
from vademecum.evals.results import CheckResult
from vademecum.runs.record import Event

Reason = Literal["", "violation", "limit", "loaded"]


class Stopped(VademecumError):
    """Ends a run that is decided."""

    code = "stopped"


class Watcher:
    """The listener of one run.

    Events of a child run are counted against the limits, and kept by themselves: ``children`` has them by the
    child's id.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._inside: list[str] = []
        self._asked = 0
        self._calls = self._scripts = 0
        self._pieces: list[str] = []
        self.trajectory = Trajectory(case.expected.trajectory)
        self.broken: CheckResult | None = None
        self.events: list[Event] = []
        self.children: dict[str, list[Event]] = {}
        self.reason: Reason = ""

    @property
    def streamed(self) -> str:
        """The answer as it came in pieces."""
        return "".join(self._pieces)

    def __call__(self, event: Event) -> None:
        """Take an event; raises where the run is to end here."""
        if event.type == "child_finished":
            self._inside = self._inside[:-1]
        self._take(event)
        if event.type == "child_started":
            self._inside.append(str(event.data.get("run", "")))
        if event.type == "run_finished":
            return
        self._look(event)
        if self.reason:
            raise Stopped(self._said())

    def _take(self, event: Event) -> None:
        run = self._inside[-1] if self._inside else ""
        if event.number:
            (self.children.setdefault(run, []) if run else self.events).append(event)
            self.trajectory.see(event, run)
        elif run:
            return
        elif event.type == "answer_piece":
            self._pieces.append(event.data["text"])
        elif event.type == "answer_withdrawn":
            self._pieces.clear()

    def _look(self, event: Event) -> None:
        if self.reason:
            return
        if self.trajectory.violation is not None:
            self.reason = "violation"
        elif self._is_beyond(event):
            self.reason = "limit"
        elif self._case.until == "loaded" and self._is_over(event) and self._is_decided():
            self.reason = "loaded"

    def _is_over(self, event: Event) -> bool:
        """Return whether each skill of an action was loaded or has failed to load."""
        if len(self._inside) > (event.type == "child_started"):
            return False  # what a child does is none of its parent's actions
        if event.type == "action":
            self._asked = len(event.data["payload"].get("skills") or ())
        elif event.type in {"skill_loaded", "child_started"}:
            self._asked -= 1
            return self._asked <= 0
        return event.type == "observation"

    def _is_decided(self) -> bool:
        """Return whether later events cannot change the result of the skill checks."""
        expected, loaded = self._case.expected, set(loaded_skills(self.events))
        unwanted = set(expected.skills_none_of)
        if loaded & unwanted or (loaded and ANY_SKILL in unwanted):
            return True
        if expected.skills_none_of:
            return False
        any_of = set(expected.skills_any_of)
        return loaded >= set(expected.skills_all_of) and (not any_of or bool(loaded & any_of))

    def _is_beyond(self, event: Event) -> bool:
        """Return whether this event exceeds a limit of the case; attempts count."""
        limits = self._case.constraints
        if event.type == "model_asked" and not self._inside:
            self._bound("max_turns", event.data["turn"], limits.max_turns, event)
        elif event.type == "action":
            kind = event.data["action"]
            tool = event.data["payload"].get("tool", kind) if kind == "call_tool" else kind
            self._calls += kind in {"call_tool", "run_script"}
            self._scripts += kind == "run_script"
            self._bound("max_tool_calls", self._calls, limits.max_tool_calls, event)
            self._bound("max_script_runs", self._scripts, limits.max_script_runs, event)
            if tool in limits.deny_tools:
                self._break(f"deny_tools {tool}", f"{tool} was called", event)
        return self.broken is not None

    def _bound(self, name: str, used: int, most: int | None, event: Event) -> None:
        if most is not None and used > most:
            self._break(name, f"{used}, at most {most} allowed,", event)

    def _break(self, name: str, what: str, event: Event) -> None:
        """Write down the first limit that is broken, and where."""
        if self.broken is not None:
            return
        if self._inside:
            place = f"{self._inside[-1]}:{event.number}"
            self.broken = CheckResult(name, "fail", f"{what} at event {place}", elsewhere=(place,))
        else:
            self.broken = CheckResult(name, "fail", f"{what} at event {event.number}", (event.number,))

    def _said(self) -> str:
        match self.reason:
            case "violation":
                found = self.trajectory.violation
                return f"Stopped at the first violation: {found.constraint if found else ''}."
            case "limit":
                return f"Stopped: {self.broken.name if self.broken else ''} was exceeded."
            case _:
                return "Stopped: it is known which skill is taken."

    def limits(self) -> list[CheckResult]:
        """Return the checks of the case's limits."""
        limits = self._case.constraints
        names = [f"deny_tools {tool}" for tool in limits.deny_tools]
        names += [
            name
            for name in ("max_turns", "max_tool_calls", "max_script_runs")
            if getattr(limits, name) is not None
        ]
        broken = [] if self.broken is None else [self.broken]
        return broken + [CheckResult(n, "pass") for n in names if n not in {check.name for check in broken}]


def loaded_skills(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the skills that were loaded or given a run of their own, in their order."""
    names = [skill_of(event.data) for event in events if event.type in {"skill_loaded", "child_started"}]
    return tuple(dict.fromkeys(names))


def check_skills(expected: Expected, loaded: Sequence[str]) -> list[CheckResult]:
    """Check that the skills are those that the case names."""
    taken = set(loaded)
    unwanted = set(expected.skills_none_of)
    none_of = not (taken if ANY_SKILL in unwanted else taken & unwanted)
    kinds = (
        ("skills_any_of", expected.skills_any_of, bool(taken & set(expected.skills_any_of))),
        ("skills_all_of", expected.skills_all_of, taken >= set(expected.skills_all_of)),
        ("skills_none_of", expected.skills_none_of, none_of),
    )
    why = f"it took {', '.join(loaded) or 'no skill'}"
    return [
        CheckResult(f"{kind} {', '.join(names)}", "pass" if holds else "fail", "" if holds else why)
        for kind, names, holds in kinds
        if names
    ]


_RAN = frozenset({"once", "always", "remembered", "rule"})


Broken = Iterator[tuple[int, str]]


def check_compliance(
    events: Sequence[Event],
    *,
    streamed: str | None = None,
    children: Mapping[str, Sequence[Event]] | None = None,
) -> list[CheckResult]:
    """Check the rules that apply to every run; ``streamed`` is the answer as it was streamed, if it was.

    ``children`` are the events of child runs by their ids: the rules hold of each.
    """
    runs = {"": events, **(children or {})}
    found = [_check(name, rule, runs) for name, rule in _RULES.items()]
    return found if streamed is None else [*found, _streamed(events, streamed)]


def _check(
    name: str, rule: Callable[[Sequence[Event]], Broken], runs: Mapping[str, Sequence[Event]]
) -> CheckResult:
    """Return where a rule is broken first: in the run itself, or in one of its children."""
    for run, events in runs.items():
        number, why = next(rule(events), (0, ""))
        if why and run:
            return CheckResult(
                name, "fail", f"in the child run {run}: {why}", elsewhere=(f"{run}:{number}",), always=True
            )
        if why:
            return CheckResult(name, "fail", why, (number,), always=True)
    return CheckResult(name, "pass", always=True)


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
    """Return skills that were loaded, read or run without being selected before."""
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
    """Return calls that were carried out although a rule denied them, or without a required approval."""
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
    """Return whether a call had an effect: it succeeded, or it started a command."""
    result = data.get("result")
    return bool(data.get("ok")) or (isinstance(result, Mapping) and "exit_code" in result)


def _beyond_budget(events: Sequence[Event]) -> Broken:
    """Return the first thing that was more than the budget allows."""
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


def _streamed(events: Sequence[Event], streamed: str) -> CheckResult:
    name = "streamed pieces equal the final text"
    ended = next((event for event in reversed(events) if event.type == "run_finished"), None)
    final = any(e.type == "action" and e.data.get("action") == "final_answer" for e in events)
    if ended is None or not final:
        return CheckResult(name, "vacuous", always=True)
    if ended.data.get("answer") == streamed:
        return CheckResult(name, "pass", always=True)
    why = f"{len(streamed)} characters were streamed, and they are not the answer"
    return CheckResult(name, "fail", why, (ended.number,), always=True)


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
