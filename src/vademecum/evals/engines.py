"""Units → results, several at once: threads on this machine. Another engine does it on several."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from vademecum.evals.performing import Cancelled, Performer, timed_out
from vademecum.evals.plan import Unit
from vademecum.evals.results import Result

GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.2


class Engine(Protocol):
    """Works on units. Each gives one result, in whatever order; an interruption ends it at once."""

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come."""
        ...


class Threads:
    """So many units at once in this process.

    A unit that neither ends nor stops when its time is over is left behind, with a thread that can do nothing
    any more but to its own room, and another thread takes its place.
    """

    def __init__(self, workers: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come."""
        crew = _Crew(deque(units), performer, self._clock)
        for _ in range(min(self._workers, len(crew.waiting))):
            crew.hire()
        try:
            while crew.expected:
                yield from crew.finished()
        finally:
            # Whatever is still running stops at its next step.
            crew.waiting.clear()
            if crew.expected:
                performer.cancelled.set()


class _Crew:
    """The threads of one evaluation."""

    def __init__(self, waiting: deque[Unit], performer: Performer, clock: Callable[[], float]) -> None:
        self.waiting = waiting
        self.expected = {unit.key for unit in waiting}
        self._performer = performer
        self._clock = clock
        self._done: queue.SimpleQueue[Result | Unit] = queue.SimpleQueue()
        self._running: dict[str, tuple[Unit, float]] = {}

    def hire(self) -> None:
        """Start one more thread."""
        threading.Thread(target=self._work, daemon=True).start()

    def finished(self) -> Iterator[Result]:
        """What is done by now, and what will never be."""
        try:
            done = self._done.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            yield from self._overdue()
            return
        if isinstance(done, Result) and done.key in self.expected:
            self.expected.discard(done.key)
            yield done
        elif isinstance(done, Unit):
            self.expected.discard(done.key)

    def _work(self) -> None:
        while True:
            try:
                unit = self.waiting.popleft()
            except IndexError:
                return
            self._running[unit.key] = (unit, self._clock())
            try:
                self._done.put(self._performer.perform(unit))
            except Cancelled:
                self._done.put(unit)
            if self._running.pop(unit.key, None) is None:
                return  # it took so long that somebody else has this place by now

    def _overdue(self) -> Iterator[Result]:
        for unit, started in list(self._running.values()):
            limit = unit.case.constraints.max_seconds or unit.configuration.seconds
            if self._clock() - started > limit + GRACE_SECONDS:
                self._running.pop(unit.key, None)
                self.expected.discard(unit.key)
                self.hire()
                yield timed_out(unit, limit)
