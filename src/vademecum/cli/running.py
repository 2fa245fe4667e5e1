"""``vade run``: doing what is asked."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import click

from vademecum.agent.agent import Agent
from vademecum.agent.budget import Budget
from vademecum.agent.loop import Outcome
from vademecum.cli.completing import complete_names, complete_paths
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import counted, json_option, print_json, print_text, yes_option
from vademecum.cli.outputs import elsewhere, network_option, out_option, reachable_for, save_outputs, tell
from vademecum.cli.permissions import approver_for, known_agent
from vademecum.cli.progress import Progress
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.policy.engine import Policy, allowing, reaching
from vademecum.skill.text import visible
from vademecum.tools.hosts import host_resources

# What a run that failed before its first turn failed of.
_EXIT_REASONS = {"skill-not-found": 4, "denied": 3}
_EXIT = {"done": 0, "degraded": 1, "failed": 1, "refused": 3, "declined": 3, "interrupted": 130}

model_option = click.option(
    "--model",
    "model",
    metavar="KIND:NAME",
    help="Model to ask, such as openai:NAME or ollama:NAME (default: the configured one, else offline).",
)
agent_option = click.option(
    "--agent", "name", default="default", show_default=True, help="Agent whose permission rules apply."
)
_LIMITS = {
    "max_turns": ("turns", "Most calls of the model in a run."),
    "max_tool_calls": ("tool_calls", "Most calls of tools in a run."),
    "max_script_runs": ("script_runs", "Most scripts in a run."),
    "max_context": ("context_tokens", "Most tokens of one request to the model."),
}


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit a run."""
    for option, (field, words) in reversed(_LIMITS.items()):
        flag = f"--{option.replace('_', '-')}"
        text = f"{words} (default {getattr(Budget(), field):,}, or the configured number)"
        command = click.option(flag, option, type=click.IntRange(1, 10_000_000), metavar="N", help=text)(
            command
        )
    return command


def budget_for(context: Context, words: dict[str, Any]) -> Budget:
    """Take the limits out of the words of a command; what is not given comes from the configuration."""
    given = {field: words.pop(option) for option, (field, _) in _LIMITS.items()}
    configured = asdict(load_config(context).settings.budget)
    return Budget(**configured | {field: value for field, value in given.items() if value is not None})


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
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    shell_complete=complete_paths,
    help="File, directory or glob that the request is about; repeatable.",
)
@out_option
@allow_option
@network_option
@yes_option
@budget_options
@agent_option
@click.option("--quiet", is_flag=True, help="Only the answer.")
@index_options
@json_option
def run_command(  # noqa: PLR0913 - one for each option
    *,
    request: str,
    model: str | None,
    skills: tuple[str, ...],
    files: tuple[str, ...],
    out: str | None,
    allow: tuple[str, ...],
    network: tuple[str, ...],
    yes: bool,
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
    chosen = model_for(context, model)
    progress = Progress(quiet=quiet or as_json)
    budget = budget_for(context, words)
    agent = Agent(
        model=chosen,
        index=IndexWords(**words).build(),
        policy=Policy.load(
            context,
            run=[*allowing(allow), *reaching([each for host in network for each in host_resources(host)])],
        ),
        approver=approver_for(yes=yes, replay=again()),
        reachable=(*elsewhere(files), *reachable_for(out)),
        name=name,
        budget=budget,
        context=context,
        listener=None if quiet or as_json else progress,
    )
    conversation = agent.conversation()
    try:
        outcome = conversation.run(request, skills=skills, files=files)
    finally:
        progress.done()
    saved = save_outputs(conversation.session, outcome.outputs, out)
    if as_json:
        print_json({**outcome.to_json(), "outputs": [each.to_json() for each in saved]})
    else:
        _show(outcome, progress, cost_of(outcome.stats, chosen.name, context), quiet=quiet)
        if not quiet or out is not None:
            tell(saved)
    if outcome.advice:
        click.echo(f"vade: it was refused: {visible(outcome.advice)}.", err=True)
    return _EXIT_REASONS.get(outcome.stop_reason) or _EXIT[outcome.status]


def again() -> str:
    """Return the command that would not need to ask."""
    return shlex.join(["vade", *sys.argv[1:], "--yes"])


def model_for(context: Context, wanted: str | None) -> Model:
    """Return the model that was asked for, or the one of the configuration."""
    settings = load_config(context).settings.model
    same = wanted is None or wanted.partition(":")[0] == settings.provider.partition(":")[0]
    return choose_model(wanted or settings.provider, settings.params if same else {}, context=context)


def cost_of(stats: Mapping[str, Any], model: str, context: Context) -> str:
    """Return what a run cost, if the configuration has a price for its model, else nothing."""
    price = load_config(context).settings.model.prices.get(model)
    if price is None:
        return ""
    cached = stats.get("cached_tokens", 0)
    of_cached = price.input if price.cached is None else price.cached
    total = (stats["input_tokens"] - cached) * price.input + cached * of_cached
    total += stats["output_tokens"] * price.output
    return f"{total / 1_000_000:.4f} {price.currency}"


def _show(outcome: Outcome, progress: Progress, price: str, *, quiet: bool) -> None:
    if progress.printed != outcome.answer:
        print_text(outcome.answer)
    if quiet:
        return
    stats = outcome.stats
    cost = f"{counted(stats['turns'], 'turn')}, {counted(stats['tool_calls'], 'tool call')}"
    cost += f", {stats['seconds']:.1f} s"
    tokens = stats["input_tokens"] + stats["output_tokens"]
    cost += f", {tokens:,} tokens" if tokens else ""
    cost += f", {price}" if price else ""
    click.echo(f"vade: {outcome.status} · {cost} · vade runs show {outcome.run_id}", err=True)
