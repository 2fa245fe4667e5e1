"""Check constraints over the steps of a run, while it goes on or afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Literal, assert_never

from msgspec import Struct

from vademecum.evals.checks import constraints
from vademecum.evals.checks.constraints import Constraint, Pattern, arguments_test, is_literal, text_test
from vademecum.evals.checks.steps import ACTIONS, RAW, Steps, TakenStep
from vademecum.runs.record import Event

# The events that prove a verdict; of more than this, the first.
MAX_EVIDENCE = 1000

ANY_ACTION = Pattern("any action")


class ConstraintVerdict(Struct, frozen=True):
    """The result of one constraint: pass, fail or not applicable, with the events that show it.

    ``elsewhere`` are events of child runs, as ``run:event``.
    """

    constraint: str
    holds: Literal["pass", "fail", "vacuous"]
    events: tuple[int, ...]
    elsewhere: tuple[str, ...] = ()


# What the steps so far prove, and which of them; ``open`` is a failure unless something more comes. What
# takes long is worked out only at the end.
_Proven = Literal["pass", "fail", "vacuous", "open"]
_Verdict = tuple[_Proven, Sequence[TakenStep] | Callable[[], tuple[_Proven, Sequence[TakenStep]]]]
# Takes a step with the number of the pattern that it matches, and yields what is proven then. Of several
# patterns that a step matches, the first comes first. Nothing is sent after ``fail``.
_Monitor = Generator[_Verdict, tuple[int, TakenStep], None]


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
        self._watched = [_Watched(constraint) for constraint in wanted]
        self._raw = RAW & {tests.pattern.kind for one in self._watched for tests in one.tests}
        self._steps: dict[str, Steps] = {}
        self._routes: dict[tuple[str, str, bool], list[tuple[_Watched, int, _Tests]]] = {}

    def see(self, event: Event, run: str = "") -> None:
        """Take the next event, of the run itself or of the child run of that id."""
        if run not in self._steps:
            self._steps[run] = Steps(self._raw, run=run)
        for step in self._steps[run].of(event):
            key = (step.kind, step.name, not run)
            if key not in self._routes:
                self._routes[key] = self._route(*key)
            for watched, slot, tests in self._routes[key]:
                if tests.fit(step):
                    watched.see(slot, step)

    def _route(self, kind: str, name: str, own: bool) -> list[tuple[_Watched, int, _Tests]]:  # noqa: FBT001 - part of a key
        """Return where steps of this kind and name go; worked out once for each."""
        return [
            (one, slot, tests)
            for one in self._watched
            if own or one.children
            for slot, tests in enumerate(one.tests)
            if tests.kind(kind) and tests.name(name)
        ]

    @property
    def violation(self) -> ConstraintVerdict | None:
        """The first constraint that is violated by what was seen so far, whatever comes."""
        return next((one.verdict() for one in self._watched if one.proven[0] == "fail"), None)

    def verdicts(self) -> list[ConstraintVerdict]:
        """Return the results at the end of the run."""
        return [one.verdict() for one in self._watched]


def check(wanted: Sequence[Constraint], events: Iterable[Event]) -> list[ConstraintVerdict]:
    """Check a whole run, as it was recorded."""
    watched = Trajectory(wanted)
    for event in events:
        watched.see(event)
    return watched.verdicts()


class _Watched:
    """One constraint, and what is proven of it so far.

    What counts sees the steps of ``children`` too; orders are about the run's own.
    """

    def __init__(self, constraint: Constraint) -> None:
        self._name = str(constraint)
        self._monitor, patterns, self.children = _monitor(constraint)
        self.proven = next(self._monitor)
        self.tests = [_Tests(pattern) for pattern in patterns]

    def see(self, slot: int, step: TakenStep) -> None:
        """Take a step that matches the pattern of that number."""
        if self.proven[0] != "fail":
            self.proven = self._monitor.send((slot, step))

    def verdict(self) -> ConstraintVerdict:
        """Return the result if no more steps come."""
        holds, steps = self.proven
        if not isinstance(steps, Sequence):
            holds, steps = steps()
        proof = steps[:MAX_EVIDENCE]
        own = tuple(step.event for step in proof if not step.run)
        elsewhere = tuple(f"{step.run}:{step.event}" for step in proof if step.run)
        return ConstraintVerdict(self._name, "fail" if holds == "open" else holds, own, elsewhere)


class _Tests:
    """A pattern, compiled."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.kind = text_test(pattern.kind) if pattern is not ANY_ACTION else ACTIONS.__contains__
        self.name = text_test(pattern.name)
        self._arguments = arguments_test(pattern.arguments) if pattern.arguments else None
        self._outcome = text_test(pattern.outcome) if pattern.outcome else None
        # A kind that may be several sees an action and what it leads to: of those only the first counts.
        self._is_once = pattern is not ANY_ACTION and not is_literal(pattern.kind)
        self._causes: set[tuple[str, int]] = set()

    def fit(self, step: TakenStep) -> bool:
        """Return whether a step of this kind and name counts.

        Without an outcome an action counts when it is attempted; other things happen but once.
        """
        if self._outcome is None:
            counts = not step.again
        else:
            counts = bool(step.outcome) and self._outcome(step.outcome)
        if not counts or (self._arguments is not None and not self._arguments(step.arguments)):
            return False
        if self._is_once and step.cause:
            if (step.run, step.cause) in self._causes:
                return False
            self._causes.add((step.run, step.cause))
        return True


def _monitor(constraint: Constraint) -> tuple[_Monitor, tuple[Pattern, ...], bool]:
    """Return the monitor of a constraint, its patterns, and whether it sees the steps of children."""
    match constraint:
        case constraints.Count(what=what, least=least, most=most):
            return _counted(least, most), (what,), True
        case constraints.Before(first=first, later=later, must=must):
            # The later one is looked at first: a step that is both does not come before itself.
            return _before(must=must), (later, first), False
        case constraints.After(first=first, then=then, within=within):
            return _after(within), (then, ANY_ACTION, first), False
        case constraints.Between(start=start, end=end, what=what, wanted=wanted):
            return _between(wanted=wanted), (end, what, start), False
        case constraints.Sequence(steps=steps, mode="in_order"):
            return _in_order(len(steps)), steps, False
        case constraints.Sequence(steps=steps, mode="exact"):
            # Every action is seen after the patterns that it matches.
            return _exact(len(steps)), (*steps, ANY_ACTION), False
        case constraints.Sequence(steps=steps):
            return _any_order(len(steps)), steps, False
        case _:
            assert_never(constraint)


def _counted(least: int, most: int | None) -> _Monitor:
    kept = max(1, least, 0 if most is None else most + 1)
    proof: list[TakenStep] = []
    count = 0
    while True:
        is_over = most is not None and count > most
        _, step = yield "fail" if is_over else "open" if count < least else "pass", proof
        count += 1
        if len(proof) < kept:
            proof.append(step)


def _before(*, must: bool) -> _Monitor:
    """Check that the later step never comes without the earlier one."""
    first: TakenStep | None = None
    is_met = False
    verdict: _Verdict = ("open" if must else "vacuous", [])
    while True:
        slot, step = yield verdict
        if slot == 0 and first is None:
            verdict = "fail", [step]
        elif slot == 0 and first is not None and not is_met:
            verdict, is_met = ("pass", [first, step]), True
        elif slot == 1 and first is None:
            first = step
            verdict = ("pass", [first]) if must else verdict


def _after(within: int | None) -> _Monitor:
    """Check that the one step is always followed by the other, soon enough."""
    waiting: TakenStep | None = None
    verdict: _Verdict = ("vacuous", [])
    settled = verdict
    while True:
        slot, step = yield verdict
        if waiting is None:
            waiting = step if slot == 2 else None
        elif slot != 2 and within is not None and step.actions - waiting.actions > within:
            verdict = "fail", [waiting]
            continue
        elif slot == 0:
            settled = settled if settled[1] else ("pass", [waiting, step])
            waiting = None
        verdict = settled if waiting is None else ("open", [waiting])


def _between(*, wanted: bool) -> _Monitor:
    """Check the steps between each first step and the next second one: with what is wanted, or without.

    Of several that are open the last has the least in between, and the first has the most: what is wanted
    must be after the last, and what is not wanted must not be after the first.
    """
    start: TakenStep | None = None
    inside: TakenStep | None = None
    verdict: _Verdict = ("vacuous", [])
    while True:
        slot, step = yield verdict
        if slot == 2 and (wanted or start is None):
            start, inside = step, None
        elif slot == 1 and start is not None:
            inside = inside or step
        elif slot == 0 and start is not None:
            steps = [each for each in (start, inside, step) if each is not None]
            if (inside is not None) is not wanted:
                verdict = "fail", steps
            elif not verdict[1]:
                verdict = "pass", steps
            start = inside = None


def _in_order(count: int) -> _Monitor:
    """Check that the steps come in this order, whatever is in between."""
    found: list[TakenStep] = []
    while True:
        slot, step = yield "pass" if len(found) == count else "open", found
        if slot == len(found) and not (found and step is found[-1]):
            found.append(step)


def _exact(count: int) -> _Monitor:
    """These actions and no others."""
    fits: TakenStep | None = None
    found: list[TakenStep] = []
    while True:
        slot, step = yield "pass" if len(found) == count else "open", found
        if slot < count:
            fits = step if slot == len(found) else fits
        elif fits is step:
            found.append(step)
        else:
            yield "fail", [*found[-1:], step]


def _any_order(count: int) -> _Monitor:
    """Check that all of them come, each by a step of its own."""
    seen: list[list[TakenStep]] = [[] for _ in range(count)]
    while True:
        slot, step = yield "open", partial(_given, seen)
        # More than there are patterns are never needed to give each its own.
        if len(seen[slot]) < count:
            seen[slot].append(step)


def _given(seen: Sequence[Sequence[TakenStep]]) -> tuple[_Proven, Sequence[TakenStep]]:
    """Give each pattern a step of its own, as far as there are enough."""
    taken: dict[int, tuple[int, TakenStep]] = {}

    def give(slot: int, tried: set[int]) -> bool:
        """Give a pattern a step, moving others to another step of theirs where that helps."""
        for step in seen[slot]:
            if id(step) not in tried:
                tried.add(id(step))
                if id(step) not in taken or give(taken[id(step)][0], tried):
                    taken[id(step)] = (slot, step)
                    return True
        return False

    found = [give(slot, set()) for slot in range(len(seen))]
    proof = {step.event: step for _, step in taken.values()}
    return "pass" if all(found) else "open", [proof[event] for event in sorted(proof)]
