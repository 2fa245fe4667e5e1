"""``vade eval report`` and ``vade eval compare``: what an evaluation says, and what changed between two."""

from __future__ import annotations

from pathlib import Path

import click

from vademecum.cli.eval.tables import comparison_lines, summary_lines
from vademecum.cli.output.printing import Answer, counted, json_or_lines
from vademecum.context import Context
from vademecum.errors import CaseRefused
from vademecum.evals.reports.summary import Comparison, compare, side_by_side, summarise
from vademecum.evals.reports.texts import document, summary_document
from vademecum.evals.results import HEADER, Evaluation, read_evaluation, writable
from vademecum.runs.record import check_place, runs_directory

_FILE = click.Path(dir_okay=False)


@click.command("report")
@click.argument("results", required=False)
@click.option("--against", metavar="OLD", help="Show another evaluation beside it, and what changed.")
@click.option(
    "--html", "page", type=_FILE, metavar="FILE", help="Write a page with plots, and one for each run."
)
@json_or_lines
def report_command(*, results: str | None, against: str | None, page: str | None) -> Answer:
    """Show an evaluation: RESULTS is its directory or its suite's name; without it, the latest one."""
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
    return Answer(summary_document(evaluation, summary), lines)


@click.command("compare")
@click.argument("old")
@click.argument("new")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "inconclusive"]),
    help="Exit code 1 when it got worse, or also when nothing is settled.",
)
@json_or_lines
def compare_command(*, old: str, new: str, fail_on: str | None) -> Answer:
    """Compare two evaluations, OLD and NEW, case by case: directories of results, or names of suites.

    A regression is a difference whose interval is below zero, a case that passed every time and now fails
    every time, or one that passed and now has no verdict. Where nothing can be paired, that is one too.
    """
    context = Context.current()
    found = _comparisons(_evaluation(old, context), _evaluation(new, context))
    worse = any(one.regression for one in found)
    is_open = any(one.verdict == "inconclusive" for one in found)
    code = 1 if (fail_on and worse) or (fail_on == "inconclusive" and is_open) else 0
    comparisons = {"comparisons": [document(one) for one in found], "regression": worse}
    return Answer(comparisons, comparison_lines(found), code)


def suites_home(context: Context) -> Path:
    """Return the directory of a project's suites: its ``.agent/evals``."""
    runs = runs_directory(context)
    check_place(runs)
    return runs.parent / "evals"


def results_home(context: Context) -> Path:
    """Return the directory of the results of evaluations."""
    return suites_home(context) / "results"


def _evaluation(wanted: str | None, context: Context) -> Evaluation:
    if wanted is not None:
        named = results_home(context) / Path(wanted).name
        return read_evaluation(Path(wanted).absolute() if Path(wanted, HEADER).exists() else named)
    known = sorted(results_home(context).glob(f"*/{HEADER}"), key=lambda path: path.stat().st_mtime)
    if not known:
        raise CaseRefused("There are no results yet: vade eval run SUITE makes some.", code="no-suite")
    return read_evaluation(known[-1].parent)


def _comparisons(old: Evaluation, new: Evaluation) -> list[Comparison]:
    """Compare configurations of the same name; where each has but one, those two."""
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
