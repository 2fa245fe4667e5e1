"""Run units on a Ray cluster: for several machines that all see the directory of the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from vademecum.errors import ConfigError
from vademecum.evals.pool import GRACE_SECONDS, WorkerPool
from vademecum.evals.results import CaseResult, without_run
from vademecum.evals.units import EvalSettings, Unit
from vademecum.models.base import Model

LOOPBACK = "127.0.0.1"
# How often a unit may lose the machine it runs on.
MOST_LOST = 2
_LOOK_SECONDS = 0.5


class OnRay:
    """Run units on the cluster at ``address``, or on one that is started here and stopped again.

    Each actor of the cluster has one warm process for its units, with the same deadlines as on one machine.
    A unit whose actor is lost is tried once more, on another one.
    """

    def __init__(self, workers: int, *, address: str | None = None) -> None:
        self._workers = workers
        self._address = address

    def run(
        self, units: Iterable[Unit], workshop: EvalSettings, models: Mapping[str, Model]
    ) -> Iterator[CaseResult]:
        """Yield results as they come."""
        waiting = deque(units)
        if not waiting:
            return
        ray = _imported()
        own = not ray.is_initialized()
        if own:
            ray.init(address=self._address, logging_level="ERROR", log_to_driver=False, **self._local())
        try:
            _check_size(ray, self._workers)
            actors = _Actors(ray, waiting, ray.put((workshop, dict(models))))
            try:
                actors.start(min(self._workers, len(waiting)))
                yield from actors.results()
            finally:
                actors.close()
        finally:
            if own:
                ray.shutdown()

    def _local(self) -> dict[str, Any]:
        """Return the settings of a cluster of our own, which only this machine can reach."""
        if self._address:
            return {}
        return {"num_cpus": self._workers, "include_dashboard": False, "_node_ip_address": LOOPBACK}


class _Actors:
    """The actors of one evaluation, each with one unit at a time."""

    def __init__(self, ray: Any, waiting: deque[Unit], shared: Any) -> None:
        self._ray = ray
        self._waiting = waiting
        self._shared = shared
        self._actor = ray.remote(num_cpus=1, max_concurrency=2)(_Actor)
        self._jobs: dict[Any, tuple[Unit, Any]] = {}
        self._lost: dict[str, int] = {}

    def start(self, count: int) -> None:
        """Start so many actors, and give each its first unit."""
        for _ in range(count):
            self._give(self._actor.remote(self._shared))

    def results(self) -> Iterator[CaseResult]:
        """Yield results until no unit is left."""
        while self._jobs:
            done, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=_LOOK_SECONDS)
            for ticket in done:
                unit, actor = self._jobs.pop(ticket)
                try:
                    result = self._ray.get(ticket)
                except self._ray.exceptions.RayActorError:
                    yield from self._retried(unit)
                    continue
                except self._ray.exceptions.RayError as error:
                    said = f"Ray could not run it ({type(error).__name__}: {error})."
                    result = without_run(unit, "error", error=said)
                self._give(actor)
                yield result

    def close(self) -> None:
        """Interrupt what is running, wait until it has tidied up, and end the actors."""
        told = []
        for _, actor in self._jobs.values():
            with suppress(Exception):  # an actor that is gone needs no message
                told.append(actor.stop.remote())
        if told:
            self._ray.wait(told, num_returns=len(told), timeout=2 * GRACE_SECONDS)
        for _, actor in self._jobs.values():
            self._ray.kill(actor)

    def _retried(self, unit: Unit) -> Iterator[CaseResult]:
        """Replace an actor that is gone; yield a result if its unit was lost too often."""
        lost = self._lost[unit.key] = self._lost.get(unit.key, 0) + 1
        if lost < MOST_LOST:
            self._waiting.append(unit)
        if self._waiting:
            self.start(1)
        if lost >= MOST_LOST:
            yield without_run(unit, "error", error=f"Its worker was lost {lost} times while it ran.")

    def _give(self, actor: Any) -> None:
        """Give an actor its next unit; end it if there is none."""
        if not self._waiting:
            self._ray.kill(actor)
            return
        unit = self._waiting.popleft()
        self._jobs[actor.perform.remote(unit)] = (unit, actor)


class _Actor:
    """One actor of the cluster, with a pool of one process."""

    def __init__(self, shared: tuple[EvalSettings, Mapping[str, Model]]) -> None:
        self._pool = WorkerPool(*shared)
        self._pool.start_worker()

    def perform(self, unit: Unit) -> CaseResult:
        """Run one unit within its time."""
        found = list(self._pool.results(deque([unit])))
        return found[0] if found else without_run(unit, "error", error="It was interrupted.")

    def stop(self) -> None:
        """Interrupt what is running, and wait until it has tidied up."""
        self._pool.stop()
        self._pool.close()


def _check_size(ray: Any, workers: int) -> None:
    """Refuse more workers than there are CPUs: Ray would wait for them without end."""
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
