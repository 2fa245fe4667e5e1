"""Run units on a Ray cluster, whose machines must share the directory of the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vademecum.errors import ConfigError
from vademecum.evals.pool import GRACE_SECONDS, Processes
from vademecum.evals.results import CaseResult, without_run
from vademecum.evals.units import EvalSettings, Unit

LOOPBACK = "127.0.0.1"
# How often a unit is tried again after its machine was lost.
MOST_RETRIES = 1


@dataclass(frozen=True, slots=True)
class OnRay:
    """Run units on the cluster at ``address``, or on a local one that is started and stopped again.

    Each unit is a task of the cluster, with its own process and the same deadlines as on one machine.
    """

    workers: int
    address: str | None = None

    def run(self, units: Iterable[Unit], workshop: EvalSettings) -> Iterator[CaseResult]:
        """Yield results as they arrive."""
        units = list(units)
        if not units:
            return
        waiting = iter(units)
        ray = _imported()
        own = not ray.is_initialized()
        if own:
            alone = {"num_cpus": self.workers, "include_dashboard": False, "_node_ip_address": LOOPBACK}
            reached = {"address": self.address} if self.address else alone
            ray.init(logging_level="ERROR", log_to_driver=False, **reached)
        perform = ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(_perform)
        running: dict[Any, Unit] = {}
        try:
            there = int(ray.cluster_resources().get("CPU", 0))
            if there < self.workers:  # Ray would wait for them forever
                more = f"use -j {there}" if there else "add a machine"
                needed = f"{self.workers} workers need one each"
                raise ConfigError(f"The cluster has {there} CPUs, and {needed}: {more}.")
            shared = ray.put(workshop)
            running |= {perform.remote(unit, shared): unit for unit in islice(waiting, self.workers)}
            while running:
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                unit = running.pop(done)
                running |= {perform.remote(unit, shared): unit for unit in islice(waiting, 1)}
                try:
                    result = ray.get(done)
                except ray.exceptions.RayError as error:
                    said = f"Ray could not run it ({type(error).__name__}: {error})."
                    result = without_run(unit, "error", error=said)
                yield result
        finally:
            for task in running:
                ray.cancel(task)
            if running:  # until they have tidied up
                ray.wait(list(running), num_returns=len(running), timeout=2 * GRACE_SECONDS)
            if own:
                ray.shutdown()


def _perform(unit: Unit, workshop: EvalSettings) -> CaseResult:
    """Run one unit within its time."""
    (result,) = Processes(1).run([unit], workshop)
    return result


def _imported() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra, and heavy
    except ImportError as error:
        raise ConfigError("The engine 'ray' needs a package: pip install 'vademecum[ray]'.") from error
    return ray
