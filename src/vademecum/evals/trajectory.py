"""Constraints over the steps of a run, checked live or afterwards, in time linear in its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from vademecum.evals import monitors
from vademecum.evals.constraints import Constraint
from vademecum.evals.patterns import Pattern, arguments_test, text_test
from vademecum.evals.steps import Step, Steps
from vademecum.runs.record import Event

MAX_ROUTES = 10_000

Holds = Literal["pass", "fail", "vacuous"]


class Verdict(Struct, frozen=True):
    """Whether a constraint holds, or nothing it speaks of happened, and the events that prove it."""

    constraint: str
    holds: Holds
    events: tuple[int, ...]


# What a step is handed to: the monitor, which of its patterns it is, and what is left to be tested.
_Route = tuple[
    Callable[[int, Step], None], int, Callable[[Mapping[str, Any]], bool] | None, Callable[[str], bool]
]


class Trajectory:
    """Watches a run through a set of constraints.

    >>> from vademecum.evals.constraints import parse_constraint
    >>> watched = Trajectory([parse_constraint({"never": "write_file"})])
    >>> wanted = {"tool": "write_file", "arguments": {"path": "a.txt"}}
    >>> watched.see(Event(7, 0.0, "action", {"action": "call_tool", "payload": wanted}))
    >>> watched.verdicts()
    [Verdict(constraint='never call_tool:write_file', holds='fail', events=(7,))]
    """

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        self._constraints = list(constraints)
        self._monitors = [monitors.monitor(constraint) for constraint in self._constraints]
        self._patterns = [
            (number, slot, _Tests(pattern))
            for number, watching in enumerate(self._monitors)
            for slot, pattern in enumerate(watching.patterns)
        ]
        self._routes: dict[tuple[str, str], list[_Route]] = {}
        self._steps = Steps()

    def see(self, event: Event) -> None:
        """Take the next event."""
        routes = self._routes
        for step in self._steps.of(event):
            key = (step.kind, step.name)
            found = routes.get(key)
            if found is None:
                found = self._route(key)
            for see, slot, arguments, outcome in found:
                if outcome(step.outcome) and (arguments is None or arguments(step.arguments)):
                    see(slot, step)

    @property
    def violation(self) -> Verdict | None:
        """The first constraint that is violated by what was seen so far, whatever comes."""
        for number, watching in enumerate(self._monitors):
            if watching.violated:
                return self._verdict(number)
        return None

    def verdicts(self) -> list[Verdict]:
        """What holds, now that the run is over."""
        return [self._verdict(number) for number in range(len(self._monitors))]

    def _verdict(self, number: int) -> Verdict:
        holds, events = self._monitors[number].verdict()
        return Verdict(str(self._constraints[number]), holds, tuple(events))

    def _route(self, key: tuple[str, str]) -> list[_Route]:
        """Who wants steps of this kind and name; worked out once for each."""
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        found: list[_Route] = [
            (self._monitors[number].see, slot, tests.arguments, tests.outcome)
            for number, slot, tests in self._patterns
            if tests.kind(key[0]) and tests.name(key[1])
        ]
        self._routes[key] = found
        return found


def check(constraints: Sequence[Constraint], events: Iterable[Event]) -> list[Verdict]:
    """Check a whole run, as it was recorded."""
    watched = Trajectory(constraints)
    for event in events:
        watched.see(event)
    return watched.verdicts()


class _Tests:
    """A pattern, compiled."""

    def __init__(self, pattern: Pattern) -> None:
        self.kind = text_test(pattern.kind) if pattern.kind != "*" else _everything
        if pattern is monitors.ANY_ACTION:
            self.kind = monitors.ACTIONS.__contains__
        self.name = text_test(pattern.name) if pattern.name != "*" else _everything
        self.arguments = arguments_test(pattern.arguments) if pattern.arguments else None
        self.outcome = text_test(pattern.outcome) if pattern.outcome else _attempt(pattern)


def _everything(_: str) -> bool:
    return True


def _attempt(pattern: Pattern) -> Callable[[str], bool]:
    """Without an outcome an action counts when it is attempted; other things happen but once."""
    if pattern.kind in monitors.ACTIONS or pattern is monitors.ANY_ACTION:
        return "".__eq__
    return _everything
