"""How evaluations look to people: what did not pass and why, then the rates, then what they are worth."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vademecum.evals.reports.markdown import (
    MAX_TABLE_NAMES,
    confusion,
    notes,
    passed,
    shown,
    shown_interval,
    shown_rate,
    why_of,
)
from vademecum.evals.reports.summary import CaseRow, Change, Comparison, ConfigurationSummary, Story, Summary
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.skill.text import visible

MAX_LISTED = 40
MAX_WHY_CHARS = 160

_MARKS = {
    "pass": ("✓", "green"),
    "fail": ("✗", "red"),
    "flaky": ("~", "yellow"),
    "timeout": ("⧖", "magenta"),
    "error": ("!", "magenta"),
    "unusable": ("!", "magenta"),
    "unjudged": ("?", "yellow"),
}
_VERDICTS = {"better": "green", "worse": "red", "inconclusive": "yellow"}


def print_summary(summary: Summary) -> None:
    """The cases that matter, the rates of each configuration, and what else is to be known."""
    out = console()
    several = len(summary.columns) > 1
    stories = {story.case: story for story in summary.stories}
    order = {story.case: number for number, story in enumerate(summary.stories)}
    rows = sorted(summary.rows, key=lambda row: order.get(row.case, 0))
    wrong = [row for row in rows if row.mark != "pass"]
    listed = rows if len(rows) <= MAX_LISTED // 2 else wrong
    for row in listed[:MAX_LISTED]:
        _print_row(out, row, several=several)
        if row.mark != "pass" and row.case in stories:
            _print_story(out, stories[row.case], row.answer)
    if len(listed) > MAX_LISTED:
        out.print(f"… and {len(listed) - MAX_LISTED:,} more")
    for malformed in summary.malformed:
        out.print(Text("✗ malformed ", style="red"), plain(str(malformed)), sep="", soft_wrap=True)
    if listed or summary.malformed:
        out.print()
    out.print(_rates(summary.columns))
    for comparison in summary.comparisons:
        out.print(plain(comparison.said, style=_VERDICTS[comparison.difference.verdict]), soft_wrap=True)
    for note in notes(summary):
        out.print(plain(note, style="dim"), soft_wrap=True)
    for column in summary.columns:
        if column.triggers is not None:
            _print_triggers(out, column.configuration if several else "", column.triggers)


def print_comparison(comparisons: Sequence[Comparison], judged: Sequence[str]) -> None:
    """Print the changes case by case, and how significant they are."""
    out = console()
    for comparison in comparisons:
        for sign, style, changes in (("↓", "red", comparison.worse), ("↑", "green", comparison.better)):
            for change in changes[:MAX_LISTED]:
                _print_change(out, sign, style, change)
        if comparison.lost:
            few = ", ".join(comparison.lost[:10])
            out.print(plain(f"passed before, and now have no verdict: {few}", style="red"), soft_wrap=True)
        if comparison.unpaired:
            few = ", ".join(comparison.unpaired[:10])
            out.print(
                plain(f"not compared, without a verdict on both sides: {few}", style="dim"), soft_wrap=True
            )
        style = _VERDICTS[comparison.difference.verdict]
        out.print(plain(comparison.said, style=style), soft_wrap=True)
        if comparison.regressions:
            names = ", ".join(comparison.regressions[:10])
            out.print(
                plain(f"passed every time, and now fail every time: {names}", style="red"), soft_wrap=True
            )
        if comparison.tokens:
            out.print(plain(f"{comparison.tokens:+,.0f} tokens a run", style="dim"))
    for line in judged:
        out.print(plain(line), soft_wrap=True)


def _print_row(out: Console, row: CaseRow, *, several: bool) -> None:
    sign, style = _MARKS[row.mark]
    name = f"{row.case} ({row.configuration})" if several else row.case
    mark = Text("" if row.mark in {"pass", "fail"} else f" {row.mark}")
    why = why_of(row)
    said = f": {why if len(why) <= MAX_WHY_CHARS else f'{why[:MAX_WHY_CHARS]}…'}" if why else ""
    # What is plain has no blank at its beginning any more, so the mark is a text of its own.
    line = (Text(f"{sign} ", style=style), plain(name, style="bold"), mark, plain(said))
    out.print(*line, sep="", soft_wrap=True)


def _print_story(out: Console, story: Story, answer: str) -> None:
    """Print what a case asked, what it expected and what it got."""
    expected = "; ".join(story.expected)
    for name, text in (("asked", story.request), ("expected", expected), ("answered", answer)):
        flat = " ".join(text.split())
        if flat:
            cut = flat if len(flat) <= MAX_WHY_CHARS else f"{flat[:MAX_WHY_CHARS]}…"
            out.print(Text(f"    {name}: ", style="dim"), plain(cut, style="dim"), sep="", soft_wrap=True)


def _print_change(out: Console, sign: str, style: str, change: Change) -> None:
    said = f"{change.case}: {change.old:.0%} → {change.new:.0%}"
    out.print(Text(f"{sign} ", style=style), plain(said), sep="", soft_wrap=True)


def _rates(columns: Sequence[ConfigurationSummary]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    triggers = any(column.triggers for column in columns)
    own = any(column.timeouts or column.errors or column.unjudged for column in columns)
    unusable = any(column.unusable for column in columns)
    tokens = any(column.cost.tokens for column in columns)
    table.add_column("")
    heads = ["passed", "rate", "95 % interval", *(["time-outs", "errors", "not judged"] if own else [])]
    heads += [
        *(["unusable"] if unusable else []),
        *(["precision", "recall"] if triggers else []),
        "turns",
        "calls",
        *(["tokens"] if tokens else []),
    ]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for column in columns:
        table.add_row(
            plain(column.configuration, style="bold"),
            *_cells(column, own=own, unusable=unusable, triggers=triggers, tokens=tokens),
        )
    return table


def _cells(
    column: ConfigurationSummary, *, own: bool, unusable: bool, triggers: bool, tokens: bool
) -> list[str]:
    rate, cost = column.rate, column.cost
    cells = [passed(rate), shown_rate(rate), shown_interval(rate.interval) if rate.cases else "–"]
    cells += [str(n) for n in (column.timeouts, column.errors, column.unjudged)] if own else []
    cells += [str(column.unusable)] if unusable else []
    if triggers:
        overall = column.triggers.overall if column.triggers else None
        cells += [shown(overall.precision if overall else None), shown(overall.recall if overall else None)]
    cells += [f"{cost.turns:.1f}", f"{cost.tool_calls:.1f}"]
    return cells + ([f"{cost.tokens:,.0f}"] if tokens else [])


def _print_triggers(out: Console, name: str, found: Triggers) -> None:
    first = f"search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests"
    out.print(plain(f"{name}: {first}" if name else first, style="dim"), soft_wrap=True)
    wanted, taken, counts = confusion(found)
    if len(wanted) > MAX_TABLE_NAMES or len(taken) > 6:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("wanted \\ taken")
    for column in taken:
        table.add_column(plain(column), justify="right")
    for row in wanted:
        cells = [_cell(counts.get((row, column), 0), right=is_right(row, column)) for column in taken]
        table.add_row(plain(row, style="bold"), *cells)
    out.print(table)


def _cell(count: int, *, right: bool) -> Text:
    return Text(str(count), style="green" if right else "red") if count else Text("·", style="dim")


def console() -> Console:
    """Return a console on standard output, with colour only on a terminal and unless ``NO_COLOR`` is set."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    color: Literal["auto"] | None = None if "NO_COLOR" in os.environ else "auto"
    return _Console(highlight=False, width=width, emoji=False, markup=False, color_system=color)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error; the command line ends quietly when its output is closed."""
        raise BrokenPipeError(errno.EPIPE, "broken pipe")


def plain(text: str, *, style: str = "") -> Text:
    """Return untrusted text on one line, with control characters written as escapes."""
    return Text(visible(text), style=style)
