"""Summarise results: rates with intervals, costs, flaky cases, and what changed between two sides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from msgspec import Struct, structs

from vademecum.evals.reports.statistics import (
    Interval,
    PairedDifference,
    paired,
    pass_at_k,
    pass_hat_k,
    wilson,
)
from vademecum.evals.reports.triggers import Triggers, triggers_of
from vademecum.evals.results import JUDGED, RAN_THROUGH, CaseLine, CaseResult, Evaluation
from vademecum.evals.suite import Malformed
from vademecum.evals.units import Configuration

LEAST_FOR_A_BOUND = 10


class Change(Struct, frozen=True):
    """The pass rates of one case, before and after."""

    case: str
    old: float
    new: float


class Comparison(Struct, frozen=True):
    """The changes from an old evaluation to a new one.

    It is a ``regression`` if it is significantly worse on the whole, if it has ``regressions`` (cases that
    passed every time and now fail every time) or ``lost`` cases, or if no case can be compared. ``unpaired``
    cases have a verdict on one side only and do not count; those that passed in old are ``lost``. Tokens and
    seconds are the changes per run, over the cases that have a verdict on both sides.
    """

    old: str
    new: str
    difference: PairedDifference
    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    regressions: tuple[str, ...]
    unpaired: tuple[str, ...]
    tokens: float
    seconds: float
    lost: tuple[str, ...]
    verdict: str
    said: str
    regression: bool


def compare(
    old: Sequence[CaseResult], new: Sequence[CaseResult], *, old_name: str, new_name: str
) -> Comparison:
    """Compare two evaluations case by case; errors and time-outs do not count."""
    before, after = rates_of(old), rates_of(new)
    both = [case for case in before if case in after]
    changes = [(case, before[case], after[case]) for case in both]

    def added(cost: Callable[[CaseResult], float]) -> float:
        """Return the mean additional cost of a run."""
        olds, news = _by_case(old, cost), _by_case(new, cost)
        return fmean(fmean(news[case]) - fmean(olds[case]) for case in both) if both else 0.0

    difference = paired([later - earlier for _, earlier, later in changes])
    regressions = tuple(case for case, a, b in changes if a == 1 and b == 0)
    lost = tuple(case for case, rate in before.items() if rate and case not in after)
    return Comparison(
        old_name,
        new_name,
        difference,
        tuple(Change(case, float(a), float(b)) for case, a, b in changes if b > a),
        tuple(Change(case, float(a), float(b)) for case, a, b in changes if b < a),
        regressions,
        tuple(sorted({result.case for result in (*old, *new)} - set(both))),
        added(lambda result: result.tokens),
        added(lambda result: result.seconds),
        lost,
        difference.verdict,
        _said(difference, old_name, new_name),
        difference.verdict == "worse" or bool(regressions or lost) or not both,
    )


def _said(found: PairedDifference, old: str, new: str) -> str:
    """Return a difference in one sentence."""
    if not found.pairs:
        return f"inconclusive: from {old} to {new} {found.advice}"
    low, high = found.interval.low, found.interval.high
    cases = "1 case" if found.pairs == 1 else f"{found.pairs:,} cases"
    interval = f"95 % interval {low:+.1%} to {high:+.1%}, {cases}"
    change = f"{found.verdict}: {found.mean:+.1%} from {old} to {new} ({interval})"
    return f"{change}; {found.advice}" if found.advice else change


def side_by_side(new: Evaluation, old: Evaluation) -> Evaluation:
    """Combine two evaluations to show them together, each under the name of its directory."""
    labels = [Path(one.place).name for one in (new, old)]
    if labels[0] == labels[1]:
        labels = ["new", "old"]
    configurations: list[Configuration] = []
    results: list[CaseResult] = []
    for one, label in zip((new, old), labels, strict=True):
        ways = one.header.configurations
        names = {way.name: f"{label} {way.name}" if len(ways) > 1 else label for way in ways}
        configurations += [structs.replace(way, name=names[way.name]) for way in ways]
        results += [structs.replace(each, configuration=names[each.configuration]) for each in one.results]
    known = {case.id for case in new.header.cases}
    header = structs.replace(
        new.header,
        configurations=tuple(configurations),
        cases=(*new.header.cases, *(case for case in old.header.cases if case.id not in known)),
        units=(*new.header.units, *old.header.units),
    )
    return Evaluation(header, tuple(results), new.place, old.place)


def rates_of(results: Iterable[CaseResult]) -> dict[str, Fraction]:
    """Return the pass rate of each case that has a verdict, over its repeats."""
    passed = _by_case(results, lambda result: result.outcome == "pass")
    return {case: Fraction(int(sum(values)), len(values)) for case, values in passed.items()}


def _by_case(results: Iterable[CaseResult], value: Callable[[CaseResult], float]) -> dict[str, list[float]]:
    """Return the values of the runs that have a verdict, by case."""
    found: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if result.outcome in JUDGED:
            found[result.case].append(value(result))
    return found


class Rate(Struct, frozen=True):
    """The runs that passed, and the rate over ``cases`` with its interval; repeats are averaged first.

    ``failures_at_most`` bounds the share of cases that fail, if none did.
    """

    passed: int
    total: int
    rate: float
    interval: Interval
    failures_at_most: float | None
    cases: int


class Repeats(Struct, frozen=True):
    """The chances that one of ``k`` runs of a repeated case passes, and that all of them do."""

    k: int
    pass_at_k: float
    pass_hat_k: float


class Cost(Struct, frozen=True):
    """The mean cost of the completed runs; runs with an error or a time-out are left out."""

    turns: float
    tool_calls: float
    script_runs: float
    tokens: float
    seconds: float


# Marks of runs without a verdict, and the fields that count them.
_UNDECIDED = {"timeout": "timeouts", "error": "errors", "unusable": "unusable", "unjudged": "unjudged"}


class UndecidedRuns(Struct, frozen=True, kw_only=True):
    """The numbers of runs that have no verdict."""

    timeouts: int = 0
    errors: int = 0
    unusable: int = 0
    unjudged: int = 0


class CaseRow(UndecidedRuns, frozen=True):
    """One case in one configuration: how often it passed, and why it failed.

    ``mark`` is the verdict in one word; a case passes only if every run of it did.
    """

    case: str
    configuration: str
    passed: int
    judged: int
    why: str
    cost: Cost
    runs: tuple[str, ...]
    answer: str
    vacuous: tuple[str, ...]
    mark: str


class ConfigurationSummary(UndecidedRuns, frozen=True):
    """One configuration: its pass rate, its costs and its triggers."""

    configuration: str
    rate: Rate
    vacuous: int
    judges: tuple[str, ...]
    repeats: Repeats | None
    cost: Cost
    flaky: tuple[str, ...]
    triggers: Triggers | None


class Story(Struct, frozen=True):
    """The report of a case: request, expectations, failures, and whether its configurations differ."""

    case: str
    request: str
    expected: tuple[str, ...]
    problems: tuple[str, ...]
    changed: bool


class Summary(Struct, frozen=True):
    """The summary of an evaluation; ``stories`` begin with changed cases, then cases that did not pass."""

    name: str
    skill: str
    started: float
    cases: int
    missing: int
    malformed: tuple[Malformed, ...]
    columns: tuple[ConfigurationSummary, ...]
    rows: tuple[CaseRow, ...]
    comparisons: tuple[Comparison, ...]
    expecting_nothing: tuple[str, ...] = ()
    stories: tuple[Story, ...] = ()

    @property
    def by_case(self) -> dict[str, list[CaseRow]]:
        """Return the rows of each case."""
        found: dict[str, list[CaseRow]] = defaultdict(list)
        for row in self.rows:
            found[row.case].append(row)
        return found

    @property
    def is_clean(self) -> bool:
        """Return whether every planned run has a result and passed."""
        wrong = any(row.mark != "pass" for row in self.rows)
        return not (wrong or self.malformed or self.missing)


def summarise(evaluation: Evaluation) -> Summary:
    """Summarise an evaluation; the other configurations are compared with the first."""
    header = evaluation.header
    runs: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    for result in evaluation.results:
        runs[result.case, result.configuration].append(result)
    rows = tuple(_row(*names, results) for names, results in runs.items())
    first, *others = (one.name for one in header.configurations)
    return Summary(
        header.name,
        header.skill,
        header.started,
        len(header.cases),
        evaluation.missing,
        header.malformed,
        tuple(_column(evaluation, one.name, rows) for one in header.configurations),
        rows,
        tuple(
            compare(evaluation.of(other), evaluation.of(first), old_name=other, new_name=first)
            for other in others
        ),
        tuple(case.id for case in header.cases if not case.expected),
        _stories(header.cases, rows),
    )


def _stories(cases: Sequence[CaseLine], rows: Sequence[CaseRow]) -> tuple[Story, ...]:
    marks: dict[str, set[tuple[str, int]]] = defaultdict(set)
    wrong = {row.case for row in rows if row.mark != "pass"}
    for row in rows:
        marks[row.case].add((row.mark, row.passed))
    found = [
        Story(case.id, case.input, case.expected, case.problems, len(marks[case.id]) > 1) for case in cases
    ]
    return tuple(sorted(found, key=lambda story: (not story.changed, story.case not in wrong)))


def _undecided(results: Sequence[CaseResult]) -> dict[str, int]:
    counts = Counter[str](result.outcome for result in results)
    return {field: counts[outcome] for outcome, field in _UNDECIDED.items()}


def _row(case: str, configuration: str, results: Sequence[CaseResult]) -> CaseRow:
    others = [result for result in results if result.outcome != "pass"]
    passed = len(results) - len(others)
    judged = sum(result.outcome in JUDGED for result in results)
    mark = next((mark for mark in _UNDECIDED if any(result.outcome == mark for result in others)), "pass")
    if judged > passed:
        mark = "flaky" if passed else "fail"
    checks = (check for result in results for check in result.checks)
    return CaseRow(
        case,
        configuration,
        passed,
        judged,
        next((result.why for result in others if result.why), ""),
        _cost(results),
        tuple(result.run for result in results if result.run),
        [*others, *results][0].answer,
        tuple(dict.fromkeys(check.name for check in checks if check.holds == "vacuous")),
        mark,
        **_undecided(results),
    )


def _column(evaluation: Evaluation, name: str, rows: Sequence[CaseRow]) -> ConfigurationSummary:
    results = evaluation.of(name)
    own = [row for row in rows if row.configuration == name]
    checks = [check for result in results for check in result.checks]
    return ConfigurationSummary(
        name,
        _rate(own),
        sum(check.holds == "vacuous" for check in checks),
        tuple(sorted({check.judge for check in checks if check.judge})),
        _repeats(own),
        _cost(results),
        tuple(row.case for row in own if row.mark == "flaky"),
        triggers_of(evaluation.header.cases, results),
        **_undecided(results),
    )


def _cost(results: Sequence[CaseResult]) -> Cost:
    ran = [result for result in results if result.outcome in RAN_THROUGH]
    means = (
        fmean(getattr(result, name) for result in ran) if ran else 0.0 for name in Cost.__struct_fields__
    )
    return Cost(*means)


def _rate(rows: Sequence[CaseRow]) -> Rate:
    passed, total = sum(row.passed for row in rows), sum(row.judged for row in rows)
    rates = [Fraction(row.passed, row.judged) for row in rows if row.judged]
    cases, successes = len(rates), sum(rates, Fraction())
    bound = 3 / cases if LEAST_FOR_A_BOUND <= cases == successes else None  # the rule of three
    rate = float(successes / cases) if cases else 0.0
    return Rate(passed, total, rate, wilson(successes, cases), bound, cases)


def _repeats(rows: Sequence[CaseRow]) -> Repeats | None:
    """Return the means over repeated cases, for the most runs that all of them have."""
    repeated = [row for row in rows if row.judged > 1]
    if not repeated:
        return None
    k = min(row.judged for row in repeated)
    return Repeats(
        k,
        fmean(pass_at_k(row.passed, row.judged, k) for row in repeated),
        fmean(pass_hat_k(row.passed, row.judged, k) for row in repeated),
    )
