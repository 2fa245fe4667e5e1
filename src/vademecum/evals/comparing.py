"""Two sets of results → what changed: paired by case, repeats reduced first, a bootstrap over cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct, structs

from vademecum.evals.plan import Configuration
from vademecum.evals.results import Evaluation, Result
from vademecum.evals.statistics import Difference, paired


class Change(Struct, frozen=True):
    """How often one case passed before and after."""

    case: str
    old: float
    new: float


class Comparison(Struct, frozen=True):
    """What changed from old to new.

    ``regressions`` are cases that passed every time and now fail every time. ``unpaired`` cases have a
    verdict on one side only and count for nothing.
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

    @property
    def is_regression(self) -> bool:
        """Whether it got worse: beyond doubt on the whole, or some case for good."""
        return self.difference.verdict == "worse" or bool(self.regressions)

    @property
    def said(self) -> str:
        """In one sentence."""
        found = self.difference
        low, high = found.interval.low, found.interval.high
        interval = f"95 % interval {low:+.1%} to {high:+.1%}, {found.pairs} cases"
        change = f"{found.mean:+.1%} from {self.old} to {self.new} ({interval})"
        if found.verdict != "inconclusive":
            return f"{found.verdict}: {change}"
        if found.more is None:
            return f"inconclusive: {change}; no case differs, so more of the same would not settle it"
        return f"inconclusive: {change}; about {found.more:,} more cases like these would settle it"


def compare(old: Sequence[Result], new: Sequence[Result], *, old_name: str, new_name: str) -> Comparison:
    """Pair by case; errors and time-outs are no verdict."""
    before, after = _rates(old), _rates(new)
    both = [case for case in before if case in after]
    changes = [Change(case, before[case], after[case]) for case in both]
    return Comparison(
        old_name,
        new_name,
        paired([change.new - change.old for change in changes]),
        tuple(change for change in changes if change.new > change.old),
        tuple(change for change in changes if change.new < change.old),
        tuple(change.case for change in changes if change.old == 1 and change.new == 0),
        tuple(sorted({result.case for result in (*old, *new)} - set(both))),
        _mean(r.input_tokens + r.output_tokens for r in new)
        - _mean(r.input_tokens + r.output_tokens for r in old),
        _mean(r.seconds for r in new) - _mean(r.seconds for r in old),
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
    header = structs.replace(new.header, configurations=tuple(configurations), units=units)
    return Evaluation(header, tuple(results), new.place, old.place)


def _rates(results: Iterable[Result]) -> dict[str, float]:
    """The share of passes of each case, repeats together."""
    found: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        if result.outcome in {"pass", "fail"}:
            found[result.case].append(result.outcome == "pass")
    return {case: fmean(passed) for case, passed in found.items()}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0
