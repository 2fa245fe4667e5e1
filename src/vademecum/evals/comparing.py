"""Two sets of results → what changed: paired by case, repeats reduced first, a bootstrap over cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from msgspec import Struct, structs

from vademecum.evals.plan import Configuration
from vademecum.evals.results import JUDGED, Evaluation, Result
from vademecum.evals.statistics import Difference, paired


class Change(Struct, frozen=True):
    """How often one case passed before and after."""

    case: str
    old: float
    new: float


class Comparison(Struct, frozen=True):
    """What changed from old to new.

    ``regressions`` are cases that passed every time and now fail every time. ``unpaired`` cases have a
    verdict on one side only and say nothing of the difference; those of them that passed in old are ``lost``.
    Tokens and seconds are those of a run, over the cases that have a verdict on both sides.
    """

    old: str
    new: str
    difference: Difference
    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    regressions: tuple[str, ...]
    unpaired: tuple[str, ...]
    tokens: float
    seconds: float
    lost: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        """Whether it got worse: beyond doubt on the whole, some case for good, or nobody can know."""
        worse = self.difference.verdict == "worse" or bool(self.regressions)
        return worse or bool(self.lost) or not self.difference.pairs

    @property
    def said(self) -> str:
        """In one sentence."""
        found = self.difference
        if not found.pairs:
            return f"inconclusive: from {self.old} to {self.new} {found.advice}"
        low, high = found.interval.low, found.interval.high
        cases = "1 case" if found.pairs == 1 else f"{found.pairs:,} cases"
        interval = f"95 % interval {low:+.1%} to {high:+.1%}, {cases}"
        change = f"{found.verdict}: {found.mean:+.1%} from {self.old} to {self.new} ({interval})"
        return f"{change}; {found.advice}" if found.advice else change


def compare(old: Sequence[Result], new: Sequence[Result], *, old_name: str, new_name: str) -> Comparison:
    """Pair by case; errors and time-outs are no verdict."""
    before, after = rates_of(old), rates_of(new)
    both = [case for case in before if case in after]
    changes = [(case, before[case], after[case]) for case in both]
    return Comparison(
        old_name,
        new_name,
        paired([later - earlier for _, earlier, later in changes]),
        tuple(Change(case, float(a), float(b)) for case, a, b in changes if b > a),
        tuple(Change(case, float(a), float(b)) for case, a, b in changes if b < a),
        tuple(case for case, a, b in changes if a == 1 and b == 0),
        tuple(sorted({result.case for result in (*old, *new)} - set(both))),
        _added(old, new, both, lambda result: result.input_tokens + result.output_tokens),
        _added(old, new, both, lambda result: result.seconds),
        tuple(case for case, rate in before.items() if rate and case not in after),
    )


def side_by_side(new: Evaluation, old: Evaluation) -> Evaluation:
    """Two evaluations as one, to be shown together: each under the name of its directory."""
    labels = [Path(one.place).name for one in (new, old)]
    if labels[0] == labels[1]:
        labels = ["new", "old"]
    configurations: list[Configuration] = []
    results: list[Result] = []
    for one, label in zip((new, old), labels, strict=True):
        several = len(one.header.configurations) > 1
        names = {
            each.name: f"{label} {each.name}" if several else label for each in one.header.configurations
        }
        configurations += [structs.replace(c, name=names[c.name]) for c in one.header.configurations]
        results += [structs.replace(r, configuration=names[r.configuration]) for r in one.results]
    units = (*new.header.units, *old.header.units)
    header = structs.replace(new.header, configurations=tuple(configurations), units=units, planned=())
    return Evaluation(header, tuple(results), new.place, old.place)


def rates_of(results: Iterable[Result]) -> dict[str, Fraction]:
    """The share of passes of each case that has a verdict, repeats together."""
    found: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        if result.outcome in JUDGED:
            found[result.case].append(result.outcome == "pass")
    return {case: Fraction(sum(passed), len(passed)) for case, passed in found.items()}


def _added(
    old: Sequence[Result], new: Sequence[Result], both: Sequence[str], cost: Callable[[Result], float]
) -> float:
    """What a run costs more than before, case by case; runs without a verdict have no price."""
    before, after = _costs(old, cost), _costs(new, cost)
    return fmean(after[case] - before[case] for case in both) if both else 0.0


def _costs(results: Sequence[Result], cost: Callable[[Result], float]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if result.outcome in JUDGED:
            found[result.case].append(cost(result))
    return {case: fmean(values) for case, values in found.items()}
