"""Constraints over the steps of a run, checked live or afterwards, in time linear in its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from vademecum.evals import monitors
from vademecum.evals.constraints import Constraint, Pattern, arguments_test, is_literal, text_test
from vademecum.evals.steps import ACTIONS, RAW, Step, Steps
from vademecum.runs.record import Event

MAX_ROUTES = 10_000

Holds = Literal["pass", "fail", "vacuous"]


class Verdict(Struct, frozen=True):
    """Whether a constraint holds, or nothing it speaks of happened, and the events that prove it.

    ``elsewhere`` are events of child runs, as ``run:event``.
    """

    constraint: str
    holds: Holds
    events: tuple[int, ...]
    elsewhere: tuple[str, ...] = ()


_See = Callable[[int, Step], None]
# What a step is handed to: the monitor, which of its patterns it is, and what is left to be tested.
_Route = tuple[_See, int, Callable[[Mapping[str, Any]], bool] | None, Callable[[Step], bool]]


class Trajectory:
    """Watches a run through a set of constraints.

    >>> from vademecum.evals.constraints import parse_constraint
    >>> watched = Trajectory([parse_constraint({"never": "write_file"})])
    >>> wanted = {"tool": "write_file", "arguments": {"path": "a.txt"}}
    >>> watched.see(Event(7, 0.0, "action", {"action": "call_tool", "payload": wanted}))
    >>> watched.verdicts()
    [Verdict(constraint='never call_tool:write_file', holds='fail', events=(7,), elsewhere=())]
    """

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        self._constraints = list(constraints)
        self._monitors = [monitors.monitor(constraint) for constraint in self._constraints]
        self._patterns = [
            (watching, slot, _Tests(pattern))
            for watching in self._monitors
            for slot, pattern in enumerate(watching.patterns)
        ]
        self._routes: dict[tuple[str, str, bool], list[_Route]] = {}
        self._raw = RAW & {pattern.kind for one in self._monitors for pattern in one.patterns}
        self._steps = {"": Steps(self._raw)}

    def see(self, event: Event, run: str = "") -> None:
        """Take the next event, of the run itself or of the child run of that id."""
        routes = self._routes
        steps = self._steps.get(run)
        if steps is None:
            steps = self._steps[run] = Steps(self._raw, run=run)
        for step in steps.of(event):
            key = (step.kind, step.name, not run)
            found = routes.get(key)
            if found is None:
                found = self._route(key)
            for see, slot, arguments, counts in found:
                if counts(step) and (arguments is None or arguments(step.arguments)):
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
        holds, events, elsewhere = self._monitors[number].verdict()
        return Verdict(str(self._constraints[number]), holds, tuple(events), tuple(elsewhere))

    def _route(self, key: tuple[str, str, bool]) -> list[_Route]:
        """Who wants steps of this kind and name; worked out once for each."""
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        kind, name, own = key
        found: list[_Route] = [
            (tests.seeing(watching.see), slot, tests.arguments, tests.counts)
            for watching, slot, tests in self._patterns
            if (own or watching.children) and tests.kind(kind) and tests.name(name)
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
            self.kind = ACTIONS.__contains__
        self.name = text_test(pattern.name) if pattern.name != "*" else _everything
        self.arguments = arguments_test(pattern.arguments) if pattern.arguments else None
        self.counts = _first_time if not pattern.outcome else _outcome(text_test(pattern.outcome))
        # A kind that may be several sees an action and what it leads to: those are one.
        several = pattern is not monitors.ANY_ACTION and not is_literal(pattern.kind)
        self._once = _Once() if several else None

    def seeing(self, see: _See) -> _See:
        """What takes the steps: of one action and all it leads to, the first."""
        return see if self._once is None else self._once.of(see)


class _Once:
    """Lets each attempt through once, with whatever it leads to."""

    def __init__(self) -> None:
        self._run, self._actions = "", 0
        self._causes: set[int] = set()

    def of(self, see: _See) -> _See:
        def once(slot: int, step: Step) -> None:
            if (step.run, step.actions) != (self._run, self._actions):
                self._run, self._actions = step.run, step.actions
                self._causes.clear()
            if step.cause and step.cause in self._causes:
                return
            self._causes.add(step.cause)
            see(slot, step)

        return once


def _everything(_: str) -> bool:
    return True


def _first_time(step: Step) -> bool:
    """Without an outcome an action counts when it is attempted; other things happen but once."""
    return not step.again


def _outcome(test: Callable[[str], bool]) -> Callable[[Step], bool]:
    return lambda step: bool(step.outcome) and test(step.outcome)
