"""How evaluations look to people: what did not pass and why, then the rates, then what they are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len

from vademecum.cli.output.printing import BAR_CHARS, StatusLine, paint
from vademecum.cli.output.skill_text import terminal_width
from vademecum.evals.reports.summary import CaseRow, Comparison, Story, Summary
from vademecum.evals.reports.texts import MAX_TABLE_NAMES, confusion, figures, notes, why_of
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.evals.results import CaseResult
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
# They stand in the lines below the table, or in the other reports.
_NOT_SHOWN = frozenset({"false triggers", "seconds"})

Cell = tuple[str, str]  # a text and its style


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the cases that matter, the rates of each configuration, and remarks."""
    several = len(summary.columns) > 1
    rows = summary.by_case
    wrong = [story for story in summary.stories if any(row.mark != "pass" for row in rows[story.case])]
    listed = summary.stories if len(summary.rows) <= MAX_LISTED // 2 else wrong
    for story in listed[:MAX_LISTED]:
        yield from _case_lines(story, rows[story.case], several=several)
    if len(listed) > MAX_LISTED:
        yield f"… and {len(listed) - MAX_LISTED:,} more"
    for malformed in summary.malformed:
        yield f"{paint('✗ malformed', 'red')} {visible(str(malformed))}"
    if listed or summary.malformed:
        yield ""
    yield from _figure_lines(summary)
    for comparison in summary.comparisons:
        yield _painted(comparison.said, _VERDICTS[comparison.verdict])
    for note in notes(summary):
        yield _painted(note, "dim")
    for column in summary.columns:
        if column.triggers is not None:
            yield from _trigger_lines(column.configuration if several else "", column.triggers)


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the changes case by case, and how significant they are."""
    for comparison in comparisons:
        for sign, style, changes in (("↓", "red", comparison.worse), ("↑", "green", comparison.better)):
            for change in changes[:MAX_LISTED]:
                said = f"{change.case}: {change.old:.0%} → {change.new:.0%}"
                yield f"{paint(sign, style)} {visible(said)}"
        lost, unpaired, worse = (
            ", ".join(names[:10]) for names in (comparison.lost, comparison.unpaired, comparison.regressions)
        )
        if lost:
            yield _painted(f"passed before, and now have no verdict: {lost}", "red")
        if unpaired:
            yield _painted(f"not compared, without a verdict on both sides: {unpaired}", "dim")
        yield _painted(comparison.said, _VERDICTS[comparison.verdict])
        if worse:
            yield _painted(f"passed every time, and now fail every time: {worse}", "red")
        if comparison.tokens:
            yield _painted(f"{comparison.tokens:+,.0f} tokens a run", "dim")


def _painted(text: str, style: str) -> str:
    return paint(visible(text), style)


def _case_lines(story: Story, rows: Sequence[CaseRow], *, several: bool) -> Iterator[str]:
    """Yield the results of a case; unless all passed, also what it asked, expected and got."""
    for row in rows:
        sign, style = _MARKS[row.mark]
        name = f"{row.case} ({row.configuration})" if several else row.case
        mark = "" if row.mark in {"pass", "fail"} else f" {row.mark}"
        why = why_of(row)
        said = visible(f": {_cut(why)}" if why else "")
        yield f"{paint(sign, style)} {paint(visible(name), 'bold')}{mark}{said}"
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
            yield paint(f"    {visible(name)}: {visible(_cut(flat))}", "dim")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WHY_CHARS else f"{text[:MAX_WHY_CHARS]}…"


def _figure_lines(summary: Summary) -> Iterator[str]:
    """Yield a row for each configuration, or, if that is too wide, a column for each."""
    heads, rows = figures(summary)
    shown = [n for n, head in enumerate(heads) if n and head not in _NOT_SHOWN]
    lines: list[Sequence[Cell]] = [
        [("", "dim"), *((heads[n], "dim") for n in shown)],
        *([(visible(row[0]), "bold"), *((row[n], "") for n in shown)] for row in rows),
    ]
    widths = _widths(lines)
    too_wide = sum(widths) + 2 * len(widths) - 2 > terminal_width()
    yield from _table(list(zip(*lines, strict=True)) if too_wide else lines)


def _trigger_lines(name: str, found: Triggers) -> Iterator[str]:
    if found.wanted:
        first = f"search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests"
        yield _painted(f"{name}: {first}" if name else first, "dim")
    wanted, taken, counts = confusion(found)
    if len(wanted) > MAX_TABLE_NAMES or len(taken) > 6:
        return

    def cell(row: str, column: str) -> Cell:
        count = counts.get((row, column), 0)
        return (str(count), "green" if is_right(row, column) else "red") if count else ("·", "dim")

    heads = ("wanted \\ taken", *map(visible, taken))
    lines = [[(visible(row), "bold"), *(cell(row, column) for column in taken)] for row in wanted]
    yield from _table([[(head, "dim") for head in heads], *lines])


def _widths(lines: Sequence[Sequence[Cell]]) -> list[int]:
    return [max(cell_len(text) for text, _ in column) for column in zip(*lines, strict=True)]


def _table(lines: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield the first column to the left and the others to the right."""
    widths = _widths(lines)
    for line in lines:
        blanks = [" " * (width - cell_len(text)) for (text, _), width in zip(line, widths, strict=True)]
        first, *others = (paint(text, style) for text, style in line)
        shown = [f"{blank}{cell}" for blank, cell in zip(blanks[1:], others, strict=True)]
        yield "  ".join([f"{first}{blanks[0]}", *shown])


class EvalProgress(StatusLine):
    """Show a bar on a terminal, with the pass rate so far and the time that is left."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._ran = self._passed = self._judged = 0
        self.finished, self.total = 0, 0

    def __call__(self, *, done: int, total: int, result: CaseResult | None) -> None:
        """Count a result and draw the bar."""
        self.finished, self.total = done, total
        if result is not None:
            self._ran += 1
            self._judged += result.outcome in {"pass", "fail"}
            self._passed += result.outcome == "pass"
        if self.is_due():
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
