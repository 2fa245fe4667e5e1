"""Units → results, several at once: threads on this machine. Another engine does it on several."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from vademecum.evals.performing import Cancelled, Performer, left_behind, timed_out
from vademecum.evals.plan import Unit
from vademecum.evals.results import Result
from vademecum.evals.stopping import Stop, interrupt

# A run that is over its time ends by itself, or is interrupted so long after, or is left behind.
GRACE_SECONDS = 1.0
LAST_SECONDS = 5.0
_LOOK_SECONDS = 0.2


class Engine(Protocol):
    """Works on units. Each gives one result, in whatever order; an interruption ends it at once."""

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come."""
        ...


class Threads:
    """So many units at once in this process.

    A unit that neither ends nor stops when its time is over is left behind, with a thread that can do nothing
    any more but to its own room, and another thread takes its place. Whoever stops taking results stops the
    units that are running: nothing of them is left but records, which say that they were interrupted.
    """

    def __init__(self, workers: int, *, grace: float = GRACE_SECONDS, last: float = LAST_SECONDS) -> None:
        self._workers = workers
        self._patience = _Patience(grace, last)

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come; none any more once the performer is cancelled."""
        crew = _Crew(deque(units), performer, self._patience)
        for _ in range(min(self._workers, len(crew.waiting))):
            crew.hire()
        try:
            while crew.expected and not performer.cancelled.is_set():
                yield from crew.finished()
        finally:
            crew.close()


@dataclass(frozen=True, slots=True)
class _Patience:
    """How many seconds after its time a run is interrupted, and how many more before it is left behind."""

    grace: float
    last: float


@dataclass(slots=True)
class _Running:
    """One unit, and the thread that works on it."""

    unit: Unit
    stop: Stop
    thread: threading.Thread
    interrupted: bool = False


class _Crew:
    """The threads of one evaluation."""

    def __init__(self, waiting: deque[Unit], performer: Performer, patience: _Patience) -> None:
        self.waiting = waiting
        self.expected = {unit.key for unit in waiting}
        self._performer = performer
        self._patience = patience
        self._looked = time.monotonic()
        self._done: queue.SimpleQueue[Result | Unit] = queue.SimpleQueue()
        self._running: dict[str, _Running] = {}
        self._threads: list[threading.Thread] = []

    def hire(self) -> None:
        """Start one more thread."""
        thread = threading.Thread(target=self._work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def finished(self) -> Iterator[Result]:
        """What is done by now, and what will never be."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            yield from self._overdue()
        try:
            done = self._done.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if self.waiting and not any(thread.is_alive() for thread in self._threads):
                self.hire()
            return
        if done.key in self.expected:
            self.expected.discard(done.key)
            if isinstance(done, Result):
                yield done

    def close(self) -> None:
        """End what is running, wait until it has tidied up, and tidy up for what does not end."""
        self.waiting.clear()
        if self.expected:
            self._performer.cancelled.set()
        if self._are_left(self._patience.grace):
            for thread in self._threads:
                interrupt(thread)
            self._are_left(self._patience.last)
        self._performer.rooms.clear()

    def _are_left(self, seconds: float) -> bool:
        """Whether some thread still works after so many seconds."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while True:
            try:
                unit = self.waiting.popleft()
            except IndexError:
                return
            running = _Running(unit, self._performer.stop_for(unit), threading.current_thread())
            self._running[unit.key] = running
            with suppress(KeyboardInterrupt):  # it came too late to end anything
                self._done.put(self._one(running))
                if self._running.pop(unit.key, None) is not running:
                    return  # it took so long that somebody else has this place by now

    def _one(self, running: _Running) -> Result | Unit:
        """The result of a unit; where the evaluation was interrupted, the unit itself."""
        try:
            return self._performer.perform(running.unit, running.stop)
        except Cancelled:
            return running.unit
        except KeyboardInterrupt:
            return timed_out(running.unit, running.stop.seconds)

    def _overdue(self) -> Iterator[Result]:
        for running in list(self._running.values()):
            late = running.stop.overdue
            if late > self._patience.grace and not running.interrupted:
                running.interrupted = True
                interrupt(running.thread)
            if late > self._patience.grace + self._patience.last:
                self._running.pop(running.unit.key, None)
                self.expected.discard(running.unit.key)
                self.hire()
                yield left_behind(running.unit, running.stop.seconds)
