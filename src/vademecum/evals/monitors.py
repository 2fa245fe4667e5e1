"""One small machine for each kind of constraint: it sees matching steps, and says what holds."""

from __future__ import annotations

from collections import deque
from typing import Literal, Protocol, assert_never

from vademecum.evals import constraints
from vademecum.evals.constraints import Constraint
from vademecum.evals.patterns import Pattern
from vademecum.evals.steps import Step

MAX_EVIDENCE = 20

ACTIONS = frozenset({"select_skills", "load_resource", "run_script", "call_tool", "final_answer"})
ANY_ACTION = Pattern("any action")

Holds = tuple[Literal["pass", "fail", "vacuous"], list[int]]


class Monitor(Protocol):
    """Watches for its ``patterns``; of one step that matches several, the first is seen first.

    ``violated`` turns true as soon as nothing that comes can change the verdict to pass.
    """

    patterns: tuple[Pattern, ...]
    violated: bool

    def see(self, slot: int, step: Step, /) -> None:
        """Take a step that matches the pattern of that number."""
        ...

    def verdict(self) -> Holds:
        """What holds if nothing more comes, and the events that prove it."""
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


class _Counting:
    """So many times."""

    def __init__(self, what: Pattern, *, least: int, most: int | None) -> None:
        self.patterns: tuple[Pattern, ...] = (what,)
        self.violated = False
        self._least, self._most = least, most
        self._kept = min(MAX_EVIDENCE, max(1, least, 0 if most is None else most + 1))
        self._count = 0
        self._events: list[int] = []

    def see(self, _: int, step: Step) -> None:
        self._count += 1
        if len(self._events) < self._kept:
            self._events.append(step.event)
        if self._most is not None and self._count > self._most:
            self.violated = True

    def verdict(self) -> Holds:
        if self.violated or self._count < self._least:
            return "fail", self._events
        return "pass", self._events


class _Before:
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

    def verdict(self) -> Holds:
        if self.violated or (self._must and not self._first):
            return "fail", self._later
        if not self._later:
            return ("pass", [self._first]) if self._must else ("vacuous", [])
        return "pass", [self._first, *self._later]


class _After:
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

    def verdict(self) -> Holds:
        if self.violated:
            return "fail", self._proof
        if self._waiting:
            return "fail", [self._waiting[0].event]
        return ("pass", self._proof) if self._proof else ("vacuous", [])


class _Between:
    """From one to the next other: with it, or without."""

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
            self._start = self._start or step.event
        elif slot == 1:
            if self._start:
                self._inside = self._inside or step.event
        elif self._start:
            self._close(step)

    def _close(self, step: Step) -> None:
        events = [event for event in (self._start, self._inside, step.event) if event]
        self.violated = bool(self._inside) is not self._wanted
        if self.violated or not self._proof:
            self._proof = events
        self._start = self._inside = 0

    def verdict(self) -> Holds:
        if self.violated:
            return "fail", self._proof
        return ("pass", self._proof) if self._proof else ("vacuous", [])


class _InOrder:
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

    def verdict(self) -> Holds:
        return "pass" if len(self._events) == len(self.patterns) else "fail", self._events[:MAX_EVIDENCE]


class _Exact:
    """These actions and no others. The last pattern is every action: it is seen after the one it matches."""

    def __init__(self, steps: tuple[Pattern, ...]) -> None:
        self.patterns = (*steps, ANY_ACTION)
        self.violated = False
        self._wanted = len(steps)
        self._matched: set[int] = set()
        self._events: list[int] = []

    def see(self, slot: int, step: Step) -> None:
        if self.violated:
            return
        if slot < self._wanted:
            self._matched.add(slot)
            return
        if len(self._events) in self._matched:
            self._events.append(step.event)
        else:
            self.violated = True
            self._events = [*self._events[-1:], step.event]
        self._matched.clear()

    def verdict(self) -> Holds:
        complete = not self.violated and len(self._events) == self._wanted
        return "pass" if complete else "fail", self._events[:MAX_EVIDENCE]


# A step's own name: several skills can be selected by one event.
_Own = tuple[int, str, str]


class _AnyOrder:
    """All of them, each by a step of its own."""

    def __init__(self, steps: tuple[Pattern, ...]) -> None:
        self.patterns = steps
        self.violated = False
        self._seen: list[list[_Own]] = [[] for _ in steps]

    def see(self, slot: int, step: Step) -> None:
        # More than there are patterns are never needed to give each its own.
        if len(self._seen[slot]) < len(self.patterns):
            self._seen[slot].append((step.event, step.kind, step.name))

    def verdict(self) -> Holds:
        taken: dict[_Own, int] = {}
        found = [self._give(slot, taken, set()) for slot in range(len(self._seen))]
        return "pass" if all(found) else "fail", sorted({event for event, _, _ in taken})[:MAX_EVIDENCE]

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
