"""Run units in warm processes on this machine, each with a deadline."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import FrameType
from typing import Protocol

from vademecum.evals.results import CaseResult, without_run
from vademecum.evals.units import EvalSettings, Unit

# Seconds that a run has to end after it was told to; then its process is killed.
GRACE_SECONDS = 5.0
# Seconds until a process must have taken a unit; on a busy machine a new process starts slowly.
START_SECONDS = 60.0
# Seconds for the checks of one run; a judge has as long as the run in addition.
CHECK_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_PREFIX = "vade-eval-"
_MAX_SOCKET_DIRECTORY = 60


class EvalEngine(Protocol):
    """Run units and yield one result for each, in any order; closing the iterator ends what is running."""

    def run(self, units: Iterable[Unit], workshop: EvalSettings) -> Iterator[CaseResult]:
        """Yield results as they arrive."""
        ...


@dataclass(frozen=True, slots=True)
class Processes:
    """Run units in a number of processes.

    A run that exceeds its time is interrupted as by Ctrl-C; a process that does not end within ``grace``
    seconds is killed and replaced.
    """

    workers: int
    grace: float = GRACE_SECONDS
    clock: Callable[[], float] = time.monotonic

    def run(self, units: Iterable[Unit], workshop: EvalSettings) -> Iterator[CaseResult]:
        """Yield results as they arrive; units that still run when the caller stops have no result."""
        waiting = deque(units)
        new_worker = partial(Worker, workshop, self.grace, self.clock)
        workers: list[Worker] = []
        try:
            for _ in range(min(self.workers, len(waiting))):
                workers.append(new_worker())
            while True:
                for worker in workers:
                    if waiting and worker.unit is None:
                        worker.give(waiting.popleft())
                busy = [worker for worker in workers if worker.unit is not None]
                if not busy:
                    return
                wait([worker.connection for worker in busy], timeout=_LOOK_SECONDS)
                for worker in busy:
                    result = worker.look()
                    if not worker.is_alive:
                        worker.end(0.0)
                        workers[workers.index(worker)] = new_worker()
                    if result is not None:
                        yield result
        finally:
            for worker in workers:
                worker.interrupt()
            deadline = time.monotonic() + self.grace  # until then they can tidy up
            for worker in workers:
                worker.end(max(0.0, deadline - time.monotonic()))


class Worker:
    """One process as its parent sees it: its unit, its deadline and its directory."""

    def __init__(self, workshop: EvalSettings, grace: float, clock: Callable[[], float]) -> None:
        self._grace = grace
        self._clock = clock
        self._place = Path(tempfile.mkdtemp(prefix=_PREFIX))
        context = _context()
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, workshop, self._place), daemon=False)
        self._process.start()
        theirs.close()
        self.unit: Unit | None = None
        self.is_alive = True

    def give(self, unit: Unit) -> None:
        """Send a unit to the process; its time starts when the process says so."""
        self.unit = unit
        self._allow(START_SECONDS)
        with suppress(BrokenPipeError):  # it has ended, which `look` will notice
            self.connection.send(unit)

    def _allow(self, seconds: float) -> None:
        """Give the process this many seconds until its next message."""
        self._told, self._limit, self._deadline = False, seconds, self._clock() + seconds

    def look(self) -> CaseResult | None:
        """Read a message if there is one, else check the deadline; return the unit's result if known."""
        unit = self.unit
        assert unit is not None
        late = self._clock() - self._deadline
        if self.connection.poll():  # after reading the clock, in case a message came meanwhile
            return self._receive(unit)
        if late > 0 and not self._told:
            self._told = True
            self._process.terminate()
        elif late > self._grace:
            self.is_alive = False
            return without_run(unit, "timeout", seconds=self._limit)
        return None

    def _receive(self, unit: Unit) -> CaseResult | None:
        """Receive a result, or the time limit of the next part of the work."""
        try:
            said: CaseResult | float = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(self._grace)
            code = self._process.exitcode or 0
            self.is_alive = False
            if self._told and code == -signal.SIGTERM:  # the signal came before the handler was installed
                return without_run(unit, "timeout", seconds=self._limit)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return without_run(unit, "error", error=f"Its process ended while it ran ({how}).")
        if isinstance(said, CaseResult):
            self.unit = None
            return said
        self._allow(said)
        return None

    def interrupt(self) -> None:
        """Tell the process to end."""
        if self.unit is not None:
            self._process.terminate()
        self.connection.close()

    def end(self, seconds: float) -> None:
        """Wait this long for the process to end, then kill it; remove its directory."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self.connection.close()
        shutil.rmtree(self._place, ignore_errors=True)


def _context() -> ForkServerContext:
    """Start the server that forks our workers, unless it runs; it has imported their modules.

    Its socket is in the directory for temporary files, whose path can be too long for a socket.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "vademecum.evals.trial"])
    directory = tempfile.tempdir
    if len(tempfile.gettempdir()) > _MAX_SOCKET_DIRECTORY:
        tempfile.tempdir = "/tmp"  # noqa: S108 - multiprocessing makes a private directory in it
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = directory
    return context


def _work(connection: Connection, workshop: EvalSettings, place: Path) -> None:
    """Perform units in this process until the parent has no more of them, or has ended."""
    # The agent is needed in this process only, not in the one that plans and reports.
    from vademecum.evals.trial import Trials  # noqa: PLC0415 - see above

    is_running = False

    def interrupt(_: int, __: FrameType | None) -> None:
        """Act like Ctrl-C while a unit runs; between two units, do nothing."""
        nonlocal is_running
        if is_running:
            is_running = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    # Ctrl-C reaches the parent too, which decides what ends. Unlike SIG_IGN this is not inherited by scripts.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    trials = Trials(workshop)
    try:
        while True:
            unit = connection.recv()
            connection.send(unit.seconds)
            checking = CHECK_SECONDS + unit.configuration.seconds
            try:
                is_running = True
                result = trials.perform(unit, place, on_checks=partial(connection.send, checking))
            except KeyboardInterrupt:
                result = without_run(unit, "timeout", seconds=unit.seconds)
            finally:
                is_running = False
            connection.send(result)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
    finally:
        shutil.rmtree(place, ignore_errors=True)  # a parent that was killed cannot do it


def _end_with_parent() -> None:
    """End this process when the evaluation that it belongs to was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os._exit(1)
