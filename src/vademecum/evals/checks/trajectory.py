"""Check constraints over the steps of a run, live or afterwards, in time linear in its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, assert_never

from msgspec import Struct

from vademecum.evals.checks import constraints
from vademecum.evals.checks.constraints import Constraint, Pattern, arguments_test, is_literal, text_test
from vademecum.evals.checks.steps import ACTIONS, RAW, Step, Steps
from vademecum.runs.record import Event

MAX_ROUTES = 10_000

Holds = Literal["pass", "fail", "vacuous"]


class ConstraintVerdict(Struct, frozen=True):
    """The result of one constraint: pass, fail or not applicable, with the events that show it.

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

    >>> from vademecum.evals.checks.constraints import parse_constraint
    >>> watched = Trajectory([parse_constraint({"never": "write_file"})])
    >>> wanted = {"tool": "write_file", "arguments": {"path": "a.txt"}}
    >>> watched.see(Event(7, 0.0, "action", {"action": "call_tool", "payload": wanted}))
    >>> watched.verdicts()
    [ConstraintVerdict(constraint='never call_tool:write_file', holds='fail', events=(7,), elsewhere=())]
    """

    def __init__(self, wanted: Iterable[Constraint]) -> None:
        self._constraints = list(wanted)
        self._monitors = [monitor(constraint) for constraint in self._constraints]
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
    def violation(self) -> ConstraintVerdict | None:
        """The first constraint that is violated by what was seen so far, whatever comes."""
        for number, watching in enumerate(self._monitors):
            if watching.violated:
                return self._verdict(number)
        return None

    def verdicts(self) -> list[ConstraintVerdict]:
        """Return the results at the end of the run."""
        return [self._verdict(number) for number in range(len(self._monitors))]

    def _verdict(self, number: int) -> ConstraintVerdict:
        holds, events, elsewhere = self._monitors[number].verdict()
        return ConstraintVerdict(str(self._constraints[number]), holds, tuple(events), tuple(elsewhere))

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


def check(wanted: Sequence[Constraint], events: Iterable[Event]) -> list[ConstraintVerdict]:
    """Check a whole run, as it was recorded."""
    watched = Trajectory(wanted)
    for event in events:
        watched.see(event)
    return watched.verdicts()


class _Tests:
    """A pattern, compiled."""

    def __init__(self, pattern: Pattern) -> None:
        self.kind = text_test(pattern.kind) if pattern.kind != "*" else _everything
        if pattern is ANY_ACTION:
            self.kind = ACTIONS.__contains__
        self.name = text_test(pattern.name) if pattern.name != "*" else _everything
        self.arguments = arguments_test(pattern.arguments) if pattern.arguments else None
        self.counts = _first_time if not pattern.outcome else _outcome(text_test(pattern.outcome))
        # A kind that may be several sees an action and what it leads to: those are one.
        several = pattern is not ANY_ACTION and not is_literal(pattern.kind)
        self._once = _Once() if several else None

    def seeing(self, see: _See) -> _See:
        """Return a function that takes the steps; of an action and its consequences only the first counts."""
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


# The events that prove a verdict; of more than this, the first.
MAX_EVIDENCE = 1000

ANY_ACTION = Pattern("any action")


class MonitorVerdict(NamedTuple):
    """The result of a monitor, with the events that show it; those of child runs are ``run:event``."""

    verdict: Literal["pass", "fail", "vacuous"]
    events: list[int]
    elsewhere: list[str] = []  # noqa: RUF012 - it never changes


class Monitor(Protocol):
    """Watches for its ``patterns``; of one step that matches several, the first is seen first.

    ``violated`` turns true as soon as nothing that comes can change the verdict to pass. Those that count
    see the steps of ``children`` too; orders are about the run's own.
    """

    patterns: tuple[Pattern, ...]
    violated: bool
    children: bool

    def see(self, slot: int, step: Step, /) -> None:
        """Take a step that matches the pattern of that number."""
        ...

    def verdict(self) -> MonitorVerdict:
        """Return the result if no more steps come, and the events that show it."""
        ...


def monitor(constraint: Constraint) -> Monitor:
    """The machine for a constraint."""
    match constraint:
        case constraints.Require(what=what):
            return _Counting(what, least=1, most=None)
        case constraints.Never(what=what):
            return _Counting(what, least=0, most=0)
        case constraints.Count(what=what, least=least, most=most):
            return _Counting(what, least=least, most=most)
        case constraints.Before():
            return _Before(constraint)
        case constraints.After():
            return _After(constraint)
        case constraints.Between():
            return _Between(constraint)
        case constraints.Sequence(steps=steps, mode="in_order"):
            return _InOrder(steps)
        case constraints.Sequence(steps=steps, mode="exact"):
            return _Exact(steps)
        case constraints.Sequence(steps=steps):
            return _AnyOrder(steps)
        case _:
            assert_never(constraint)


class _Ordered:
    """A monitor of the order of a run's own steps."""

    children = False


class _Counting:
    """So many times."""

    children = True

    def __init__(self, what: Pattern, *, least: int, most: int | None) -> None:
        self.patterns: tuple[Pattern, ...] = (what,)
        self.violated = False
        self._least, self._most = least, most
        self._kept = min(MAX_EVIDENCE, max(1, least, 0 if most is None else most + 1))
        self._count = 0
        self._proof: list[Step] = []

    def see(self, _: int, step: Step) -> None:
        self._count += 1
        if len(self._proof) < self._kept:
            self._proof.append(step)
        if self._most is not None and self._count > self._most:
            self.violated = True

    def verdict(self) -> MonitorVerdict:
        wrong = self.violated or self._count < self._least
        own = [step.event for step in self._proof if not step.run]
        elsewhere = [f"{step.run}:{step.event}" for step in self._proof if step.run]
        return MonitorVerdict("fail" if wrong else "pass", own, elsewhere)


class _Before(_Ordered):
    """The later one never without the earlier one."""

    def __init__(self, constraint: constraints.Before) -> None:
        # The later one is looked at first: a step that is both does not come before itself.
        self.patterns: tuple[Pattern, ...] = (constraint.later, constraint.first)
        self.violated = False
        self._must = constraint.must
        self._first = 0
        self._later: list[int] = []

    def see(self, slot: int, step: Step) -> None:
        if self.violated:
            return
        if slot == 1:
            self._first = self._first or step.event
        elif not self._first:
            self.violated = True
            self._later = [step.event]
        elif not self._later:
            self._later = [step.event]

    def verdict(self) -> MonitorVerdict:
        if self.violated or (self._must and not self._first):
            return MonitorVerdict("fail", self._later)
        if not self._later:
            return MonitorVerdict("pass", [self._first]) if self._must else MonitorVerdict("vacuous", [])
        return MonitorVerdict("pass", [self._first, *self._later])


class _After(_Ordered):
    """The one always followed by the other, soon enough."""

    def __init__(self, constraint: constraints.After) -> None:
        self.patterns: tuple[Pattern, ...] = (constraint.then, ANY_ACTION, constraint.first)
        self.violated = False
        self._within = constraint.within
        self._waiting: deque[Step] = deque()
        self._proof: list[int] = []

    def see(self, slot: int, step: Step) -> None:
        if self.violated:
            return
        if slot == 2:
            self._waiting.append(step)
        elif slot == 0:
            if self._waiting and not self._is_late(step):
                self._proof = self._proof or [self._waiting[0].event, step.event]
                self._waiting.clear()
            elif self._waiting:
                self._fail()
        elif self._waiting and self._is_late(step):
            self._fail()

    def _is_late(self, step: Step) -> bool:
        return self._within is not None and step.actions - self._waiting[0].actions > self._within

    def _fail(self) -> None:
        self.violated = True
        self._proof = [self._waiting[0].event]

    def verdict(self) -> MonitorVerdict:
        if self.violated:
            return MonitorVerdict("fail", self._proof)
        if self._waiting:
            return MonitorVerdict("fail", [self._waiting[0].event])
        return MonitorVerdict("pass", self._proof) if self._proof else MonitorVerdict("vacuous", [])


class _Between(_Ordered):
    """From each one to the next other: with it, or without.

    Of several that are open the last has the least in between, and the first has the most: what is wanted
    must be after the last, and what is not wanted must not be after the first.
    """

    def __init__(self, constraint: constraints.Between) -> None:
        self.patterns: tuple[Pattern, ...] = (constraint.end, constraint.what, constraint.start)
        self.violated = False
        self._wanted = constraint.wanted
        self._start = self._inside = 0
        self._proof: list[int] = []

    def see(self, slot: int, step: Step) -> None:
        if self.violated:
            return
        if slot == 2:
            self._open(step)
        elif slot == 1:
            if self._start:
                self._inside = self._inside or step.event
        elif self._start:
            self._close(step)

    def _open(self, step: Step) -> None:
        if self._wanted or not self._start:
            self._start, self._inside = step.event, 0

    def _close(self, step: Step) -> None:
        events = [event for event in (self._start, self._inside, step.event) if event]
        self.violated = bool(self._inside) is not self._wanted
        if self.violated or not self._proof:
            self._proof = events
        self._start = self._inside = 0

    def verdict(self) -> MonitorVerdict:
        if self.violated:
            return MonitorVerdict("fail", self._proof)
        return MonitorVerdict("pass", self._proof) if self._proof else MonitorVerdict("vacuous", [])


class _InOrder(_Ordered):
    """One after the other, whatever is in between."""

    def __init__(self, steps: tuple[Pattern, ...]) -> None:
        self.patterns = steps
        self.violated = False
        self._events: list[int] = []
        self._last: Step | None = None

    def see(self, slot: int, step: Step) -> None:
        if slot == len(self._events) and step is not self._last:
            self._events.append(step.event)
            self._last = step

    def verdict(self) -> MonitorVerdict:
        complete = len(self._events) == len(self.patterns)
        return MonitorVerdict("pass" if complete else "fail", self._events[:MAX_EVIDENCE])


class _Exact(_Ordered):
    """These actions and no others. The last pattern is every action: it is seen after those it matches."""

    def __init__(self, steps: tuple[Pattern, ...]) -> None:
        self.patterns = (*steps, ANY_ACTION)
        self.violated = False
        self._wanted = len(steps)
        self._fits: Step | None = None
        self._events: list[int] = []

    def see(self, slot: int, step: Step) -> None:
        if self.violated:
            return
        place = len(self._events)
        if slot < self._wanted:
            if slot == place:
                self._fits = step
        elif self._fits is step:
            self._events.append(step.event)
        else:
            self.violated = True
            self._events = [*self._events[-1:], step.event]

    def verdict(self) -> MonitorVerdict:
        complete = not self.violated and len(self._events) == self._wanted
        return MonitorVerdict("pass" if complete else "fail", self._events[:MAX_EVIDENCE])


# A step's own name: several skills can be selected by one event.
_Own = tuple[int, str, str]


class _AnyOrder(_Ordered):
    """All of them, each by a step of its own."""

    def __init__(self, steps: tuple[Pattern, ...]) -> None:
        self.patterns = steps
        self.violated = False
        self._seen: list[list[_Own]] = [[] for _ in steps]

    def see(self, slot: int, step: Step) -> None:
        # More than there are patterns are never needed to give each its own.
        if len(self._seen[slot]) < len(self.patterns):
            self._seen[slot].append((step.event, step.kind, step.name))

    def verdict(self) -> MonitorVerdict:
        taken: dict[_Own, int] = {}
        found = [self._give(slot, taken, set()) for slot in range(len(self._seen))]
        events = sorted({event for event, _, _ in taken})
        return MonitorVerdict("pass" if all(found) else "fail", events[:MAX_EVIDENCE])

    def _give(self, slot: int, taken: dict[_Own, int], tried: set[_Own]) -> bool:
        """Give a pattern a step, moving others to another step of theirs where that helps."""
        for own in self._seen[slot]:
            if own in tried:
                continue
            tried.add(own)
            if own not in taken or self._give(taken[own], taken, tried):
                taken[own] = slot
                return True
        return False
