"""Results → what they say: rates with their intervals, cost, flaky cases, cases that tell nothing apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import fmean

from msgspec import Struct

from vademecum.evals.comparing import Comparison, compare, rates_of
from vademecum.evals.reading import Malformed
from vademecum.evals.results import RAN_THROUGH, Evaluation, Result
from vademecum.evals.statistics import Interval, failure_bound, pass_at_k, pass_hat_k, wilson
from vademecum.evals.triggers import Triggers, triggers_of

LEAST_FOR_A_BOUND = 10


class Rate(Struct, frozen=True):
    """So many runs of so many passed. The rate and its interval are over ``cases``, repeats reduced first.

    ``failures_at_most`` bounds the share of cases that fail, where none did.
    """

    passed: int
    total: int
    rate: float
    interval: Interval
    failures_at_most: float | None = None
    cases: int = 0

    @classmethod
    def of(cls, rows: Sequence[CaseRow], rates: Mapping[str, Fraction]) -> Rate:
        """The rate with its Wilson interval."""
        passed, total = sum(row.passed for row in rows), sum(row.judged for row in rows)
        cases, successes = len(rates), sum(rates.values(), Fraction())
        none = cases >= LEAST_FOR_A_BOUND and successes == cases
        bound = failure_bound(cases) if none else None
        rate = float(successes / cases) if cases else 0.0
        return cls(passed, total, rate, wilson(successes, cases), bound, cases)


class Repeats(Struct, frozen=True):
    """Where cases are repeated: how likely one of ``k`` runs passes, and how likely all of them do."""

    k: int
    pass_at_k: float
    pass_hat_k: float


class Cost(Struct, frozen=True):
    """What a run costs, on average over those that ran through."""

    turns: float
    tool_calls: float
    script_runs: float
    tokens: float
    seconds: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> Cost:
        """The means; of nothing, nothing. What was cut off by an error or a time-out has no price."""
        ran = [result for result in results if result.outcome in RAN_THROUGH]
        if not ran:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        return cls(
            fmean(result.turns for result in ran),
            fmean(result.tool_calls for result in ran),
            fmean(result.script_runs for result in ran),
            fmean(result.input_tokens + result.output_tokens for result in ran),
            fmean(result.seconds for result in ran),
        )


class CaseRow(Struct, frozen=True):
    """One case in one configuration: how often it passed, and what is wrong where it did not."""

    case: str
    configuration: str
    passed: int
    judged: int
    timeouts: int
    errors: int
    unjudged: int
    why: str
    cost: Cost
    runs: tuple[str, ...]
    unusable: int = 0

    @property
    def mark(self) -> str:
        """In one word; it passes only where every run of it did."""
        if self.judged > self.passed:
            return "flaky" if self.passed else "fail"
        own = {
            "timeout": self.timeouts,
            "error": self.errors,
            "unusable": self.unusable,
            "unjudged": self.unjudged,
        }
        return next((name for name, count in own.items() if count), "pass")


class Column(Struct, frozen=True):
    """One configuration: how often cases pass in it, and what else is to be said."""

    configuration: str
    rate: Rate
    timeouts: int
    errors: int
    unjudged: int
    vacuous: int
    judges: tuple[str, ...]
    repeats: Repeats | None
    cost: Cost
    flaky: tuple[str, ...]
    triggers: Triggers | None
    unusable: int = 0


class Summary(Struct, frozen=True):
    """What an evaluation says."""

    name: str
    skill: str
    started: float
    cases: int
    missing: int
    malformed: tuple[Malformed, ...]
    columns: tuple[Column, ...]
    rows: tuple[CaseRow, ...]
    comparisons: tuple[Comparison, ...]
    never_discriminating: tuple[str, ...]
    expecting_nothing: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every run that was planned was made, and passed."""
        wrong = any(row.mark != "pass" for row in self.rows)
        return not (wrong or self.malformed or self.missing)


def summarise(evaluation: Evaluation) -> Summary:
    """The summary; the first configuration is what the others are compared with."""
    header = evaluation.header
    rows = _rows(evaluation)
    columns = tuple(_column(evaluation, one.name, rows) for one in header.configurations)
    first, *others = header.configurations
    comparisons = tuple(
        compare(
            evaluation.of(other.name), evaluation.of(first.name), old_name=other.name, new_name=first.name
        )
        for other in others
    )
    return Summary(
        header.name,
        header.skill,
        header.started,
        len(header.cases),
        evaluation.missing,
        header.malformed,
        columns,
        tuple(rows),
        comparisons,
        _never_discriminating(rows, len(columns)) if others else (),
        tuple(case.id for case in header.cases if case.expects_nothing),
    )


def _rows(evaluation: Evaluation) -> list[CaseRow]:
    found: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in evaluation.results:
        found[result.case, result.configuration].append(result)
    return [_row(case, configuration, results) for (case, configuration), results in found.items()]


def _row(case: str, configuration: str, results: list[Result]) -> CaseRow:
    counts = {kind: sum(result.outcome == kind for result in results) for kind in _OUTCOMES}
    why = next((result.why for result in results if result.outcome != "pass" and result.why), "")
    return CaseRow(
        case,
        configuration,
        counts["pass"],
        counts["pass"] + counts["fail"],
        counts["timeout"],
        counts["error"],
        counts["unjudged"],
        why,
        Cost.of(results),
        tuple(result.run for result in results if result.run),
        counts["unusable"],
    )


_OUTCOMES = ("pass", "fail", "timeout", "error", "unusable", "unjudged")


def _column(evaluation: Evaluation, name: str, rows: Sequence[CaseRow]) -> Column:
    results = evaluation.of(name)
    own = [row for row in rows if row.configuration == name]
    checks = [check for result in results for check in result.checks]
    return Column(
        name,
        Rate.of(own, rates_of(results)),
        sum(row.timeouts for row in own),
        sum(row.errors for row in own),
        sum(row.unjudged for row in own),
        sum(check.holds == "vacuous" and not check.name.startswith("streamed") for check in checks),
        tuple(sorted({check.judge for check in checks if check.judge})),
        _repeats(own),
        Cost.of(results),
        tuple(row.case for row in own if row.mark == "flaky"),
        triggers_of(evaluation.header.cases, results),
        sum(row.unusable for row in own),
    )


def _repeats(rows: Sequence[CaseRow]) -> Repeats | None:
    """Over the cases that were repeated, for the most runs that all of them have."""
    repeated = [row for row in rows if row.judged > 1]
    if not repeated:
        return None
    k = min(row.judged for row in repeated)
    return Repeats(
        k,
        fmean(pass_at_k(row.passed, row.judged, k) for row in repeated),
        fmean(pass_hat_k(row.passed, row.judged, k) for row in repeated),
    )


def _never_discriminating(rows: Sequence[CaseRow], configurations: int) -> tuple[str, ...]:
    """Cases that come out the same in every configuration, always: they say nothing about the difference."""
    marks: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        marks[row.case].append(row.mark)
    same = (["pass"] * configurations, ["fail"] * configurations)
    return tuple(case for case, seen in marks.items() if seen in same)
