"""The same units on a Ray cluster: for more than one machine, all of which see the results' directory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vademecum.errors import ConfigError
from vademecum.evals.engines import GRACE_SECONDS, LAST_SECONDS, Threads
from vademecum.evals.performing import Performer, failed, left_behind
from vademecum.evals.plan import Unit
from vademecum.evals.results import Result
from vademecum.evals.trial import CHECK_SECONDS
from vademecum.evals.workshop import Workshop
from vademecum.models.base import Model

# A worker is a process somewhere: so long it may take to come up, and so often a unit may lose one.
LOOPBACK = "127.0.0.1"
READY_SECONDS = 120.0
MOST_LOST = 2
_LOOK_SECONDS = 0.5


class OnRay:
    """So many workers of a cluster: the one at ``address``, or one that is started here and stopped again.

    A unit whose worker is lost is tried once more, on another one. A worker that does not come back in time
    is ended.
    """

    def __init__(self, workers: int, *, address: str | None = None, patience: float = CHECK_SECONDS) -> None:
        self._workers = workers
        self._address = address
        self._patience = patience

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come."""
        waiting = deque(units)
        if not waiting:
            return
        ray = _imported()
        own = not ray.is_initialized()
        if own:
            started: dict[str, Any] = {}
            if not self._address:  # one of our own, that nobody else can reach
                started = {
                    "num_cpus": self._workers,
                    "include_dashboard": False,
                    "_node_ip_address": LOOPBACK,
                }
            ray.init(address=self._address, logging_level="ERROR", log_to_driver=False, **started)
        try:
            _check_size(ray, self._workers)
            crew = _Crew(ray, waiting, performer, self._patience)
            try:
                crew.hire(min(self._workers, len(waiting)))
                while crew.expected:
                    yield from crew.finished()
            finally:
                crew.close()
        finally:
            if own:
                ray.shutdown()


@dataclass(slots=True)
class _Job:
    """One unit at one worker."""

    unit: Unit
    worker: Any
    deadline: float


class _Crew:
    """The workers of one evaluation, each with one unit at a time: so it is known whose unit lost one."""

    def __init__(self, ray: Any, waiting: deque[Unit], performer: Performer, patience: float) -> None:
        self._ray = ray
        self._waiting = waiting
        self._patience = patience
        self._worker = ray.remote(num_cpus=1, max_concurrency=2)(_Worker)
        self._shared = ray.put((performer.stock.workshop, performer.stock.models))
        self._jobs: dict[Any, _Job] = {}
        self._lost: dict[str, int] = {}
        self.expected = {unit.key for unit in waiting}

    def hire(self, count: int) -> None:
        """Bring up so many workers, and give each its first unit."""
        workers = [self._worker.remote(self._shared) for _ in range(count)]
        ready = [worker.ready.remote() for worker in workers]
        came, _ = self._ray.wait(ready, num_returns=count, timeout=READY_SECONDS)
        if len(came) < count:
            free = int(self._ray.available_resources().get("CPU", 0))
            late = (
                f"Only {len(came)} of {count} workers came up in {READY_SECONDS:g} s ({free} CPUs are free)"
            )
            raise ConfigError(f"{late}: name fewer with -j, or wait until others are done.")
        for worker, ticket in zip(workers, ready, strict=True):
            self._ray.get(ticket)
            self._hand_out(worker)

    def finished(self) -> Iterator[Result]:
        """What is done by now, and what will never be."""
        done, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=_LOOK_SECONDS)
        for ticket in done:
            yield from self._taken(self._jobs.pop(ticket), ticket)
        now = time.monotonic()
        for ticket, job in list(self._jobs.items()):
            if now > job.deadline:
                del self._jobs[ticket]
                self._replace(job.worker)
                yield self._settled(left_behind(job.unit, job.unit.seconds))

    def close(self) -> None:
        """Tell the workers to end what they do and to tidy up, and end them."""
        told = []
        for job in self._jobs.values():
            with suppress(Exception):  # it may be gone, which is as well
                told.append(job.worker.stop.remote())
        if told:
            self._ray.wait(told, num_returns=len(told), timeout=GRACE_SECONDS + 2 * LAST_SECONDS)
        for job in self._jobs.values():
            self._ray.kill(job.worker)

    def _taken(self, job: _Job, ticket: Any) -> Iterator[Result]:
        try:
            result = self._ray.get(ticket)
        except self._ray.exceptions.RayActorError:
            yield from self._lose(job)
            return
        except self._ray.exceptions.RayError as error:
            result = failed(job.unit, f"Ray could not do it ({type(error).__name__}: {error}).")
        self._hand_out(job.worker)
        yield self._settled(result)

    def _lose(self, job: _Job) -> Iterator[Result]:
        """Another worker takes the place of one that is gone; its unit is tried again, but not for ever."""
        lost = self._lost[job.unit.key] = self._lost.get(job.unit.key, 0) + 1
        if lost < MOST_LOST:
            self._waiting.append(job.unit)
        self._replace(None)
        if lost >= MOST_LOST:
            yield self._settled(failed(job.unit, f"Its worker was lost {lost} times while it ran."))

    def _replace(self, worker: Any) -> None:
        if worker is not None:
            self._ray.kill(worker)
        if self._waiting:
            self.hire(1)

    def _settled(self, result: Result) -> Result:
        self.expected.discard(result.key)
        return result

    def _hand_out(self, worker: Any) -> None:
        """Give a worker its next unit; where there is none, it is not needed any more."""
        if not self._waiting:
            self._ray.kill(worker)
            return
        unit = self._waiting.popleft()
        # The worker ends a unit by itself when its time is over: beyond that, and its checks, it is stuck.
        most = unit.seconds + unit.configuration.seconds + self._patience + GRACE_SECONDS + 2 * LAST_SECONDS
        self._jobs[worker.perform.remote(unit)] = _Job(unit, worker, time.monotonic() + most)


class _Worker:
    """One process of the cluster, with its own performer."""

    def __init__(self, shared: tuple[Workshop, Mapping[str, Model]]) -> None:
        workshop, models = shared
        self._performer = Performer(workshop, models=models)
        self._busy = False

    def ready(self) -> bool:
        """Say that it is there."""
        return True

    def perform(self, unit: Unit) -> Result:
        """Perform one unit, within its time."""
        self._busy = True
        try:
            results = list(Threads(1).run([unit], self._performer))
            return results[0] if results else failed(unit, "It was interrupted.")
        finally:
            self._busy = False

    def stop(self) -> None:
        """End what is running, and wait until it has tidied up."""
        self._performer.cancelled.set()
        while self._busy:
            time.sleep(0.05)


def _check_size(ray: Any, workers: int) -> None:
    """Refuse more workers than there are CPUs: Ray would wait for them for ever."""
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < workers:
        advice = f"name -j {there}" if there else "add a machine"
        raise ConfigError(f"The cluster has {there} CPUs, and {workers} workers need one each: {advice}.")


def _imported() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra, and heavy
    except ImportError as error:
        raise ConfigError("The engine 'ray' needs a package: pip install 'vademecum[ray]'.") from error
    return ray
