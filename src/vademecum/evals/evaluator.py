"""Evaluate a suite in several configurations; runs that have a result are not repeated."""

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
    """Evaluate suites.

    Each result is written at once. If an evaluation is interrupted or killed, start it again with the same
    directory: only missing runs are made. With ``retry``, runs with errors, time-outs and unusable replies
    are made again. ``progress`` is called with ``done``, ``total`` and the last ``result`` or None.
    """

    engine: EvalEngine
    workshop: EvalSettings
    progress: Callable[..., None] = lambda **_: None
    retry: bool = False
    clock: Callable[[], float] = time.time

    def evaluate(self, suite: Suite, configurations: Sequence[Configuration]) -> Evaluation:
        """Run the units that have no result yet, and return all results in the order of the units."""
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
