"""The same units on a Ray cluster: for more than one machine, all of which see the results' directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vademecum.errors import ConfigError
from vademecum.evals.performing import Performer
from vademecum.evals.plan import Unit
from vademecum.evals.results import Result
from vademecum.evals.workshop import Workshop

# So many units are handed out at once: enough to keep every worker busy, few enough to stop soon.
_AHEAD = 4


class OnRay:
    """So many workers of a cluster: the one at ``address``, or one that is started here and stopped again."""

    def __init__(self, workers: int, *, address: str | None = None) -> None:
        self._workers = workers
        self._address = address

    def run(self, units: Iterable[Unit], performer: Performer) -> Iterator[Result]:
        """The results as they come."""
        ray = _imported()
        own = not ray.is_initialized()
        if own:
            started = {} if self._address else {"num_cpus": self._workers, "include_dashboard": False}
            ray.init(address=self._address, logging_level="ERROR", **started)
        try:
            yield from self._results(ray, list(units), performer.stock.workshop)
        finally:
            if own:
                ray.shutdown()

    def _results(self, ray: Any, units: list[Unit], workshop: Workshop) -> Iterator[Result]:
        worker = ray.remote(num_cpus=1)(_Worker)
        shared = ray.put(workshop)
        crew = [worker.remote(shared) for _ in range(self._workers)]
        waiting = iter(units)
        pending: dict[Any, Any] = {}
        for member in crew * _AHEAD:
            _hand_out(pending, member, waiting)
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1)
            for ticket in done:
                _hand_out(pending, pending.pop(ticket), waiting)
                yield ray.get(ticket)


class _Worker:
    """One process of the cluster, with its own performer."""

    def __init__(self, workshop: Workshop) -> None:
        self._performer = Performer(workshop)

    def perform(self, unit: Unit) -> Result:
        """Perform one unit."""
        return self._performer.perform(unit)


def _hand_out(pending: dict[Any, Any], member: Any, waiting: Iterator[Unit]) -> None:
    unit = next(waiting, None)
    if unit is not None:
        pending[member.perform.remote(unit)] = member


def _imported() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra, and heavy
    except ImportError as error:
        raise ConfigError("The engine 'ray' needs a package: pip install 'vademecum[ray]'.") from error
    return ray
