"""A summary → Markdown, for a pull request or a page of documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vademecum.evals.reports.statistics import Interval
from vademecum.evals.reports.summary import CaseRow, ConfigurationSummary, Rate, Story, Summary
from vademecum.evals.reports.triggers import Triggers

MAX_WRONG = 200
MAX_CELL_CHARS = 200
MAX_TABLE_NAMES = 20


def markdown_of(summary: Summary) -> str:
    """The report."""
    parts = [f"# Evaluation of {_safe(summary.name)}", _table(_HEAD, map(_column, summary.columns))]
    parts += [_safe(comparison.said) for comparison in summary.comparisons]
    parts += _lists(summary)
    told = {story.case: story for story in summary.stories}
    order = {story.case: number for number, story in enumerate(summary.stories)}
    wrong = sorted(
        (row for row in summary.rows if row.mark != "pass"), key=lambda row: order.get(row.case, 0)
    )
    if wrong:
        cells = [
            [row.case, _asked(told.get(row.case)), row.configuration, row.mark, row.why, _cut(row.answer)]
            for row in wrong[:MAX_WRONG]
        ]
        head = ["case", "request and expectation", "configuration", "", "why", "answer"]
        parts += ["## What did not pass", _table(head, cells)]
    if len(summary.columns) > 1:
        parts += ["## Case by case", _side_by_side(summary)]
    elif summary.stories:
        cells = [
            [story.case, _cut(story.request), "; ".join(story.expected) or "nothing"]
            for story in summary.stories
        ]
        parts += ["## Cases", _table(["case", "request", "expected"], cells[:MAX_WRONG])]
    for column in summary.columns:
        if column.triggers is not None:
            parts += _triggers(column.configuration, column.triggers)
    return "\n\n".join(part for part in parts if part) + "\n"


def _side_by_side(summary: Summary) -> str:
    """Return the marks of each case in every configuration, those that differ first."""
    names = [column.configuration for column in summary.columns]
    marks = {(row.case, row.configuration): row.mark for row in summary.rows}
    cells = [
        [
            story.case,
            _asked(story),
            *(marks.get((story.case, name), "") for name in names),
            "changed" * story.changed,
        ]
        for story in summary.stories[:MAX_WRONG]
    ]
    return _table(["case", "request and expectation", *names, ""], cells)


def _asked(story: Story | None) -> str:
    if story is None:
        return ""
    return f"{_cut(story.request)} → {_cut('; '.join(story.expected) or 'nothing')}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL_CHARS else f"{text[:MAX_CELL_CHARS]}…"


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


def _column(column: ConfigurationSummary) -> list[str]:
    rate = column.rate
    return [
        column.configuration,
        passed(rate),
        shown_rate(rate),
        shown_interval(rate.interval) if rate.cases else "–",
        *map(str, (column.timeouts, column.errors, column.unusable, column.unjudged)),
        f"{column.cost.tokens:,.0f}",
        f"{column.cost.seconds:.2f}",
    ]


def passed(rate: Rate) -> str:
    """Return how many cases passed, or runs if cases are repeated."""
    if not rate.total:
        return "–"
    runs = " runs" if rate.total > rate.cases else ""
    return f"{rate.passed} of {rate.total}{runs}"


def shown_rate(rate: Rate) -> str:
    """Return a rate for people; a dash if there is nothing to count."""
    return f"{rate.rate:.1%}" if rate.cases else "–"


def shown_interval(interval: Interval) -> str:
    """Return an interval for people."""
    return f"{interval.low:.1%} to {interval.high:.1%}"


def notes(summary: Summary) -> list[str]:
    """Return what a reader must know besides the rates, one line each."""
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
            where = [
                f"{each} ({row.case})"
                for row in summary.rows
                if row.configuration == column.configuration
                for each in row.vacuous
            ]
            found.append(f"{name}vacuous, because nothing that they are about happened: {_few(where)}")
        if column.unjudged:
            runs = "1 run was" if column.unjudged == 1 else f"{column.unjudged} runs were"
            found.append(f"{name}{runs} not judged: name a model with --judge KIND:NAME")
        if column.triggers is not None and column.triggers.negatives:
            of = f"{column.triggers.false_triggers} of {column.triggers.negatives}"
            share = shown(column.triggers.false_trigger_rate, column.triggers.false_trigger_interval)
            found.append(f"{name}false triggers: {of} requests that must not trigger ({share})")
        if column.judges:
            found.append(f"{name}judged in part by a model: {', '.join(column.judges)}")
    found += [f"{story.case}: {problem}" for story in summary.stories for problem in story.problems]
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
            shown(rate.precision, rate.precision_interval),
            shown(rate.recall, rate.recall_interval),
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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(_safe, head))} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(map(_safe, row))} |" for row in rows])


def _safe(text: str) -> str:
    """Text in which nothing is Markdown's."""
    flat = " ".join(text.split())
    for sign in ("\\", "|", "<", "`", "*", "_", "["):
        flat = flat.replace(sign, f"\\{sign}")
    return flat
