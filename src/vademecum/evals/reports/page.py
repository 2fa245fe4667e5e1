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
from vademecum.evals.reports.texts import (
    confusion,
    figures,
    notes,
    shown,
    trigger_rows,
    why_of,
)
from vademecum.evals.reports.triggers import Triggers, is_right
from vademecum.evals.results import RUNS, Evaluation
from vademecum.files import write_atomic
from vademecum.pages import charts
from vademecum.pages.render import render, said
from vademecum.pages.run import MAX_CONTENT_BYTES, Back, PageBudget, run_page
from vademecum.runs.stored import PastRun, read_run

MAX_LINKED_RUNS = 5000
# Of more cases than this the page names the number; those that did not pass or changed come first.
MAX_STORIES = 300
MAX_TEXT_CHARS = 1500


def write_pages(evaluation: Evaluation, summary: Summary, file: Path) -> int:
    """Write the page, and beside it a page for each run that has a record; return the number of those."""
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
    heads, rows = figures(summary)
    told = [_story(number, story, summary, links) for number, story in enumerate(summary.stories, 1)]
    room = PageBudget(MAX_CONTENT_BYTES)
    shown_stories = [story for story in told[:MAX_STORIES] if _fits(story, room)]
    return render(
        "evaluation",
        summary=summary,
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(summary.started)),
        legend=[(charts.COLOURS[n % len(charts.COLOURS)], name) for n, name in enumerate(names)],
        rates=charts.rates(
            [
                charts.RateBar(
                    c.configuration, c.rate.rate if c.rate.cases else None, *astuple(c.rate.interval)
                )
                for c in summary.columns
            ]
        ),
        costs=_costs(summary, names),
        maps=[(c.configuration, _map(c.triggers)) for c in summary.columns if c.triggers is not None],
        heads=heads,
        table=rows,
        notes=notes(summary),
        triggers=[
            (
                c.configuration,
                c.triggers,
                trigger_rows(c.triggers)[: MAX_STORIES + 1],
                shown(c.triggers.false_trigger_rate, c.triggers.false_trigger_interval),
            )
            for c in summary.columns
            if c.triggers
        ],
        stories=shown_stories,
        hidden=len(told) - len(shown_stories),
    )


def _costs(summary: Summary, names: Sequence[str]) -> Any:
    rows = [row for row in summary.rows if row.judged]
    by_tokens = any(row.cost.tokens for row in rows)
    unit = "tokens a run" if by_tokens else "turns a run"
    points = [
        charts.Dot(
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


def _story(number: int, story: Story, summary: Summary, links: Mapping[str, str]) -> dict[str, Any]:
    rows = [row for row in summary.rows if row.case == story.case]
    marks = [row.mark for row in rows]
    return {
        "id": f"case-{number}",
        "case": story.case,
        "request": story.request[:MAX_TEXT_CHARS],
        "expected": story.expected,
        "problems": story.problems,
        "changed": story.changed,
        "worst": next((mark for mark in marks if mark != "pass"), "pass"),
        "sides": [_side(row, links) for row in rows],
        "marks": marks,
    }


def _fits(story: Mapping[str, Any], room: PageBudget) -> bool:
    """Count the texts of a story, and return whether the page had room for it."""
    fits = room.left > 0
    texts = [story["case"], story["request"], *story["expected"], *story["problems"]]
    for side in story["sides"]:
        texts += [side["why"], side["answer"], *side["vacuous"], *side["runs"]]
    for text in texts:
        room.take(text, MAX_TEXT_CHARS)
    return fits


def _side(row: CaseRow, links: Mapping[str, str]) -> dict[str, Any]:
    return {
        "configuration": row.configuration,
        "mark": row.mark,
        "why": said(why_of(row), MAX_TEXT_CHARS),
        "answer": row.answer[:MAX_TEXT_CHARS],
        "vacuous": row.vacuous,
        "seconds": f"{row.cost.seconds:.2f} s",
        "runs": [links[run] for run in row.runs if run in links],
    }
