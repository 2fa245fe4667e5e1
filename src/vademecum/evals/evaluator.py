"""A suite, its configurations and an engine → an evaluation; what was done before is not done again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vademecum.evals.pool import EvalEngine
from vademecum.evals.results import (
    CaseLine,
    Evaluation,
    Header,
    open_results,
    read_evaluation,
    write_header,
)
from vademecum.evals.suite import Suite
from vademecum.evals.units import Configuration, EvalSettings, plan


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates suites.

    Each result is kept as soon as it is there, so an evaluation that is interrupted, or killed, goes on with
    what is missing when it is started again with the same directory. With ``retry``, errors, time-outs and
    runs that never worked are missing too. ``progress`` is called with ``done``, ``total`` and the last
    ``result``, or None if that was there already.
    """

    engine: EvalEngine
    workshop: EvalSettings
    progress: Callable[..., None] = lambda **_: None
    retry: bool = False
    clock: Callable[[], float] = time.time

    def evaluate(self, suite: Suite, configurations: Sequence[Configuration]) -> Evaluation:
        """Run what has no result yet, and give all results in the order of the units."""
        units = plan(suite.cases, configurations, self.workshop)
        skills = {skill.name for skill in self.workshop.index}
        header = Header(
            suite.name,
            suite.skill,
            self.clock(),
            tuple(configurations),
            tuple(CaseLine.of(case, skills) for case in suite.cases),
            suite.malformed,
            tuple(unit.names for unit in units),
        )
        serves = Counter(unit.key for unit in units)
        with open_results(self.workshop.out) as (known, keep):
            write_header(self.workshop.out, header)
            again = {"error", "timeout", "unusable"} if self.retry else set()
            valid = {key for key, result in known.items() if result.outcome not in again}
            untaped = [one for one in configurations if one.tape and not Path(one.tape).exists()]
            # Units with the same key are one run.
            missing = {
                unit.key: unit for unit in units if unit.key not in valid or unit.configuration in untaped
            }
            done = len(units) - sum(serves[key] for key in missing)
            self.progress(done=done, total=len(units), result=None)
            for result in self.engine.run(missing.values(), self.workshop):
                keep(result)
                done += serves[result.key]
                self.progress(done=done, total=len(units), result=result)
            return read_evaluation(self.workshop.out)
