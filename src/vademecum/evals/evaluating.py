"""A suite, its configurations and an engine → an evaluation; what was done before is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vademecum.evals.engines import Engine
from vademecum.evals.performing import Performer
from vademecum.evals.plan import Configuration, plan
from vademecum.evals.reading import Suite
from vademecum.evals.results import CaseLine, Evaluation, Header, Ledger, Result, write_header


class Progress(Protocol):
    """Is told how far an evaluation is."""

    def __call__(self, *, done: int, total: int, result: Result | None) -> None:
        """So many of so many have a result; the last one, unless it was there already."""
        ...


def _silent(*, done: int, total: int, result: Result | None) -> None:  # noqa: ARG001 - nobody listens
    return


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates suites.

    Each result is kept as soon as it is there, so an evaluation that is interrupted, or killed, goes on with
    what is missing when it is started again with the same directory. With ``retry``, errors and time-outs
    are missing too.
    """

    engine: Engine
    performer: Performer
    progress: Progress = _silent
    retry: bool = False
    clock: Callable[[], float] = time.time

    def evaluate(self, suite: Suite, configurations: Sequence[Configuration]) -> Evaluation:
        """Run what has no result yet, and give all results in the order of the units."""
        workshop = self.performer.stock.workshop
        units = plan(suite.cases, configurations, workshop.index, project=workshop.project)
        header = Header(
            suite.name,
            suite.place,
            suite.skill,
            self.clock(),
            tuple(configurations),
            tuple(map(CaseLine.of, suite.cases)),
            suite.malformed,
            tuple(unit.key for unit in units),
        )
        ledger = Ledger(workshop.out)
        try:
            write_header(workshop.out, header)
            again = {"error", "timeout"} if self.retry else set()
            settled = {key for key, result in ledger.known.items() if result.outcome not in again}
            missing = [unit for unit in units if unit.key not in settled]
            done = len(units) - len(missing)
            self.progress(done=done, total=len(units), result=None)
            for result in self.engine.run(missing, self.performer):
                ledger.add(result)
                done += 1
                self.progress(done=done, total=len(units), result=result)
        finally:
            ledger.close()
        found = tuple(ledger.known[unit.key] for unit in units if unit.key in ledger.known)
        return Evaluation(header, found, str(workshop.out))
