"""A summary → one page that needs nothing else, with plots, and a page for each run that it links to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import quote

from vademecum.errors import PathRefused, RecordDamaged
from vademecum.evals import plots
from vademecum.evals.markdown import notes, passed, shown, why_of
from vademecum.evals.results import RUNS, Evaluation
from vademecum.evals.summary import CaseRow, Column, Summary
from vademecum.evals.triggers import Triggers
from vademecum.files import write_atomic
from vademecum.runs.page import page_of
from vademecum.runs.reading import PastRun, read_run

MAX_LINKED_RUNS = 5000
MAX_ROWS = 5000
MAX_WHY_CHARS = 600


def write_pages(evaluation: Evaluation, summary: Summary, file: Path) -> int:
    """Write the page, and beside it a page for each run that has a record; gives how many of those."""
    directory = f"{file.stem}-runs"
    links: dict[str, str] = {}
    for result in evaluation.results[:MAX_LINKED_RUNS]:
        run = _run(evaluation, result.run) if result.run else None
        if run is not None:
            write_atomic(
                file.parent / directory / f"{result.run}.html", page_of(run).encode("utf-8", "replace")
            )
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
    """The page; ``links`` are where the pages of runs lie."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(summary.started))
    configurations = f"{len(summary.columns)} configurations · " if len(summary.columns) > 1 else ""
    facts = f"{summary.cases} cases · {configurations}{when}"
    body = [
        f"<h1>Evaluation of {escape(summary.name)}</h1>",
        f'<div class="facts">{facts}</div>',
        *(
            f'<p class="verdict {escape(found.difference.verdict)}">{escape(found.said)}</p>'
            for found in summary.comparisons
        ),
        f'<div class="plots">{"".join(_figures(summary))}</div>',
        _columns(summary.columns),
        _notes(summary),
        *(_triggers(column) for column in summary.columns),
        _rows(summary.rows, links, several=len(summary.columns) > 1),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Evaluation of {escape(summary.name)}</title>\n<style>{_style()}</style></head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body></html>\n"
    )


@cache
def _style() -> str:
    return (Path(__file__).parent / "page.css").read_text("utf-8")


def _figures(summary: Summary) -> list[str]:
    found = [_figure("Pass rate, with 95 % intervals", plots.rates(summary.columns))]
    found.append(_figure("Cost against success, a dot for each case", plots.cost_against_success(summary)))
    for column in summary.columns:
        if column.triggers is not None:
            name = f" ({column.configuration})" if len(summary.columns) > 1 else ""
            found.append(_figure(f"Which skill took whose request{name}", plots.heat_map(column.triggers)))
    return found


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawing}</figure>" if drawing else ""


def _columns(columns: Sequence[Column]) -> str:
    """The configurations; what is nowhere anything but zero has no column."""
    cells = [_numbers(column) for column in columns]
    kept = [name for name in cells[0] if any(row[name] != _IF_ANY.get(name) for row in cells)]
    named = zip(columns, cells, strict=True)
    rows = [[column.configuration, *(row[name] for name in kept)] for column, row in named]
    return _table(["configuration", *kept], rows)


_IF_ANY = {
    **dict.fromkeys(("time-outs", "errors", "unusable", "not judged", "tokens"), "0"),
    **dict.fromkeys(("precision", "recall"), "–"),
}


def _numbers(column: Column) -> dict[str, str]:
    rate, cost = column.rate, column.cost
    overall = column.triggers.overall if column.triggers else None
    return {
        "passed": passed(rate),
        "rate": f"{rate.rate:.1%}",
        "95 % interval": f"{rate.interval.low:.1%} to {rate.interval.high:.1%}",
        "time-outs": str(column.timeouts),
        "errors": str(column.errors),
        "unusable": str(column.unusable),
        "not judged": str(column.unjudged),
        "precision": shown(overall.precision if overall else None),
        "recall": shown(overall.recall if overall else None),
        "turns": f"{cost.turns:.1f}",
        "tool calls": f"{cost.tool_calls:.1f}",
        "tokens": f"{cost.tokens:,.0f}",
        "seconds": f"{cost.seconds:.2f}",
    }


def _notes(summary: Summary) -> str:
    lines = [f"<li>{escape(note)}</li>" for note in notes(summary)]
    lines += [f"<li><b>malformed</b> {escape(str(wrong))}</li>" for wrong in summary.malformed]
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _triggers(column: Column) -> str:
    found: Triggers | None = column.triggers
    if found is None or len(found.skills) > MAX_ROWS:
        return ""
    rows = [
        [
            rate.skill,
            shown(rate.precision),
            shown(rate.recall),
            *map(str, (rate.right, rate.wrongly_taken, rate.missed)),
        ]
        for rate in (found.overall, *found.skills)
    ]
    first = f"Search alone puts the right skill first for {found.ranked_first} of {found.wanted} requests."
    head = ["skill", "precision", "recall", "right", "wrongly taken", "missed"]
    return f"<h2>Skills ({escape(column.configuration)})</h2><p>{first}</p>{_table(head, rows)}"


def _rows(rows: Sequence[CaseRow], links: Mapping[str, str], *, several: bool) -> str:
    lines = []
    for row in rows[:MAX_ROWS]:
        runs = " ".join(
            f'<a href="{links[run]}">{number if len(row.runs) > 1 else "run"}</a>'
            for number, run in enumerate(row.runs, 1)
            if run in links
        )
        lines.append(
            f"<tr><td>{escape(row.case)}</td>{f'<td>{escape(row.configuration)}</td>' if several else ''}"
            f'<td><span class="mark {row.mark}">{row.mark}</span></td>'
            f"<td>{escape(why_of(row)[:MAX_WHY_CHARS])}</td>"
            f'<td class="n">{row.cost.seconds:.2f} s</td><td class="n">{runs}</td></tr>'
        )
    titles = ("case", *(("configuration",) if several else ()), "", "why", "", "")
    head = f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"
    return f'<h2>Cases</h2><div class="wide"><table id="cases">{head}{"".join(lines)}</table></div>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *rest = head
    titles = f"<th>{escape(first)}</th>" + "".join(f'<th class="n">{escape(title)}</th>' for title in rest)
    lines = "".join(
        f"<tr><td>{escape(row[0])}</td>{''.join(f'<td class=n>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{titles}</tr>{lines}</table></div>'
