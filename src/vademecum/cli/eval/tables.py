"""How evaluations look to people: what did not pass and why, then the rates, then what they are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click
from rich.cells import cell_len

from vademecum.cli.output.printing import BAR_CHARS, BOLD, DIM, GREEN, MAGENTA, RED, YELLOW, StatusLine, paint
from vademecum.cli.output.skill_text import terminal_width
from vademecum.evals.reports.summary import CaseRow, Comparison, Story, Summary
from vademecum.evals.reports.texts import MAX_TABLE_NAMES, confusion, figures, notes, why_of
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.evals.results import CaseResult
from vademecum.skill.text import visible

MAX_LISTED = 40
MAX_WHY_CHARS = 160

_MARKS = {
    "pass": ("✓", GREEN),
    "fail": ("✗", RED),
    "flaky": ("~", YELLOW),
    "timeout": ("⧖", MAGENTA),
    "error": ("!", MAGENTA),
    "unusable": ("!", MAGENTA),
    "unjudged": ("?", YELLOW),
}
_VERDICTS = {"better": GREEN, "worse": RED, "inconclusive": YELLOW}
# They stand in the lines below the table, or in the other reports.
_NOT_SHOWN = frozenset({"false triggers", "seconds"})

Cell = tuple[str, str]  # a text and its style


def print_summary(summary: Summary) -> None:
    """Print the cases that matter, the rates of each configuration, and remarks."""
    several = len(summary.columns) > 1
    rows = summary.by_case
    wrong = [story for story in summary.stories if any(row.mark != "pass" for row in rows[story.case])]
    listed = summary.stories if len(summary.rows) <= MAX_LISTED // 2 else wrong
    for story in listed[:MAX_LISTED]:
        _print_case(story, rows[story.case], several=several)
    if len(listed) > MAX_LISTED:
        click.echo(f"… and {len(listed) - MAX_LISTED:,} more")
    for malformed in summary.malformed:
        click.echo(f"{paint('✗ malformed', RED)} {visible(str(malformed))}")
    if listed or summary.malformed:
        click.echo()
    _print_figures(summary)
    for comparison in summary.comparisons:
        _say(comparison.said, _VERDICTS[comparison.verdict])
    for note in notes(summary):
        _say(note, DIM)
    for column in summary.columns:
        if column.triggers is not None:
            _print_triggers(column.configuration if several else "", column.triggers)


def print_comparison(comparisons: Sequence[Comparison]) -> None:
    """Print the changes case by case, and how significant they are."""
    for comparison in comparisons:
        for sign, style, changes in (("↓", RED, comparison.worse), ("↑", GREEN, comparison.better)):
            for change in changes[:MAX_LISTED]:
                said = f"{change.case}: {change.old:.0%} → {change.new:.0%}"
                click.echo(f"{paint(sign, style)} {visible(said)}")
        lost, unpaired, worse = (
            ", ".join(names[:10]) for names in (comparison.lost, comparison.unpaired, comparison.regressions)
        )
        if lost:
            _say(f"passed before, and now have no verdict: {lost}", RED)
        if unpaired:
            _say(f"not compared, without a verdict on both sides: {unpaired}", DIM)
        _say(comparison.said, _VERDICTS[comparison.verdict])
        if worse:
            _say(f"passed every time, and now fail every time: {worse}", RED)
        if comparison.tokens:
            _say(f"{comparison.tokens:+,.0f} tokens a run", DIM)


def _say(text: str, style: str) -> None:
    click.echo(paint(visible(text), style))


def _print_case(story: Story, rows: Sequence[CaseRow], *, several: bool) -> None:
    """Print the results of a case; unless all passed, also what it asked, expected and got."""
    for row in rows:
        sign, style = _MARKS[row.mark]
        name = f"{row.case} ({row.configuration})" if several else row.case
        mark = "" if row.mark in {"pass", "fail"} else f" {row.mark}"
        why = why_of(row)
        said = visible(f": {_cut(why)}" if why else "")
        click.echo(f"{paint(sign, style)} {paint(visible(name), BOLD)}{mark}{said}")
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
            click.echo(paint(f"    {visible(name)}: {visible(_cut(flat))}", DIM))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WHY_CHARS else f"{text[:MAX_WHY_CHARS]}…"


def _print_figures(summary: Summary) -> None:
    """Print a row for each configuration, or, if that is too wide, a column for each."""
    heads, rows = figures(summary)
    shown = [n for n, head in enumerate(heads) if n and head not in _NOT_SHOWN]
    lines: list[Sequence[Cell]] = [
        [("", DIM), *((heads[n], DIM) for n in shown)],
        *([(visible(row[0]), BOLD), *((row[n], "") for n in shown)] for row in rows),
    ]
    widths = _widths(lines)
    too_wide = sum(widths) + 2 * len(widths) - 2 > terminal_width()
    _print_table(list(zip(*lines, strict=True)) if too_wide else lines)


def _print_triggers(name: str, found: Triggers) -> None:
    if found.wanted:
        first = f"search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests"
        _say(f"{name}: {first}" if name else first, DIM)
    wanted, taken, counts = confusion(found)
    if len(wanted) > MAX_TABLE_NAMES or len(taken) > 6:
        return

    def cell(row: str, column: str) -> Cell:
        count = counts.get((row, column), 0)
        return (str(count), GREEN if is_right(row, column) else RED) if count else ("·", DIM)

    heads = ("wanted \\ taken", *map(visible, taken))
    lines = [[(visible(row), BOLD), *(cell(row, column) for column in taken)] for row in wanted]
    _print_table([[(head, DIM) for head in heads], *lines])


def _widths(lines: Sequence[Sequence[Cell]]) -> list[int]:
    return [max(cell_len(text) for text, _ in column) for column in zip(*lines, strict=True)]


def _print_table(lines: Sequence[Sequence[Cell]]) -> None:
    """Print the first column to the left and the others to the right."""
    widths = _widths(lines)
    for line in lines:
        blanks = [" " * (width - cell_len(text)) for (text, _), width in zip(line, widths, strict=True)]
        first, *others = (paint(text, style) for text, style in line)
        shown = [f"{blank}{cell}" for blank, cell in zip(blanks[1:], others, strict=True)]
        click.echo("  ".join([f"{first}{blanks[0]}", *shown]))


class EvalProgress(StatusLine):
    """Show a bar on a terminal, with the pass rate so far and the time that is left."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._quiet = quiet
        self._ran = self._passed = self._judged = 0
        self.finished, self.total = 0, 0

    def __call__(self, *, done: int, total: int, result: CaseResult | None) -> None:
        """Count a result and draw the bar."""
        self.finished, self.total = done, total
        if result is not None:
            self._ran += 1
            self._judged += result.outcome in {"pass", "fail"}
            self._passed += result.outcome == "pass"
        if not self._quiet and self.is_due():
            self.show(self.line(self._drawn))

    def line(self, now: float) -> str:
        """Return the bar with the rate and the time left."""
        filled = round(BAR_CHARS * self.finished / self.total) if self.total else BAR_CHARS
        bar = f"[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {self.finished:,} of {self.total:,}"
        rate = f", {self._passed / self._judged:.0%} pass" if self._judged else ""
        if not self._ran:
            return bar + rate
        left = (self.total - self.finished) * (now - self._started) / self._ran
        return f"{bar}{rate}, {int(left) // 60}:{int(left) % 60:02} left"
