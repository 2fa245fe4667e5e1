"""``vade run``: doing what is asked."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from vademecum.agent.agent import Agent
from vademecum.agent.budget import Budget
from vademecum.agent.loop import Outcome
from vademecum.cli.completing import complete_names
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import counted, json_option, print_json, print_text, yes_option
from vademecum.cli.permissions import approver_for, known_agent
from vademecum.cli.progress import Progress
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.policy.engine import Policy, allowing
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
    metavar="TOOL[(PATTERN)]",
    help="Approve this tool for this run, such as write_file or 'write_file(reports/*)'; repeatable.",
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
    known_agent(context, name)
    progress = Progress(quiet=quiet or as_json)
    agent = Agent(
        model=model_for(context, model),
        index=IndexWords(**words).build(),
        policy=Policy.load(context, run=allowing(allow)),
        approver=approver_for(yes=yes, replay=again()),
        name=name,
        budget=Budget(turns=max_turns),
        context=context,
        listener=None if quiet or as_json else progress,
    )
    try:
        outcome = agent.run(request, skills=skills)
    finally:
        progress.done()
    if as_json:
        print_json(outcome.to_json())
    else:
        _show(outcome, progress, quiet=quiet)
    if outcome.advice:
        click.echo(f"vade: it was refused: {visible(outcome.advice)}.", err=True)
    return _EXIT_REASONS.get(outcome.stop_reason) or _EXIT[outcome.status]


def again() -> str:
    """Return the command that would not need to ask."""
    return shlex.join(["vade", *sys.argv[1:], "--yes"])


def model_for(context: Context, wanted: str | None) -> Model:
    """The model that was asked for, or the one of the configuration."""
    settings = load_config(context).settings.model
    same = wanted is None or wanted.partition(":")[0] == settings.provider.partition(":")[0]
    return choose_model(wanted or settings.provider, settings.params if same else {})


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
