"""``vade runs``: looking at what was done, from the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vademecum.cli.completing import complete_runs
from vademecum.cli.groups import Group
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.errors import RecordDamaged
from vademecum.policy.engine import Policy, allowing
from vademecum.runs.reading import PastRun, read_run, run_ids
from vademecum.runs.record import Event, check_place, runs_directory
from vademecum.skill.text import visible


@click.group("runs", cls=Group, invoke_without_command=True)
@click.pass_context
def runs_command(context: click.Context) -> None:
    """Look at what was done: the runs of this project, from their records."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@runs_command.command("list")
@click.option("-n", "number", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def list_command(*, number: int, as_json: bool) -> None:
    """List the latest runs."""
    directory = runs_directory(Context.current())
    found = [_read(directory, run_id) for run_id in run_ids(directory)[-number:]]
    if as_json:
        rows = [
            {"run_id": run.run_id, "status": run.status, "request": run.request, "seconds": run.seconds}
            for run in found
        ]
        print_json({"runs": rows})
        return
    from vademecum.cli import show

    show.print_runs(found)


@runs_command.command("show")
@click.argument("run_id", required=False, shell_complete=complete_runs)
@click.option("--html", "page", type=click.Path(dir_okay=False), metavar="FILE", help="Write a page instead.")
@json_option
def show_command(*, run_id: str | None, page: str | None, as_json: bool) -> None:
    """Show one run step by step, the latest unless RUN_ID says otherwise."""
    directory = runs_directory(Context.current())
    run = read_run(directory, run_id or _latest(directory))
    if page is not None and not Path(page).absolute().parent.is_dir():
        raise click.BadParameter("its directory does not exist", param_hint="--html")
    if page is not None:
        from vademecum.files import write_atomic
        from vademecum.runs.page import page_of

        write_atomic(Path(page), page_of(run).encode("utf-8", "replace"))
    if as_json:
        events = [{"n": e.number, "time": e.time, "type": e.type, **e.data} for e in run.events]
        print_json({"run_id": run.run_id, "status": run.status, "events": events})
    elif page is not None:
        click.echo(f"Wrote {page}")
    else:
        from vademecum.cli import show

        show.print_timeline(run)


@runs_command.command("replay")
@click.argument("run_id", required=False, shell_complete=complete_runs)
@index_options
@json_option
def replay_command(*, run_id: str | None, as_json: bool, **words: Any) -> int:
    """Go through a run's actions without a model and say what would differ now. Exit code 1: something."""
    from vademecum.agent.replay import replay

    context = Context.current()
    directory = runs_directory(context)
    run = read_run(directory, run_id or _latest(directory))
    started = run.first("run_started")
    allowed = allowing(started.data.get("allow", ()) if started else ())
    done = replay(run, IndexWords(**words).build(), Policy.load(context, run=allowed))
    compared, found = done.compared, [*done.differences]
    if run.first("charter") is not None:
        from vademecum.governance.replay import replay_outcomes

        outcomes = replay_outcomes(run)
        compared += outcomes.compared
        found += outcomes.differences
    if as_json:
        differences = [difference.to_json() for difference in found]
        print_json({"run_id": run.run_id, "compared": compared, "differences": differences})
    else:
        for difference in found:
            said = (
                f"event {difference.event}: {difference.what}: {difference.then} then, {difference.now} now"
            )
            click.echo(visible(said))
        steps, differ = counted(compared, "step"), len(found)
        click.echo(f"{run.run_id}: {steps} compared, {differ or 'none'} would differ now")
    return 1 if found else 0


@runs_command.command("prune")
@click.option("--keep", type=click.IntRange(0), required=True, metavar="N", help="The latest N stay.")
@json_option
def prune_command(*, keep: int, as_json: bool) -> None:
    """Delete the records of all but the latest runs."""
    import shutil

    directory = runs_directory(Context.current())
    check_place(directory)
    known = run_ids(directory)
    gone = known[: len(known) - keep] if keep else known
    for run_id in gone:
        shutil.rmtree(directory / run_id)
    if as_json:
        print_json({"deleted": gone})
    else:
        click.echo(f"Deleted {counted(len(gone), 'run')}")


def _read(directory: Path, run_id: str) -> PastRun:
    """A run, or what can be said of one whose record is damaged."""
    try:
        return read_run(directory, run_id)
    except RecordDamaged as error:
        started = Event(1, 0.0, "run_started", {"request": str(error)})
        ended = Event(2, 0.0, "run_finished", {"status": "damaged"})
        return PastRun(run_id, str(directory / run_id), (started, ended))


def _latest(directory: Path) -> str:
    known = run_ids(directory)
    if not known:
        raise RecordDamaged('There are no runs yet: vade run "what is to be done".', code="no-run")
    return known[-1]
