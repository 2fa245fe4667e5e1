"""Run units on a Ray cluster: for several machines that all see the directory of the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from vademecum.errors import ConfigError
from vademecum.evals.pool import GRACE_SECONDS, Processes
from vademecum.evals.results import CaseResult, without_run
from vademecum.evals.units import EvalSettings, Unit
from vademecum.models.base import Model

LOOPBACK = "127.0.0.1"
# How often a unit that lost the machine it ran on is tried again.
MOST_RETRIES = 1


class OnRay:
    """Run units on the cluster at ``address``, or on one that is started here and stopped again.

    Each unit is a task of the cluster, with a process of its own and the same deadlines as on one machine.
    """

    def __init__(self, workers: int, *, address: str | None = None) -> None:
        self._workers = workers
        self._address = address

    def run(
        self, units: Iterable[Unit], workshop: EvalSettings, models: Mapping[str, Model]
    ) -> Iterator[CaseResult]:
        """Yield results as they come."""
        units = list(units)
        if not units:
            return
        waiting = iter(units)
        ray = _imported()
        own = not ray.is_initialized()
        if own:
            ray.init(address=self._address, logging_level="ERROR", log_to_driver=False, **self._local())
        perform = ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(_perform)
        running: dict[Any, Unit] = {}
        try:
            _check_size(ray, self._workers)
            shared = ray.put((workshop, dict(models)))
            running |= {perform.remote(unit, shared): unit for unit in islice(waiting, self._workers)}
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
            _cancel(ray, list(running))
            if own:
                ray.shutdown()

    def _local(self) -> dict[str, Any]:
        """Return the settings of a cluster of our own, which only this machine can reach."""
        if self._address:
            return {}
        return {"num_cpus": self._workers, "include_dashboard": False, "_node_ip_address": LOOPBACK}


def _perform(unit: Unit, shared: tuple[EvalSettings, Mapping[str, Model]]) -> CaseResult:
    """Run one unit within its time."""
    (result,) = Processes(1).run([unit], *shared)
    return result


def _cancel(ray: Any, running: list[Any]) -> None:
    """Interrupt what is running, and wait until it has tidied up."""
    for task in running:
        ray.cancel(task)
    if running:
        ray.wait(running, num_returns=len(running), timeout=2 * GRACE_SECONDS)


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
