"""Write an evaluation as one page, and a page for each of its runs that links back to its case."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import astuple

from vademecum.errors import PathRefused, RecordDamaged
from vademecum.evals.reports.summary import CaseRow, Story, Summary
from vademecum.evals.reports.texts import confusion, figures, notes, shown, trigger_rows, why_of
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.evals.results import RUNS, Evaluation
from vademecum.files import write_atomic
from vademecum.pages import charts
from vademecum.pages.render import render, said
from vademecum.pages.run import MAX_CONTENT_BYTES, Back, PageBudget, run_page
from vademecum.runs.stored import PastRun, read_run

MAX_LINKED_RUNS = 5000
# The page contains at most this many cases; those that did not pass or changed come first.
MAX_STORIES = 300
MAX_TEXT_CHARS = 1500


def write_pages(evaluation: Evaluation, summary: Summary, file: Path) -> int:
    """Write the page, and next to it a page for each run that has a record; return their number."""
    directory = f"{file.stem}-runs"
    numbers = {story.case: number for number, story in enumerate(summary.stories, 1)}
    links: dict[str, str] = {}
    for result in evaluation.results[:MAX_LINKED_RUNS]:
        run = _run(evaluation, result.run) if result.run else None
        if run is not None:
            href = f"../{quote(file.name)}#case-{numbers.get(result.case, 0)}"
            text = run_page(run, back=Back(href, result.case, result.outcome))
            write_atomic(file.parent / directory / f"{result.run}.html", text.encode("utf-8", "replace"))
            links[result.run] = f"{quote(directory)}/{quote(result.run)}.html"
    write_atomic(file, page(summary, links).encode("utf-8", "replace"))
    return len(links)


def _run(evaluation: Evaluation, run_id: str) -> PastRun | None:
    for place in (evaluation.place, evaluation.beside):
        if place:
            with suppress(RecordDamaged, PathRefused):
                return read_run(Path(place, RUNS), run_id)
    return None


def page(summary: Summary, links: Mapping[str, str]) -> str:
    """Return the page; ``links`` are the addresses of the pages of runs."""
    names = [column.configuration for column in summary.columns]
    heads, table = figures(summary)
    rows = summary.by_case
    room = PageBudget(MAX_CONTENT_BYTES)
    stories = [
        _story(number, story, rows[story.case], links, room)
        for number, story in enumerate(summary.stories[:MAX_STORIES], 1)
        if room.left > 0
    ]
    rates = [
        (c.configuration, c.rate.rate if c.rate.cases else None, *astuple(c.rate.interval))
        for c in summary.columns
    ]
    triggers = [(c.configuration, c.triggers) for c in summary.columns if c.triggers is not None]
    return render(
        "evaluation",
        summary=summary,
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(summary.started)),
        legend=[(charts.COLOURS[n % len(charts.COLOURS)], name) for n, name in enumerate(names)],
        rates=charts.rates(rates),
        costs=_costs(summary, names),
        maps=[(name, _map(found)) for name, found in triggers],
        heads=heads,
        table=table,
        notes=notes(summary),
        triggers=triggers,
        trigger_rows=trigger_rows,
        most_skills=MAX_STORIES + 1,
        shown=shown,
        stories=stories,
        hidden=len(summary.stories) - len(stories),
    )


def _costs(summary: Summary, names: Sequence[str]) -> Any:
    rows = [row for row in summary.rows if row.judged]
    by_tokens = any(row.cost.tokens for row in rows)
    unit = "tokens a run" if by_tokens else "turns a run"
    points = [
        (
            row.cost.tokens if by_tokens else row.cost.turns,
            row.passed / row.judged,
            names.index(row.configuration),
            f"{row.case}, {row.configuration}: {row.passed}/{row.judged}",
        )
        for row in rows
    ]
    return charts.dots(points, unit=unit) if points else ""


def _map(found: Triggers) -> Any:
    wanted, taken, counts = confusion(found)
    weight = {row: sum(counts.get((row, column), 0) for column in taken) for row in wanted}
    rows = sorted(wanted, key=lambda row: -weight[row])[: charts.MAX_NAMES]
    places = {row: number for number, row in enumerate(rows)}
    load = {column: sum(counts.get((row, column), 0) for row in rows) for column in taken}
    columns = sorted(taken, key=lambda name: (places.get(name, len(rows)), -load[name]))[: charts.MAX_NAMES]
    right = {(row, column) for row in rows for column in columns if is_right(row, column)}
    return charts.heat_map(rows, columns, counts, right)


def _story(
    number: int, story: Story, rows: Sequence[CaseRow], links: Mapping[str, str], room: PageBudget
) -> dict[str, Any]:
    def cut(text: str) -> str:
        room.take(text, MAX_TEXT_CHARS)
        return text[:MAX_TEXT_CHARS]

    marks = [row.mark for row in rows]
    return {
        "id": f"case-{number}",
        "case": cut(story.case),
        "request": cut(story.request),
        "expected": [cut(each) for each in story.expected],
        "problems": [cut(each) for each in story.problems],
        "changed": story.changed,
        "worst": next((mark for mark in marks if mark != "pass"), "pass"),
        "sides": [
            {
                "configuration": row.configuration,
                "mark": row.mark,
                "why": said(cut(why_of(row))),
                "answer": cut(row.answer),
                "vacuous": [cut(each) for each in row.vacuous],
                "seconds": f"{row.cost.seconds:.2f} s",
                "runs": [links[run] for run in row.runs if run in links],
            }
            for row in rows
        ],
        "marks": marks,
    }
