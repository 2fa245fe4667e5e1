"""Results → what they say: rates with their intervals, cost, flaky cases, cases that tell nothing apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from vademecum.evals.comparing import Comparison, compare
from vademecum.evals.reading import Malformed
from vademecum.evals.results import Evaluation, Result
from vademecum.evals.statistics import Interval, failure_bound, pass_at_k, pass_hat_k, wilson
from vademecum.evals.triggers import Triggers, triggers_of

LEAST_FOR_A_BOUND = 10


class Rate(Struct, frozen=True):
    """So many of so many, and where the true rate lies; ``at_most`` bounds failures where there was none."""

    passed: int
    total: int
    rate: float
    interval: Interval
    failures_at_most: float | None = None

    @classmethod
    def of(cls, passed: int, total: int) -> Rate:
        """The rate with its Wilson interval."""
        none = total >= LEAST_FOR_A_BOUND and passed == total
        bound = failure_bound(total) if none else None
        return cls(passed, total, passed / total if total else 0.0, wilson(passed, total), bound)


class Repeats(Struct, frozen=True):
    """Where cases are repeated: how likely one of ``k`` runs passes, and how likely all of them do."""

    k: int
    pass_at_k: float
    pass_hat_k: float


class Cost(Struct, frozen=True):
    """What a run costs, on average."""

    turns: float
    tool_calls: float
    script_runs: float
    tokens: float
    seconds: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> Cost:
        """The means; of nothing, nothing."""
        if not results:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        return cls(
            fmean(result.turns for result in results),
            fmean(result.tool_calls for result in results),
            fmean(result.script_runs for result in results),
            fmean(result.input_tokens + result.output_tokens for result in results),
            fmean(result.seconds for result in results),
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

    @property
    def mark(self) -> str:
        """In one word."""
        if self.judged == 0:
            return "timeout" if self.timeouts else "error" if self.errors else "unjudged"
        return "pass" if self.passed == self.judged else "fail" if self.passed == 0 else "flaky"


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

    @property
    def is_clean(self) -> bool:
        """Whether every case ran and passed."""
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
        _never_discriminating(rows) if others else (),
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
    )


_OUTCOMES = ("pass", "fail", "timeout", "error", "unjudged")


def _column(evaluation: Evaluation, name: str, rows: Sequence[CaseRow]) -> Column:
    results = evaluation.of(name)
    own = [row for row in rows if row.configuration == name]
    judged = [result for result in results if result.outcome in {"pass", "fail"}]
    checks = [check for result in results for check in result.checks]
    return Column(
        name,
        Rate.of(sum(result.outcome == "pass" for result in judged), len(judged)),
        sum(row.timeouts for row in own),
        sum(row.errors for row in own),
        sum(row.unjudged for row in own),
        sum(check.holds == "vacuous" and not check.name.startswith("streamed") for check in checks),
        tuple(sorted({check.judge for check in checks if check.judge})),
        _repeats(own),
        Cost.of(results),
        tuple(row.case for row in own if row.mark == "flaky"),
        triggers_of(evaluation.header.cases, results),
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


def _never_discriminating(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Cases that come out the same in every configuration, always: they say nothing about the difference."""
    marks: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        marks[row.case].add(row.mark)
    return tuple(case for case, seen in marks.items() if seen in ({"pass"}, {"fail"}))
