"""Implement ``vade eval report`` and ``vade eval compare``, and print evaluations.

Failures and their reasons come first, then the rates, then how reliable the rates are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from vademecum.cli.indexing import html_option
from vademecum.cli.main import group
from vademecum.cli.output.printing import BAR_CHARS, CommandResult, StatusLine, command, paint
from vademecum.cli.output.skill_text import Cell, shortened, table_lines, table_widths, terminal_width
from vademecum.context import Context
from vademecum.errors import CaseRefused
from vademecum.evals.reports import texts
from vademecum.evals.reports.summary import (
    CaseRow,
    Comparison,
    Story,
    Summary,
    compare,
    side_by_side,
    summarise,
)
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.evals.results import CaseResult, Evaluation, read_evaluation
from vademecum.evals.suite import HEADER
from vademecum.files import writable
from vademecum.runs.record import check_place, runs_directory
from vademecum.skill.text import counted, visible

MAX_LISTED = 40
MAX_WHY_WIDTH = 160

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
# Printed below the table, or in the other reports.
_NOT_SHOWN = frozenset({"false triggers", "seconds"})


eval_command = group("eval", "Run test cases for skills and models, and compare the results.")


@command("report", eval_command)
@click.argument("results", required=False)
@click.option("--against", metavar="OLD", help="Show another evaluation next to it, and what changed.")
@html_option(help="Write a page with plots, and a page for each run.")
def report_command(*, results: str | None, against: str | None, page: str | None) -> CommandResult:
    """Show an evaluation. RESULTS is its directory or the name of its suite (default: the latest)."""
    context = Context.current()
    evaluation = _evaluation(results, context)
    if against is not None:
        evaluation = side_by_side(evaluation, _evaluation(against, context))
    summary = summarise(evaluation)
    lines = summary_lines(summary)
    if page:
        from vademecum.evals.reports.page import write_pages

        with writable(Path(page)):
            runs = write_pages(evaluation, summary, Path(page).absolute())
        lines = iter([f"Wrote {page} and {counted(runs, 'page')} of runs"])
    return CommandResult(texts.summary_document(evaluation, summary), lines)


@command("compare", eval_command)
@click.argument("old")
@click.argument("new")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "inconclusive"]),
    help="Exit code 1 on a regression, or also if the comparison is inconclusive.",
)
def compare_command(*, old: str, new: str, fail_on: str | None) -> CommandResult:
    """Compare two evaluations, OLD and NEW, case by case: directories of results, or names of suites.

    A regression is a difference whose interval is below zero, a case that passed every time and now fails
    every time, or one that passed and now has no verdict. If no case can be paired, that is one too.
    """
    context = Context.current()
    found = _comparisons(_evaluation(old, context), _evaluation(new, context))
    worse = any(one.regression for one in found)
    is_open = any(one.verdict == "inconclusive" for one in found)
    code = 1 if (fail_on and worse) or (fail_on == "inconclusive" and is_open) else 0
    comparisons = {"comparisons": msgspec.to_builtins(found), "regression": worse}
    return CommandResult(comparisons, comparison_lines(found), code)


def suites_home(context: Context) -> Path:
    """Return the directory of a project's suites: its ``.agent/evals``."""
    runs = runs_directory(context)
    check_place(runs)
    return runs.parent / "evals"


def _evaluation(wanted: str | None, context: Context) -> Evaluation:
    results = suites_home(context) / "results"
    if wanted is not None:
        named = results / Path(wanted).name
        return read_evaluation(Path(wanted).absolute() if Path(wanted, HEADER).exists() else named)
    known = sorted(results.glob(f"*/{HEADER}"), key=lambda path: path.stat().st_mtime)
    if not known:
        raise CaseRefused("There are no results yet: run vade eval run SUITE.", code="no-suite")
    return read_evaluation(known[-1].parent)


def _comparisons(old: Evaluation, new: Evaluation) -> list[Comparison]:
    """Compare configurations of the same name, or the two if each evaluation has only one."""
    before = [one.name for one in old.header.configurations]
    after = [one.name for one in new.header.configurations]
    if len(before) == len(after) == 1:
        return [compare(old.results, new.results, old_name="old", new_name="new")]
    shared = [name for name in after if name in before]
    if not shared:
        raise CaseRefused("The two evaluations share no configuration: run both in the same way.")
    return [
        compare(old.of(name), new.of(name), old_name=f"old {name}", new_name=f"new {name}") for name in shared
    ]


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
    for note in texts.notes(summary):
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
            yield _painted(f"not compared, because one side has no verdict: {unpaired}", "dim")
        yield _painted(comparison.said, _VERDICTS[comparison.verdict])
        if worse:
            yield _painted(f"passed every time, and now fail every time: {worse}", "red")
        if comparison.tokens:
            yield _painted(f"{comparison.tokens:+,.0f} tokens a run", "dim")


def _painted(text: str, style: str) -> str:
    return paint(visible(text), style)


def _case_lines(story: Story, rows: Sequence[CaseRow], *, several: bool) -> Iterator[str]:
    """Yield the results of a case; unless all passed, also its request, expectation and answers."""
    for row in rows:
        sign, style = _MARKS[row.mark]
        name = f"{row.case} ({row.configuration})" if several else row.case
        mark = "" if row.mark in {"pass", "fail"} else f" {row.mark}"
        why = texts.why_of(row)
        said = visible(f": {shortened(why, MAX_WHY_WIDTH)}" if why else "")
        yield f"{paint(sign, style)} {paint(visible(name), 'bold')}{mark}{said}"
    if all(row.mark == "pass" for row in rows):
        return
    answers = {row.configuration: row.answer for row in rows}
    same = len(set(answers.values())) == 1
    answered = (
        {"answered": rows[0].answer} if same else {f"answered ({name})": answers[name] for name in answers}
    )
    told = {"asked": story.request, "expected": "; ".join(story.expected), **answered}
    for name, text in told.items():
        flat = " ".join(text.split())
        if flat:
            yield paint(f"    {visible(name)}: {visible(shortened(flat, MAX_WHY_WIDTH))}", "dim")


def _figure_lines(summary: Summary) -> Iterator[str]:
    """Yield a row for each configuration, or, if that is too wide, a column for each."""
    heads, rows = texts.figures(summary)
    shown = [n for n, head in enumerate(heads) if n and head not in _NOT_SHOWN]
    lines: list[Sequence[Cell]] = [
        [("", "dim"), *((heads[n], "dim") for n in shown)],
        *([(visible(row[0]), "bold"), *((row[n], "") for n in shown)] for row in rows),
    ]
    widths = table_widths(lines)
    too_wide = sum(widths) + 2 * len(widths) - 2 > terminal_width()
    yield from table_lines(list(zip(*lines, strict=True)) if too_wide else lines)


def _trigger_lines(name: str, found: Triggers) -> Iterator[str]:
    if found.wanted:
        first = f"search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests"
        yield _painted(f"{name}: {first}" if name else first, "dim")
    wanted, taken, counts = texts.confusion(found)
    if len(wanted) > texts.MAX_TABLE_NAMES or len(taken) > 6:
        return

    def cell(row: str, column: str) -> Cell:
        count = counts.get((row, column), 0)
        return (str(count), "green" if is_right(row, column) else "red") if count else ("·", "dim")

    heads = ("wanted \\ taken", *map(visible, taken))
    lines = [[(visible(row), "bold"), *(cell(row, column) for column in taken)] for row in wanted]
    yield from table_lines([[(head, "dim") for head in heads], *lines])


class EvalProgress(StatusLine):
    """Show a bar on a terminal, with the pass rate so far and the time left."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._outcomes = Counter[str]()
        self.finished, self.total = 0, 0

    def __call__(self, *, done: int, total: int, result: CaseResult | None) -> None:
        """Count a result and draw the bar."""
        self.finished, self.total = done, total
        if result is not None:
            self._outcomes[result.outcome] += 1
        if self.is_due():
            self.show(self.line(self._drawn))

    def line(self, now: float) -> str:
        """Return the bar with the rate and the time left."""
        filled = round(BAR_CHARS * self.finished / self.total) if self.total else BAR_CHARS
        bar = f"[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {self.finished:,} of {self.total:,}"
        if not self._outcomes:
            return bar
        judged = self._outcomes["pass"] + self._outcomes["fail"]
        rate = f", {self._outcomes['pass'] / judged:.0%} pass" if judged else ""
        left = (self.total - self.finished) * (now - self._started) / self._outcomes.total()
        return f"{bar}{rate}, {int(left) // 60}:{int(left) % 60:02} left"
