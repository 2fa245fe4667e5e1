"""A summary → Markdown, for a pull request or a page of documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vademecum.evals.summary import CaseRow, Column, Rate, Summary
from vademecum.evals.triggers import Triggers

MAX_WRONG = 200
MAX_TABLE_NAMES = 20


def markdown_of(summary: Summary) -> str:
    """The report."""
    parts = [f"# Evaluation of {_safe(summary.name)}", _table(_HEAD, map(_column, summary.columns))]
    parts += [_safe(comparison.said) for comparison in summary.comparisons]
    parts += _lists(summary)
    wrong = [row for row in summary.rows if row.mark != "pass"]
    if wrong:
        cells = [[row.case, row.configuration, row.mark, row.why] for row in wrong[:MAX_WRONG]]
        parts += ["## What did not pass", _table(["case", "configuration", "", "why"], cells)]
    for column in summary.columns:
        if column.triggers is not None:
            parts += _triggers(column.configuration, column.triggers)
    return "\n\n".join(part for part in parts if part) + "\n"


_HEAD = [
    "configuration",
    "passed",
    "rate",
    "95 % interval",
    "time-outs",
    "errors",
    "unusable",
    "not judged",
    "tokens",
    "s",
]


def _column(column: Column) -> list[str]:
    rate = column.rate
    return [
        column.configuration,
        passed(rate),
        f"{rate.rate:.1%}",
        f"{rate.interval.low:.1%} to {rate.interval.high:.1%}",
        *map(str, (column.timeouts, column.errors, column.unusable, column.unjudged)),
        f"{column.cost.tokens:,.0f}",
        f"{column.cost.seconds:.2f}",
    ]


def passed(rate: Rate) -> str:
    """How many passed: cases, or where they are repeated, runs."""
    runs = " runs" if rate.total > rate.cases else ""
    return f"{rate.passed} of {rate.total}{runs}"


def notes(summary: Summary) -> list[str]:
    """What a reader has to know besides the rates, one line each."""
    found = []
    for column in summary.columns:
        name = f"{column.configuration}: " if len(summary.columns) > 1 else ""
        if column.repeats is not None:
            again, cases = column.repeats, column.rate.cases
            found.append(f"{name}pass@{again.k} {again.pass_at_k:.1%}, pass^{again.k} {again.pass_hat_k:.1%}")
            over = "1 case" if cases == 1 else f"{cases} cases"
            found.append(f"{name}rate and interval are over {over}, the runs of each reduced to their mean")
        if column.rate.failures_at_most is not None:
            most = f"at most {column.rate.failures_at_most:.1%} of such cases can be expected to fail"
            found.append(f"{name}no failure in {column.rate.cases} cases: {most}")
        if column.flaky:
            found.append(f"{name}flaky: {_few(column.flaky)}")
        if column.vacuous:
            were = "constraint was" if column.vacuous == 1 else "constraints were"
            found.append(f"{name}{column.vacuous} {were} vacuous: nothing they speak of happened")
        if column.judges:
            found.append(f"{name}judged in part by a model: {', '.join(column.judges)}")
    if summary.expecting_nothing:
        one = len(summary.expecting_nothing) == 1
        so = "expects nothing: it passes" if one else "expect nothing: they pass"
        found.append(f"{_few(summary.expecting_nothing)} {so} whatever is done")
    if summary.never_discriminating:
        found.append(f"the same in every configuration: {_few(summary.never_discriminating)}")
    if summary.missing:
        found.append(f"{summary.missing} runs have no result yet: the same command goes on with them")
    return found


def _lists(summary: Summary) -> list[str]:
    lines = [f"- {_safe(note)}" for note in notes(summary)]
    lines += [f"- malformed: {_safe(str(wrong))}" for wrong in summary.malformed]
    return ["\n".join(lines)] if lines else []


def _triggers(name: str, found: Triggers) -> list[str]:
    rows = [
        [
            rate.skill,
            shown(rate.precision),
            shown(rate.recall),
            str(rate.right),
            str(rate.wrongly_taken),
            str(rate.missed),
        ]
        for rate in (found.overall, *found.skills)
    ]
    head = ["skill", "precision", "recall", "right", "wrongly taken", "missed"]
    parts = [f"## Which skill took whose request ({_safe(name)})", _table(head, rows)]
    first = f"Search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests."
    wanted, taken, counts = confusion(found)
    if len(taken) > MAX_TABLE_NAMES:
        return [*parts, first]
    cells = [[row, *(str(counts.get((row, column), "")) for column in taken)] for row in wanted]
    return [*parts, first, _table(["wanted \\ taken", *taken], cells)]


def confusion(found: Triggers) -> tuple[list[str], list[str], dict[tuple[str, str], int]]:
    """The table: its rows, its columns, and how many requests are where."""
    wanted = list(dict.fromkeys(cell.wanted for cell in found.confusion))
    taken = sorted({cell.taken for cell in found.confusion}, key=lambda name: (name not in wanted, name))
    return wanted, taken, {(cell.wanted, cell.taken): cell.count for cell in found.confusion}


def shown(share: float | None) -> str:
    """A share as people read it; nothing where there is none."""
    return "–" if share is None else f"{share:.1%}"


def why_of(row: CaseRow) -> str:
    """What is wrong with a case, with how often where it is not always."""
    some = row.passed and row.mark != "pass"
    made = row.judged + row.timeouts + row.errors + row.unusable + row.unjudged
    return f"{row.passed} of {made} passed: {row.why}" if some else row.why


def _few(names: Sequence[str]) -> str:
    more = len(names) - 10
    return ", ".join(names[:10]) + (f" and {more} more" if more > 0 else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(_safe, head))} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(map(_safe, row))} |" for row in rows])


def _safe(text: str) -> str:
    """Text in which nothing is Markdown's."""
    flat = " ".join(text.split())
    for sign in ("\\", "|", "<", "`", "*", "_", "["):
        flat = flat.replace(sign, f"\\{sign}")
    return flat
