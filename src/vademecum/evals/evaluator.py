"""A suite, its configurations and an engine → an evaluation; what was done before is not done again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vademecum.evals.pool import EvalEngine
from vademecum.evals.results import (
    CaseLine,
    CaseResult,
    Evaluation,
    Header,
    ResultsFile,
    planned,
    whole,
    write_header,
)
from vademecum.evals.suite import Suite
from vademecum.evals.trial import EvalSettings
from vademecum.evals.units import Configuration, Unit, plan
from vademecum.models.base import Model


class OnProgress(Protocol):
    """Is told how far an evaluation is."""

    def __call__(self, *, done: int, total: int, result: CaseResult | None) -> None:
        """So many of so many have a result; the last one, unless it was there already."""
        ...


def _silent(*, done: int, total: int, result: CaseResult | None) -> None:  # noqa: ARG001 - nobody listens
    return


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates suites.

    Each result is kept as soon as it is there, so an evaluation that is interrupted, or killed, goes on with
    what is missing when it is started again with the same directory. With ``retry``, errors, time-outs and
    runs that never worked are missing too.
    """

    engine: EvalEngine
    workshop: EvalSettings
    models: Mapping[str, Model] = field(default_factory=dict)
    progress: OnProgress = _silent
    retry: bool = False
    clock: Callable[[], float] = time.time

    def evaluate(self, suite: Suite, configurations: Sequence[Configuration]) -> Evaluation:
        """Run what has no result yet, and give all results in the order of the units."""
        workshop = self.workshop
        units = plan(suite.cases, configurations, workshop.index, project=workshop.project, env=workshop.env)
        skills = {skill.name for skill in workshop.index}
        header = whole(_header(suite, configurations, units, self.clock(), skills))
        ledger = ResultsFile(workshop.out)
        try:
            write_header(workshop.out, header)
            self._run(units, ledger)
        finally:
            ledger.close()
        return Evaluation(header, header.placed(ledger.known), str(workshop.out))

    def _run(self, units: Sequence[Unit], ledger: ResultsFile) -> None:
        """Run the units without a result, each key once."""
        serves = Counter(unit.key for unit in units)
        missing = {unit.key: unit for unit in units if self._is_missing(unit, ledger)}
        done = len(units) - sum(serves[key] for key in missing)
        self.progress(done=done, total=len(units), result=None)
        for result in self.engine.run(missing.values(), self.workshop, self.models):
            kept = ledger.add(result)
            done += serves[kept.key]
            self.progress(done=done, total=len(units), result=kept)

    def _is_missing(self, unit: Unit, ledger: ResultsFile) -> bool:
        """Return whether a unit has no valid result, or its recording is missing."""
        known = ledger.known.get(unit.key)
        tape = unit.configuration.tape
        if known is None or (tape and not Path(tape).exists()):
            return True
        return self.retry and known.outcome in {"error", "timeout", "unusable"}


def _header(
    suite: Suite, ways: Sequence[Configuration], units: Sequence[Unit], started: float, skills: set[str]
) -> Header:
    return Header(
        suite.name,
        suite.place,
        suite.skill,
        started,
        tuple(ways),
        tuple(CaseLine.of(case, skills) for case in suite.cases),
        suite.malformed,
        tuple(unit.key for unit in units),
        planned(units),
    )
