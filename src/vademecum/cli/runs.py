"""Implement ``vade runs``: list, show, replay and delete recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output.columns import fitted, terminal_width
from vademecum.cli.output.completion import complete_runs
from vademecum.cli.output.groups import Group
from vademecum.cli.output.printing import counted, json_option, paint, print_json
from vademecum.cli.output.saving import out_option, reachable_for, save_outputs, tell
from vademecum.cli.output.skill_text import BLUE, BOLD, CYAN, DIM, GREEN, MAGENTA, RED, YELLOW
from vademecum.context import Context
from vademecum.errors import RecordDamaged
from vademecum.policy.engine import Policy, allowing
from vademecum.runs.record import Event, check_place, runs_directory
from vademecum.runs.stored import PastRun, outputs_of, read_run, run_ids
from vademecum.runs.timeline import timeline
from vademecum.skill.text import escaped, visible
from vademecum.tools.outputs import Output, Outputs, recorded

_SIGNS = {
    "start": ("▶", BOLD),
    "model": ("·", DIM),
    "action": ("→", CYAN),
    "ok": ("✓", GREEN),
    "refused": ("✗", RED),
    "failed": ("!", YELLOW),
    "asked": ("?", MAGENTA),
    "plan": ("≡", BLUE),
    "end": ("■", BOLD),
    "note": ("·", DIM),
}


@click.group("runs", cls=Group, invoke_without_command=True)
@click.pass_context
def runs_command(context: click.Context) -> None:
    """List, show, replay or delete the recorded runs of this project."""
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
    _print_runs(found)


@runs_command.command("show")
@click.argument("run_id", required=False, shell_complete=complete_runs)
@click.option("--html", "page", type=click.Path(dir_okay=False), metavar="FILE", help="Write HTML instead.")
@json_option
def show_command(*, run_id: str | None, page: str | None, as_json: bool) -> None:
    """Show one run step by step (default: the latest)."""
    directory = runs_directory(Context.current())
    run = read_run(directory, run_id or _latest(directory))
    if page is not None and not Path(page).absolute().parent.is_dir():
        raise click.BadParameter("its directory does not exist", param_hint="--html")
    if page is not None:
        from vademecum.files import write_atomic
        from vademecum.pages.run import run_page

        write_atomic(Path(page), run_page(run).encode("utf-8", "replace"))
    if as_json:
        events = [{"n": e.number, "time": e.time, "type": e.type, **e.data} for e in run.events]
        print_json({"run_id": run.run_id, "status": run.status, "events": events})
    elif page is not None:
        click.echo(f"Wrote {page}")
    else:
        _print_timeline(run)


@runs_command.command("replay")
@click.argument("run_id", required=False, shell_complete=complete_runs)
@index_options
@json_option
def replay_command(*, run_id: str | None, as_json: bool, **words: Any) -> int:
    """Repeat the actions of a run without a model and list what would differ now.

    Exit code 1: something differs.
    """
    from vademecum.agent.replay import replay

    context = Context.current()
    directory = runs_directory(context)
    run = read_run(directory, run_id or _latest(directory))
    started = run.first("run_started")
    allowed = allowing(started.data.get("allow", ()) if started else ())
    done = replay(run, IndexWords(**words).build(), Policy.load(context, run=allowed))
    compared, found = done.compared, [*done.differences]
    if run.first("charter") is not None:
        from vademecum.governance.audit_replay import replay_outcomes

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


@runs_command.command("outputs")
@click.argument("run_id", required=False, shell_complete=complete_runs)
@out_option
@json_option
def outputs_command(*, run_id: str | None, out: str | None, as_json: bool) -> int:
    """List or copy the output files of a run (default: the latest run that has any)."""
    from vademecum.session.place import Place
    from vademecum.session.session import Session

    context = Context.current()
    directory = runs_directory(context)
    run = read_run(directory, run_id or _with_outputs(directory))
    outputs = run_outputs(run)
    saved = save_outputs(
        Session(
            IndexWords((), no_default_roots=False, lenient=False).look(),
            outputs=Outputs(outputs),
            place=Place.at(context, reachable=reachable_for(out)),
            origin="user",
            client=f"vade runs outputs {run.run_id}",
        ),
        outputs,
        out,
    )
    if as_json:
        print_json({"run_id": run.run_id, "outputs": [each.to_json() for each in saved]})
    elif not saved:
        click.echo(f"{run.run_id} has no output files")
    else:
        tell(saved)
    return 1 if any(each.problem for each in saved) else 0


@runs_command.command("prune")
@click.option("--keep", type=click.IntRange(0), required=True, metavar="N", help="Number of runs to keep.")
@json_option
def prune_command(*, keep: int, as_json: bool) -> None:
    """Delete all records except those of the latest runs."""
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


def _print_runs(runs: Sequence[PastRun]) -> None:
    """Print runs, the latest last: when they were, how they ended, what was asked."""
    for run in runs:
        status = paint(f"{run.status:<12}", GREEN if run.status == "done" else YELLOW)
        room = terminal_width() - len(run.run_id) - 14
        click.echo(f"{run.run_id}  {status}{fitted(visible(f'{run.seconds:.1f} s {run.request}'), room)}")
    if not runs:
        click.echo('No runs yet: vade run "…"')


def _print_timeline(run: PastRun) -> None:
    """Print one run step by step."""
    click.echo(paint(visible(f"{run.run_id}  {run.status}  {run.seconds:.1f} s"), BOLD))
    for entry in timeline(run):
        sign, style = _SIGNS[entry.mark]
        click.echo(f"{paint(f'{entry.seconds:7.2f}  {sign} ', style)}{visible(entry.title)}")
        if entry.mark in {"plan", "end", "asked"} and entry.detail:
            for line in entry.detail.splitlines():
                click.echo(f"           {paint(escaped(line.expandtabs(4)), DIM)}")


def run_outputs(run: PastRun) -> list[Output]:
    """Return the output files of a run that still exist and are unchanged."""
    since = run.events[0].time if run.events else 0.0
    listed = [each for event in run.events for each in outputs_of(event, run.place)]
    return list(recorded(listed, since))


def _with_outputs(directory: Path) -> str:
    """Return the latest run with output files, or the latest of all."""
    for run_id in reversed(run_ids(directory)):
        run = _read(directory, run_id)
        if any(outputs_of(event, run.place) for event in run.events):
            return run_id
    return _latest(directory)


def _read(directory: Path, run_id: str) -> PastRun:
    """Return a run; if its record is damaged, return one that contains only the error."""
    try:
        return read_run(directory, run_id)
    except RecordDamaged as error:
        started = Event(1, 0.0, "run_started", {"request": str(error)})
        ended = Event(2, 0.0, "run_finished", {"status": "damaged"})
        return PastRun(run_id, str(directory / run_id), (started, ended))


def _latest(directory: Path) -> str:
    known = run_ids(directory)
    if not known:
        raise RecordDamaged('There are no runs yet. Run: vade run "…".', code="no-run")
    return known[-1]
