"""``vade run`` and ``vade runs``: doing what is asked, and looking at what was done."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from vademecum.agent.agent import Agent
from vademecum.agent.budget import Budget
from vademecum.agent.loop import Outcome
from vademecum.cli.completing import complete_names, complete_runs
from vademecum.cli.groups import Group
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import counted, json_option, print_json, print_text, yes_option
from vademecum.cli.permissions import approver_for
from vademecum.cli.progress import Progress
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import RecordDamaged
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.policy.bounds import RISKS
from vademecum.policy.engine import Policy, allowing
from vademecum.runs.reading import PastRun, read_run, run_ids
from vademecum.runs.record import Event, check_place, runs_directory
from vademecum.skill.text import visible

# What a run that failed before its first turn failed of.
_EXIT_REASONS = {"skill-not-found": 4, "denied": 3}
_EXIT = {"done": 0, "degraded": 1, "failed": 1, "refused": 3, "declined": 3, "interrupted": 130}

model_option = click.option(
    "--model", "model", metavar="KIND:NAME", help="offline, openai:NAME, anthropic:NAME, …; else the setting."
)
allow_option = click.option(
    "--allow",
    multiple=True,
    type=click.Choice([*RISKS]),
    metavar="TOOL",
    help="Approve this tool for this run; repeatable.",
)


@click.command("run")
@click.argument("request")
@model_option
@click.option(
    "--skill", "skills", multiple=True, metavar="NAME", shell_complete=complete_names, help="Load it first."
)
@allow_option
@yes_option
@click.option("--max-turns", type=click.IntRange(1, 1000), default=Budget().turns, show_default=True)
@click.option("--agent", "name", default="default", show_default=True, help="Whose rules hold.")
@click.option("--quiet", is_flag=True, help="Only the answer.")
@index_options
@json_option
def run_command(  # noqa: PLR0913 - one for each option
    *,
    request: str,
    model: str | None,
    skills: tuple[str, ...],
    allow: tuple[str, ...],
    yes: bool,
    max_turns: int,
    name: str,
    quiet: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Do what REQUEST asks, with the skill that fits; /name or $name in it calls a skill by name.

    Exit code 0: answered, 1: it gave up, 3: refused, 130: interrupted.
    """
    if not request.strip():
        raise click.UsageError("The request is empty: say what is to be done.")
    context = Context.current()
    progress = Progress(quiet=quiet or as_json)
    agent = Agent(
        model=model_for(context, model),
        index=IndexWords(**words).build(),
        policy=Policy.load(context, run=allowing(allow)),
        approver=approver_for(yes=yes, replay=again()),
        name=name,
        budget=Budget(turns=max_turns),
        context=context,
        listener=progress,
    )
    try:
        outcome = agent.run(request, skills=skills)
    finally:
        progress.done()
    if as_json:
        print_json(outcome.to_json())
    else:
        _show(outcome, progress, quiet=quiet)
    return _EXIT_REASONS.get(outcome.stop_reason) or _EXIT[outcome.status]


def again() -> str:
    """Return the command that would not need to ask."""
    return shlex.join(["vade", *sys.argv[1:], "--yes"])


def model_for(context: Context, wanted: str | None) -> Model:
    """The model that was asked for, or the one of the configuration."""
    settings = load_config(context).settings.model
    return choose_model(wanted or settings.provider, settings.params if wanted is None else {})


def _show(outcome: Outcome, progress: Progress, *, quiet: bool) -> None:
    if progress.printed != outcome.answer:
        print_text(outcome.answer)
    if quiet:
        return
    stats = outcome.stats
    cost = f"{counted(stats['turns'], 'turn')}, {counted(stats['tool_calls'], 'tool call')}"
    cost += f", {stats['seconds']:.1f} s"
    tokens = stats["input_tokens"] + stats["output_tokens"]
    cost += f", {tokens:,} tokens" if tokens else ""
    click.echo(f"vade: {outcome.status} · {cost} · vade runs show {outcome.run_id}", err=True)


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
    done = replay(run, IndexWords(**words).build(), Policy.load(context))
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
