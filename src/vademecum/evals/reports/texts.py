"""Return the figures and remarks of a summary as texts for all reports, and its JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from vademecum.evals.reports.statistics import Interval
from vademecum.evals.reports.summary import CaseRow, ConfigurationSummary, Summary
from vademecum.evals.reports.triggers import Triggers
from vademecum.evals.results import Evaluation

MAX_TABLE_NAMES = 20


def figures(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of configurations, without empty columns."""
    found = [_figures(column) for column in summary.columns]
    kept = [head for n, head in enumerate(found[0]) if n < 4 or {row[head] for row in found} - {"0", "–"}]
    return kept, [[row[head] for head in kept] for row in found]


def _figures(column: ConfigurationSummary) -> dict[str, str]:
    rate, cost, found = column.rate, column.cost, column.triggers
    runs = " runs" if rate.total > rate.cases else ""
    return {
        "configuration": column.configuration,
        "passed": f"{rate.passed} of {rate.total}{runs}" if rate.total else "–",
        "rate": f"{rate.rate:.1%}" if rate.cases else "–",
        "95 % interval": shown_interval(rate.interval) if rate.cases else "–",
        "time-outs": str(column.timeouts),
        "errors": str(column.errors),
        "unusable": str(column.unusable),
        "not judged": str(column.unjudged),
        "precision": shown(found.overall.precision if found else None),
        "recall": shown(found.overall.recall if found else None),
        "false triggers": shown(found.false_trigger_rate if found else None),
        "turns": f"{cost.turns:.1f}",
        "calls": f"{cost.tool_calls:.1f}",
        "tokens": f"{cost.tokens:,.0f}",
        "seconds": f"{cost.seconds:.2f}",
    }


def shown_interval(interval: Interval) -> str:
    """Return an interval for people."""
    return f"{interval.low:.1%} to {interval.high:.1%}"


def notes(summary: Summary) -> list[str]:
    """Return the remarks on the rates, one line each."""
    found = []
    for column in summary.columns:
        name = f"{column.configuration}: " if len(summary.columns) > 1 else ""
        own = [row for row in summary.rows if row.configuration == column.configuration]
        found += [f"{name}{line}" for line in _column_notes(column, own)]
    found += [f"{story.case}: {problem}" for story in summary.stories for problem in story.problems]
    if summary.expecting_nothing:
        one = len(summary.expecting_nothing) == 1
        so = "expects nothing: it always passes" if one else "expect nothing: they always pass"
        found.append(f"{_few(summary.expecting_nothing)} {so}")
    if summary.missing:
        found.append(f"{summary.missing} runs have no result yet: run the same command again")
    return found


def _column_notes(column: ConfigurationSummary, rows: Sequence[CaseRow]) -> Iterator[str]:
    if column.repeats is not None:
        again, cases = column.repeats, column.rate.cases
        yield f"pass@{again.k} {again.pass_at_k:.1%}, pass^{again.k} {again.pass_hat_k:.1%}"
        over = "1 case" if cases == 1 else f"{cases} cases"
        yield f"rate and interval are over {over}, the runs of each reduced to their mean"
    if column.rate.failures_at_most is not None:
        most = f"at most {column.rate.failures_at_most:.1%} of such cases can be expected to fail"
        yield f"no failure in {column.rate.cases} cases: {most}"
    if column.flaky:
        yield f"flaky: {_few(column.flaky)}"
    if column.vacuous:
        where = [f"{each} ({row.case})" for row in rows for each in row.vacuous]
        yield f"vacuous, because their condition never occurred: {_few(where)}"
    if column.unjudged:
        runs = "1 run was" if column.unjudged == 1 else f"{column.unjudged} runs were"
        yield f"{runs} not judged: name a model with --judge KIND:NAME"
    if (found := column.triggers) is not None:
        whole = found.overall
        precision = shown(whole.precision, whole.precision_interval)
        yield f"precision {precision}, recall {shown(whole.recall, whole.recall_interval)}"
        if found.negatives:
            of = f"{found.false_triggers} of {found.negatives} requests that must not trigger"
            yield f"false triggers {shown(found.false_trigger_rate, found.false_trigger_interval)}: {of}"
    if column.judges:
        yield f"judged in part by a model: {', '.join(column.judges)}"


def trigger_rows(found: Triggers) -> list[list[str]]:
    """Return a row of figures for all skills together and for each of them."""
    return [
        [
            rate.skill,
            shown(rate.precision, rate.precision_interval),
            shown(rate.recall, rate.recall_interval),
            *map(str, (rate.right, rate.wrongly_taken, rate.missed)),
        ]
        for rate in (found.overall, *found.skills)
    ]


def confusion(found: Triggers) -> tuple[list[str], list[str], dict[tuple[str, str], int]]:
    """Return the rows, the columns and the cells of the table of wanted and taken skills."""
    wanted = list(dict.fromkeys(cell.wanted for cell in found.confusion))
    taken = sorted({cell.taken for cell in found.confusion}, key=lambda name: (name not in wanted, name))
    return wanted, taken, {(cell.wanted, cell.taken): cell.count for cell in found.confusion}


def shown(share: float | None, interval: Interval | None = None) -> str:
    """Return a share for people, with its interval if one is given; a dash if there is none."""
    if share is None:
        return "–"
    return f"{share:.1%}" if interval is None else f"{share:.1%} ({shown_interval(interval)})"


def why_of(row: CaseRow) -> str:
    """Return the failures of a case, with their frequency if not every run has them."""
    some = row.passed and row.mark != "pass"
    made = row.judged + row.timeouts + row.errors + row.unusable + row.unjudged
    return f"{row.passed} of {made} passed: {row.why}" if some else row.why


def _few(names: Sequence[str]) -> str:
    more = len(names) - 10
    return ", ".join(names[:10]) + (f" and {more} more" if more > 0 else "")


def summary_document(evaluation: Evaluation, summary: Summary) -> dict[str, Any]:
    """Return the JSON document of an evaluation and its summary."""
    return {
        **msgspec.to_builtins(summary),
        "passed": summary.is_clean,
        "notes": notes(summary),
        "results": msgspec.to_builtins(evaluation.results),
        "place": evaluation.place,
    }
