"""``vade eval report`` and ``vade eval compare``: what an evaluation says, and what changed between two."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.errors import CaseRefused
from vademecum.evals.comparing import Comparison, compare, side_by_side
from vademecum.evals.results import HEADER, Evaluation, read_evaluation
from vademecum.evals.summary import Summary, summarise
from vademecum.runs.place import check_place, runs_directory

_DIRECTORY = click.Path(file_okay=False)
_FILE = click.Path(dir_okay=False)


@click.command("report")
@click.argument("results", required=False)
@click.option("--against", metavar="OLD", help="Show another evaluation beside it, and what changed.")
@click.option(
    "--html", "page", type=_FILE, metavar="FILE", help="Write a page with plots, and one for each run."
)
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write Markdown.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--workspace", type=_DIRECTORY, metavar="DIR", help="Write SKILL-workspace/iteration-N here.")
@json_option
def report_command(  # noqa: PLR0913 - one for each option
    *,
    results: str | None,
    against: str | None,
    page: str | None,
    markdown: str | None,
    junit: str | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show an evaluation: RESULTS is its directory or its suite's name; without it, the latest one."""
    context = Context.current()
    evaluation = _evaluation(results, context)
    if against is not None:
        evaluation = side_by_side(evaluation, _evaluation(against, context))
    summary = summarise(evaluation)
    written = _write_page(evaluation, summary, page) if page else []
    written += _write_texts(evaluation, summary, markdown=markdown, junit=junit)
    written += _write_workspace(evaluation, workspace) if workspace else []
    if as_json or not written:
        print_evaluation(evaluation, summary, as_json=as_json)
        return
    for line in written:
        click.echo(f"Wrote {line}")


@click.command("compare")
@click.argument("old")
@click.argument("new")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "inconclusive"]),
    help="Exit code 1 when it got worse, or also when nothing is settled.",
)
@click.option(
    "--judge", metavar="KIND:NAME", default="", help="Which answer is better, asked in both orders."
)
@json_option
def compare_command(*, old: str, new: str, fail_on: str | None, judge: str, as_json: bool) -> int:
    """Compare two evaluations, OLD and NEW, case by case: directories of results, or names of suites.

    A regression is a difference whose interval is below zero, or a case that passed every time and now fails
    every time.
    """
    context = Context.current()
    before, after = _evaluation(old, context), _evaluation(new, context)
    found = _comparisons(before, after)
    judged = _judged(before, after, judge) if judge else []
    if as_json:
        document = [
            msgspec.to_builtins(one) | {"verdict": one.difference.verdict, "said": one.said} for one in found
        ]
        print_json(
            {"comparisons": document, "regression": any(one.is_regression for one in found), "judged": judged}
        )
    else:
        from vademecum.cli import show_evals

        show_evals.print_comparison(found, judged)
    worse = any(one.is_regression for one in found)
    open_ = any(one.difference.verdict == "inconclusive" for one in found)
    return 1 if (fail_on and worse) or (fail_on == "inconclusive" and open_) else 0


def suites_home(context: Context) -> Path:
    """Where the suites of a project lie: its ``.agent/evals``."""
    runs = runs_directory(context)
    check_place(runs)
    return runs.parent / "evals"


def results_home(context: Context) -> Path:
    """Where the results of evaluations lie."""
    return suites_home(context) / "results"


def _evaluation(wanted: str | None, context: Context) -> Evaluation:
    if wanted is not None and Path(wanted, HEADER).exists():
        return read_evaluation(Path(wanted).absolute())
    if wanted is not None:
        return read_evaluation(results_home(context) / Path(wanted).name)
    known = sorted(results_home(context).glob(f"*/{HEADER}"), key=lambda path: path.stat().st_mtime)
    if not known:
        raise CaseRefused("There are no results yet: vade eval run SUITE makes some.", code="no-suite")
    return read_evaluation(known[-1].parent)


def print_evaluation(evaluation: Evaluation, summary: Summary, *, as_json: bool) -> None:
    """The evaluation as text, or as one JSON document."""
    if as_json:
        document = msgspec.to_builtins(summary)
        document["passed"] = summary.is_clean
        document["results"] = msgspec.to_builtins(evaluation.results)
        document["place"] = evaluation.place
        print_json(document)
        return
    from vademecum.cli import show_evals

    show_evals.print_summary(summary)


def _write_page(evaluation: Evaluation, summary: Summary, page: str) -> list[str]:
    from vademecum.evals.page import write_pages

    runs = write_pages(evaluation, summary, Path(page).absolute())
    return [f"{page} and {counted(runs, 'page')} of runs"]


def _write_texts(
    evaluation: Evaluation, summary: Summary, *, markdown: str | None, junit: str | None
) -> list[str]:
    from vademecum.evals.junit import junit_of
    from vademecum.evals.markdown import markdown_of
    from vademecum.files import write_atomic

    if markdown:
        write_atomic(Path(markdown).absolute(), markdown_of(summary).encode("utf-8", "replace"))
    if junit:
        write_atomic(Path(junit).absolute(), junit_of(evaluation).encode("utf-8", "replace"))
    return [file for file in (markdown, junit) if file]


def _write_workspace(evaluation: Evaluation, directory: str) -> list[str]:
    from vademecum.evals.workspace import write_workspace

    return [os.path.relpath(write_workspace(evaluation, Path(directory).absolute()))]


def _comparisons(old: Evaluation, new: Evaluation) -> list[Comparison]:
    """Configuration by configuration of the same name; where each has but one, those two."""
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


def _judged(old: Evaluation, new: Evaluation, judge: str) -> list[str]:
    """Which answers a model prefers, case by case, each pair asked about twice."""
    from vademecum.evals.judging import judge_pair
    from vademecum.models.choose import choose_model

    model = choose_model(judge)
    requests = {case.id: case.input for case in new.header.cases}
    before = {result.case: result for result in old.results if result.repetition == 1}
    said = {"first": "old", "second": "new", "tie": "tie"}
    tally = dict.fromkeys(said.values(), 0)
    for result in new.results:
        if result.repetition == 1 and result.case in before:
            other = before[result.case]
            tally[said[judge_pair(requests[result.case], other.answer, result.answer, judge=model)]] += 1
    return [
        f"judged by {model.name}: new is better {tally['new']}, old {tally['old']}, tie {tally['tie']} times"
    ]
