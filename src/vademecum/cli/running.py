"""Do a task with a model (``vade run``), or run one script of a skill (``vade exec``)."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from vademecum.agent.agent import Agent
from vademecum.agent.loop import Outcome
from vademecum.agent.plan import LIMITS, Budget
from vademecum.cli.approving import agent_option, allow_option, approver_for, known_agent
from vademecum.cli.indexing import Command, IndexWords, as_reference, index_options, repeatable, source_option
from vademecum.cli.output.completion import complete_names, complete_scripts
from vademecum.cli.output.printing import counted, json_option, print_json, print_text, raised, yes_option
from vademecum.cli.output.progress import RunProgress
from vademecum.cli.output.saving import (
    elsewhere,
    network_option,
    out_option,
    reachable_for,
    save_outputs,
    tell,
)
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.models import choose_model
from vademecum.models.base import Model
from vademecum.policy.engine import Policy, allowing, reaching
from vademecum.runs.record import Event
from vademecum.session.base import Place, Result
from vademecum.session.session import Session
from vademecum.skill.text import escaped_lines, visible
from vademecum.tools.calls import RunScript
from vademecum.tools.exchange import parts_of
from vademecum.tools.hosts import host_resource

# What a run that failed before its first turn failed of.
_EXIT_REASONS = {"skill-not-found": 4, "denied": 3}
_PIECE_BYTES = 64 * 1024
_EXIT = {"done": 0, "degraded": 1, "failed": 1, "refused": 3, "declined": 3, "interrupted": 130}

# What is there when the command runs is the business of the session.
_PATH = click.Path(readable=False)


def agent_options(command: Command) -> Command:
    """Give a command the options of an agent and of the limits of its runs."""
    for option, (field, words) in reversed(LIMITS.items()):
        flag = f"--{option.replace('_', '-')}"
        text = f"{words} (default {getattr(Budget(), field):,}, unless configured)."
        command = click.option(flag, option, type=click.IntRange(1), metavar="N", help=text)(command)
    model = click.option(
        "--model",
        metavar="KIND:NAME",
        help="Model to ask, such as openai:NAME or ollama:NAME (default: the configured one, else offline).",
    )
    return model(allow_option(yes_option(agent_option(command))))


def agent_for(
    context: Context,
    words: dict[str, Any],
    *,
    network: Sequence[str] = (),
    reachable: tuple[Path, ...] = (),
    listener: Callable[[Event], None] | None = None,
) -> Agent:
    """Return the agent that the ``agent_options`` among the words of a command describe.

    The other words are those of an index. Limits that are not given come from the configuration.
    """
    model, name, allow, yes = (words.pop(option) for option in ("model", "agent", "allow", "yes"))
    known_agent(context, name)
    chosen = model_for(context, model)
    given = {field: words.pop(option) for option, (field, _) in LIMITS.items()}
    configured = asdict(load_config(context).settings.budget)
    return Agent(
        model=chosen,
        index=IndexWords(**words).build(),
        policy=Policy.load(context, run=[*allowing(allow), *reaching(list(map(host_resource, network)))]),
        approver=approver_for(yes=yes),
        reachable=reachable,
        name=name,
        budget=Budget(**configured | {field: value for field, value in given.items() if value is not None}),
        context=context,
        listener=listener,
    )


@click.command("run")
@click.argument("request")
@repeatable("--skill", "NAME", "Skill to load first", name="skills", shell_complete=complete_names)
@repeatable("--file", "PATH", "File, directory or glob that the request is about", name="files", type=_PATH)
@out_option
@network_option
@agent_options
@click.option("--quiet", is_flag=True, help="Print only the answer.")
@index_options
@json_option
def run_command(  # noqa: PLR0913 - one for each option
    *,
    request: str,
    skills: tuple[str, ...],
    files: tuple[str, ...],
    out: str | None,
    network: tuple[str, ...],
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
    progress = RunProgress()
    agent = agent_for(
        context,
        words,
        network=network,
        reachable=(*elsewhere(files), *reachable_for(out)),
        listener=None if quiet or as_json else progress,
    )
    conversation = agent.conversation()
    try:
        outcome = conversation.run(request, skills=skills, files=files)
    finally:
        progress.done()
    saved = save_outputs(conversation.session, outcome.outputs, out)
    if as_json:
        print_json({**outcome.to_json(), "outputs": saved})
    else:
        _show(outcome, progress, cost_of(outcome.stats, conversation.model.name, context), quiet=quiet)
        if not quiet or out is not None:
            tell(saved)
    if outcome.advice:
        click.echo(f"vade: it was refused: {visible(outcome.advice)}.", err=True)
    return _EXIT_REASONS.get(outcome.stop_reason) or _EXIT[outcome.status]


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


def _show(outcome: Outcome, progress: RunProgress, price: str, *, quiet: bool) -> None:
    if progress.printed != outcome.answer:
        print_text(outcome.answer)
    if quiet:
        return
    stats = outcome.stats
    tokens = stats["input_tokens"] + stats["output_tokens"]
    cost = [counted(stats["turns"], "turn"), counted(stats["tool_calls"], "tool call")]
    cost += [f"{stats['seconds']:.1f} s", f"{tokens:,} tokens" if tokens else "", price]
    told = ", ".join(filter(None, cost))
    click.echo(f"vade: {outcome.status} · {told} · vade runs show {outcome.run_id}", err=True)


# From NAME on everything is an argument, also what looks like an option: it is the script's.
@click.command("exec", context_settings={"allow_interspersed_args": False})
@repeatable("--file", "PATH", "Another file, directory or glob for the script", name="files", type=_PATH)
@repeatable("--copy", "DIR", "Directory to copy for the script, so that it can change it", type=_PATH)
@source_option
@out_option
@network_option
@yes_option
@index_options
@json_option
@click.argument("name", shell_complete=complete_names)
@click.argument("script", shell_complete=complete_scripts)
@click.argument("arguments", nargs=-1, type=_PATH)
def exec_command(  # noqa: PLR0913 - one for each option
    *,
    name: str,
    script: str,
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    copy: tuple[str, ...],
    source: str | None,
    out: str | None,
    network: tuple[str, ...],
    yes: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Run a script of a skill in the sandbox, with the files and directories that its arguments name.

    The script gets copies of files and read-only directories. Options come before NAME; words after SCRIPT
    are passed to the script. Exit code 1: the script's exit code was not 0.
    """
    named = (*files, *copy, *(part for word in arguments for _, part in parts_of(word)))
    printer = ScriptPrinter()
    typed = sys.argv[sys.argv.index("exec") + 1 :]
    session = Session(
        IndexWords(**words).build(),
        place=Place.at(reachable=(*elsewhere(named), *reachable_for(out))),
        origin="user",
        approver=approver_for(yes=yes, replay=shlex.join(["vade", "exec", "--yes", *typed])),
        listener=None if as_json else printer,
    )
    skill = session.activate(as_reference(name), source=source or "")
    record = session.begin(f"exec {skill.name} {script}", model="none", skills=1)
    call = RunScript(skill.skill_id, script, list(arguments), list(files), list(copy), list(network))
    summary = {"status": "interrupted", "stop_reason": "exec", "answer": "", "stats": {}}
    with _recorded_end(session, summary):
        result = raised(session.call(call, stdin=None if sys.stdin.isatty() else sys.stdin.fileno()))
        summary |= {"status": "failed" if result.code else "done", "answer": result.text}
        saved = save_outputs(session, result.outputs, out)
    if as_json:
        about = {"run_id": record.run_id, "text": result.text, **result.facts}
        print_json({**about, "files": result.files, "outputs": saved})
    else:
        printer.finish(result.files)
        _tell_of(result, record.place)
        tell(saved)
    failed = any(each.problem for each in saved)
    return 0 if result.facts["exit_code"] == 0 and not failed else 1


def _tell_of(result: Result, record: Path) -> None:
    """Say on standard error what a script did not do, and what it did not get."""
    if result.facts["exit_code"] != 0:
        click.echo(f"vade: {result.text.splitlines()[0]} The record: {record}", err=True)
    for each in (each for each in result.facts.get("network", ()) if each["refused"]):
        said = f"{each['host']}:{each['port']} was not reached: {each['refused']}"
        click.echo(f"vade: {said}", err=True)
    if left_out := result.facts.get("left_out"):
        click.echo(f"vade: the rules left {counted(left_out, 'file')} out of the directories", err=True)


@contextlib.contextmanager
def _recorded_end(session: Session, summary: dict[str, Any]) -> Iterator[None]:
    """Record how it ended, even if it failed."""
    try:
        yield
    except VademecumError as error:
        status = {"declined": "declined", "denied": "refused"}.get(error.code, "failed")
        summary |= {"status": status, "answer": str(error)}
        raise
    finally:
        session.finish(summary)


class ScriptPrinter:
    """Prints what a script prints, as it comes, and at the end what a slow reader had not taken by then."""

    def __init__(self) -> None:
        self._printed = {"out": 0, "err": 0}

    def __call__(self, event: Event) -> None:
        """Print a piece of the output, or how far the installation of packages is."""
        if event.type == "progress":
            click.echo(f"… {visible(event.data['text'])}", err=True)
        elif event.type == "output_piece":
            self._print(event.data["stream"], event.data["data"])

    def finish(self, files: Sequence[str]) -> None:
        """Print the rest of the two files that contain all of the output."""
        for stream, file in zip(self._printed, files, strict=True):
            with open(file, "rb") as whole:
                whole.seek(self._printed[stream])
                while piece := whole.read(_PIECE_BYTES):
                    self._print(stream, piece)

    def _print(self, stream: str, data: bytes) -> None:
        self._printed[stream] += len(data)
        target = sys.stdout if stream == "out" else sys.stderr
        if target.isatty():  # which obeys some characters; a file or a program gets what was printed
            text = data.decode("utf-8", "replace").replace("\r\n", "\n")
            data = escaped_lines(text.expandtabs(8)).encode()
        target.buffer.write(data)
        target.flush()
