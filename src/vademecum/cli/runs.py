"""Implement ``vade runs``: list, show, replay and delete recorded runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, complete_runs, html_option, index_options, out_option
from vademecum.cli.main import group
from vademecum.cli.output.printing import CommandResult, command, paint
from vademecum.cli.output.skill_text import shortened, terminal_width
from vademecum.context import Context
from vademecum.errors import RecordDamaged
from vademecum.files import try_lock
from vademecum.policy.engine import Policy, allowing
from vademecum.runs.record import EVENTS, Event, check_place, runs_directory
from vademecum.runs.stored import SIGNS, PastRun, outputs_of, read_run, run_ids, timeline
from vademecum.skill.text import counted, escaped, visible
from vademecum.tools.exchange import Outputs, recorded

runs_command = group("runs", "List, show, replay or delete the recorded runs of this project.")
SAVED = ".saved"  # the directory for records of what a person saved later, which are not runs
_run_argument = click.argument("run_id", required=False, shell_complete=complete_runs)


@command("list", runs_command)
@click.option("-n", "number", type=click.IntRange(1, 10_000), default=20, help="Number of runs (default 20).")
def list_command(*, number: int) -> CommandResult:
    """List the latest runs.

    A run is done, refused (a rule refused, or nobody was there to approve), declined (a person declined),
    degraded (the agent gave up, or a limit was reached), failed, interrupted, or unfinished (it is still
    running, or it was killed). Calls of another program are one run.
    """
    directory = runs_directory(Context.current())
    found = [_read(directory, run_id) for run_id in run_ids(directory)[-number:]]
    rows = [
        {"run_id": run.run_id, "status": run.status, "request": run.request, "seconds": run.seconds}
        for run in found
    ]
    return CommandResult({"runs": rows}, map(_row, found) if found else ['No runs yet: vade run "…"'])


def _row(run: PastRun) -> str:
    """Return the time, the status and the request of a run, on one line."""
    status = paint(f"{run.status:<12}", "green" if run.status == "done" else "yellow")
    room = terminal_width() - len(run.run_id) - 15
    return f"{run.run_id}  {status}{shortened(visible(f'{run.seconds:.1f} s {run.request}'), room)}"


@command("show", runs_command)
@_run_argument
@html_option(help="Write an HTML page instead.")
def show_command(*, run_id: str | None, page: str | None) -> CommandResult:
    """Show one run step by step (default: the latest)."""
    run = run_or_latest(run_id)
    lines = _timeline(run)
    if page is not None:
        from vademecum.files import writable, write_atomic
        from vademecum.pages.run import run_page

        if not Path(page).absolute().parent.is_dir():
            raise click.BadParameter("its directory does not exist", param_hint="--html")
        with writable(Path(page)):
            write_atomic(Path(page), run_page(run).encode("utf-8", "replace"))
        lines = iter([f"Wrote {page}"])
    events = [{"n": e.number, "time": e.time, "type": e.type, **e.data} for e in run.events]
    return CommandResult({"run_id": run.run_id, "status": run.status, "events": events}, lines)


def _timeline(run: PastRun) -> Iterator[str]:
    yield paint(visible(f"{run.run_id}  {run.status}  {run.seconds:.1f} s"), "bold")
    for entry in timeline(run):
        sign, style = SIGNS[entry.mark]
        yield f"{paint(f'{entry.seconds:7.2f}  {sign} ', style)}{visible(entry.title)}"
        if entry.mark in {"plan", "end", "asked"} and entry.detail:
            for line in entry.detail.splitlines():
                yield f"           {paint(escaped(line.expandtabs(4)), 'dim')}"


@command("replay", runs_command)
@_run_argument
@index_options
def replay_command(*, run_id: str | None, **words: Any) -> CommandResult:
    """Repeat the actions of a run without a model and list what would differ now.

    Exit code 1: something differs.
    """
    from vademecum.agent.replay import replay

    run = run_or_latest(run_id)
    started = run.first("run_started")
    allowed = allowing(started.data.get("allow", ()) if started else ())
    done = replay(run, IndexWords(**words).build(), Policy.load(Context.current(), run=allowed))
    compared, found = done.compared, [*done.differences]
    if run.first("charter") is not None:
        from vademecum.governance.audit import replay_outcomes

        outcomes = replay_outcomes(run)
        compared += outcomes.compared
        found += outcomes.differences
    lines = [visible(f"event {d.event}: {d.what}: {d.then} then, {d.now} now") for d in found]
    different = f"{len(found) or 'none'} would differ now"
    lines.append(f"{run.run_id}: {counted(compared, 'step')} compared, {different}")
    document = {"run_id": run.run_id, "compared": compared, "differences": found}
    return CommandResult(document, lines, 1 if found else 0)


@command("outputs", runs_command)
@_run_argument
@out_option
def outputs_command(*, run_id: str | None, out: str | None) -> CommandResult:
    """List or copy the output files of a run (default: the latest run that has any)."""
    from vademecum.cli.running import reachable_for, save_outputs, told_of
    from vademecum.session.base import Place
    from vademecum.session.session import Session

    context = Context.current()
    directory = runs_directory(context)
    check_place(directory)
    run = run_or_latest(run_id or _with_outputs(directory))
    named = [each for event in run.events for each in outputs_of(event, run.place)]
    outputs = list(recorded(named, run.events[0].time if run.events else 0.0))
    session = Session(
        IndexWords().build(quiet=True),
        outputs=Outputs(outputs),
        place=Place.at(context, reachable=reachable_for((), out)),
        origin="user",
        runs=directory / SAVED,
        client=f"vade runs outputs {run.run_id}",
    )
    saved = save_outputs(session, outputs, out)
    session.close()
    listed = [visible(f"{each.name} ({counted(each.bytes, 'byte')}): {each.file}") for each in outputs]
    lines = ([] if out else listed) if saved else [f"{run.run_id} has no output files"]
    code, told = 1 if any(each.problem for each in saved) else 0, told_of(saved) if out else ()
    return CommandResult({"run_id": run.run_id, "outputs": saved}, lines, code, told=told)


@command("prune", runs_command)
@click.option("--keep", type=click.IntRange(0), required=True, metavar="N", help="Number of runs to keep.")
def prune_command(*, keep: int) -> CommandResult:
    """Delete all records except those of the latest runs and of runs that go on.

    Their output files and the old content of changed files go too.
    """
    directory = runs_directory(Context.current())
    check_place(directory)
    known, gone = run_ids(directory), []
    for run_id in known[: max(0, len(known) - keep)]:
        with open(directory / run_id / EVENTS, "rb") as events:
            if try_lock(events.fileno()):
                shutil.rmtree(directory / run_id)
                gone.append(run_id)
    return CommandResult({"deleted": gone}, [f"Deleted {counted(len(gone), 'run')}"])


def _with_outputs(directory: Path) -> str | None:
    """Return the latest run with output files."""
    for run_id in reversed(run_ids(directory)):
        run = _read(directory, run_id)
        if any(outputs_of(event, run.place) for event in run.events):
            return run_id
    return None


def _read(directory: Path, run_id: str) -> PastRun:
    """Return a run; if its record is damaged, return one that contains only the error."""
    try:
        return read_run(directory, run_id)
    except RecordDamaged as error:
        started = Event(1, 0.0, "run_started", {"request": str(error)})
        ended = Event(2, 0.0, "run_finished", {"status": "damaged"})
        return PastRun(run_id, str(directory / run_id), (started, ended))


def run_or_latest(run_id: str | None) -> PastRun:
    """Return the run with that id, or the latest of this project."""
    directory = runs_directory(Context.current())
    known = run_ids(directory)
    if not run_id and not known:
        raise RecordDamaged('There are no runs yet. Run: vade run "…".', code="no-run")
    return read_run(directory, run_id or known[-1])
