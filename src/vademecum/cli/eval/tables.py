"""How evaluations look to people: what did not pass and why, then the rates, then what they are worth."""

from __future__ import annotations

import errno
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vademecum.evals.reports.summary import CaseRow, Comparison, Story, Summary
from vademecum.evals.reports.texts import MAX_TABLE_NAMES, confusion, figures, notes, why_of
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
_NOTHING = Text("·", style="dim")
_VERDICTS = {"better": "green", "worse": "red", "inconclusive": "yellow"}


def print_summary(summary: Summary) -> None:
    """Print the cases that matter, the rates of each configuration, and remarks."""
    out = console()
    several = len(summary.columns) > 1
    rows: dict[str, list[CaseRow]] = defaultdict(list)
    for row in summary.rows:
        rows[row.case].append(row)
    wrong = [story for story in summary.stories if any(row.mark != "pass" for row in rows[story.case])]
    listed = summary.stories if len(summary.rows) <= MAX_LISTED // 2 else wrong
    for story in listed[:MAX_LISTED]:
        _print_case(out, story, rows[story.case], several=several)
    if len(listed) > MAX_LISTED:
        out.print(f"… and {len(listed) - MAX_LISTED:,} more")
    for malformed in summary.malformed:
        out.print(Text("✗ malformed ", style="red"), plain(str(malformed)), sep="", soft_wrap=True)
    if listed or summary.malformed:
        out.print()
    _print_figures(out, summary)
    for comparison in summary.comparisons:
        _say(out, comparison.said, _VERDICTS[comparison.verdict])
    for note in notes(summary):
        _say(out, note, "dim")
    for column in summary.columns:
        if column.triggers is not None:
            _print_triggers(out, column.configuration if several else "", column.triggers)


def print_comparison(comparisons: Sequence[Comparison]) -> None:
    """Print the changes case by case, and how significant they are."""
    out = console()
    for comparison in comparisons:
        for sign, style, changes in (("↓", "red", comparison.worse), ("↑", "green", comparison.better)):
            for change in changes[:MAX_LISTED]:
                said = f"{change.case}: {change.old:.0%} → {change.new:.0%}"
                out.print(Text(f"{sign} ", style=style), plain(said), sep="", soft_wrap=True)
        lost, unpaired, worse = (
            ", ".join(names[:10]) for names in (comparison.lost, comparison.unpaired, comparison.regressions)
        )
        if lost:
            _say(out, f"passed before, and now have no verdict: {lost}", "red")
        if unpaired:
            _say(out, f"not compared, without a verdict on both sides: {unpaired}", "dim")
        _say(out, comparison.said, _VERDICTS[comparison.verdict])
        if worse:
            _say(out, f"passed every time, and now fail every time: {worse}", "red")
        if comparison.tokens:
            _say(out, f"{comparison.tokens:+,.0f} tokens a run", "dim")


def _say(out: Console, text: str, style: str) -> None:
    out.print(plain(text, style=style), soft_wrap=True)


def _print_row(out: Console, row: CaseRow, *, several: bool) -> None:
    sign, style = _MARKS[row.mark]
    name = f"{row.case} ({row.configuration})" if several else row.case
    mark = Text("" if row.mark in {"pass", "fail"} else f" {row.mark}")
    why = why_of(row)
    said = f": {_cut(why)}" if why else ""
    # What is plain has no blank at its beginning any more, so the mark is a text of its own.
    line = (Text(f"{sign} ", style=style), plain(name, style="bold"), mark, plain(said))
    out.print(*line, sep="", soft_wrap=True)


def _print_case(out: Console, story: Story, rows: Sequence[CaseRow], *, several: bool) -> None:
    """Print the results of a case; unless all passed, also what it asked, expected and got."""
    for row in rows:
        _print_row(out, row, several=several)
    if all(row.mark == "pass" for row in rows):
        return
    answers = {row.configuration: row.answer for row in rows}
    same = len(set(answers.values())) == 1
    answered = (
        {"answered": rows[0].answer} if same else {f"answered ({name})": answers[name] for name in answers}
    )
    texts = {"asked": story.request, "expected": "; ".join(story.expected), **answered}
    for name, text in texts.items():
        flat = " ".join(text.split())
        if flat:
            shown = plain(_cut(flat), style="dim")
            out.print(Text(f"    {name}: ", style="dim"), shown, sep="", soft_wrap=True)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WHY_CHARS else f"{text[:MAX_WHY_CHARS]}…"


def _print_figures(out: Console, summary: Summary) -> None:
    """Print a row for each configuration, or, where that is too wide, a column for each."""
    heads, rows = figures(summary)
    shown_heads = [head for head in heads if head not in _NOT_SHOWN]
    cells = [[cell for head, cell in zip(heads, row, strict=True) if head not in _NOT_SHOWN] for row in rows]
    table = _table_of([["", *shown_heads[1:]], *cells])
    if table.__rich_measure__(out, out.options.update(max_width=1000)).maximum > out.width:
        table = _table_of([list(line) for line in zip(["", *shown_heads[1:]], *cells, strict=True)])
    out.print(table)


# They stand in the lines below the table, or in the other reports.
_NOT_SHOWN = frozenset({"false triggers", "seconds"})


def _table_of(lines: Sequence[Sequence[str]]) -> Table:
    table = _table(lines[0])
    for line in lines[1:]:
        table.add_row(plain(line[0], style="bold"), *map(plain, line[1:]))
    return table


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(heads):
        table.add_column(plain(head), justify="right" if number else "left", no_wrap=bool(number))
    return table


def _print_triggers(out: Console, name: str, found: Triggers) -> None:
    if found.wanted:
        first = f"search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests"
        _say(out, f"{name}: {first}" if name else first, "dim")
    wanted, taken, counts = confusion(found)
    if len(wanted) > MAX_TABLE_NAMES or len(taken) > 6:
        return
    table = _table(["wanted \\ taken", *taken])
    for row in wanted:
        cells = [
            Text(str(count), style="green" if is_right(row, column) else "red") if count else _NOTHING
            for column in taken
            for count in [counts.get((row, column), 0)]
        ]
        table.add_row(plain(row, style="bold"), *cells)
    out.print(table)


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
