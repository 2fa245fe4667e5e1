"""Do a task with a model (``vade run``) or run one script (``vade exec``), and save the files they made."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from vademecum.agent.agent import Agent
from vademecum.agent.loop import Outcome
from vademecum.agent.plan import LIMITS, Budget
from vademecum.cli.approving import agent_option, allow_option, approver_for, known_agent
from vademecum.cli.indexing import (
    Command,
    IndexWords,
    complete_names,
    complete_scripts,
    index_options,
    name_argument,
    out_option,
    repeatable,
    source_option,
)
from vademecum.cli.output.printing import (
    CommandResult,
    RunProgress,
    json_option,
    raised,
    tell_of_secrets,
    yes_option,
)
from vademecum.config import LoadedConfig, PriceSettings, load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.models import choose_model
from vademecum.models.base import Model
from vademecum.policy.approval import Consent
from vademecum.policy.engine import Policy, allowing, reaching
from vademecum.runs.record import Event
from vademecum.session.base import Place, Result
from vademecum.session.session import Session
from vademecum.skill.text import counted, escaped_lines, visible
from vademecum.tools.calls import RunScript, SaveOutput
from vademecum.tools.exchange import Output, parts_of

# The exit codes of runs that failed before their first turn, by the reason.
_EXIT_REASONS = {"skill-not-found": 4, "denied": 3}
_PIECE_BYTES = 64 * 1024
MAX_TOLD = 20  # the most saved files that are listed
_EXIT = {"done": 0, "degraded": 1, "failed": 1, "refused": 3, "declined": 3, "interrupted": 130}

# The session checks whether it exists.
_PATH = click.Path(readable=False)

_network_option = click.option(
    "--network",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Host to reach; repeatable. '*' is the whole network, local hosts included.",
)


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
    words: dict[str, Any], *, network: Sequence[str] = (), listener: Callable[[Event], None] | None = None
) -> tuple[Agent, LoadedConfig]:
    """Return the agent for the options of a command line, and the configuration.

    ``words`` contains the ``agent_options`` and the index options. Other limits come from the configuration.
    """
    context = Context.current()
    config = load_config(context)
    model, name, allow, yes = (words.pop(option) for option in ("model", "agent", "allow", "yes"))
    known_agent(config, name)
    rules = allowing(allow)
    if network:
        from vademecum.tools.hosts import host_resource

        rules += reaching([host_resource(host) for host in network])
    chosen = model_for(model, config, context)
    given = {field: words.pop(option) for option, (field, _) in LIMITS.items()}
    configured = asdict(config.settings.budget)
    agent = Agent(
        model=chosen,
        index=IndexWords(**words).build(context, config),
        policy=Policy.load(context, config=config, run=rules),
        approver=approver_for(yes=yes),
        name=name,
        budget=Budget(**configured | {field: value for field, value in given.items() if value is not None}),
        context=context,
        listener=listener,
    )
    return agent, config


@click.command("run")
@click.argument("request")
@repeatable("--skill", "NAME", "Skill to load first", name="skills", shell_complete=complete_names)
@repeatable("--file", "PATH", "File, directory or glob that the request is about", name="files", type=_PATH)
@out_option
@_network_option
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
        raise click.UsageError("The request is empty: say what to do.")
    progress = RunProgress()
    agent, config = agent_for(
        words,
        network=network,
        listener=None if quiet or as_json else progress,
    )
    place = Place.at(agent.context, config=config, reachable=reachable_for(files, out))
    conversation = agent.conversation(place)
    with progress:
        outcome = conversation.run(request, skills=skills, files=files)
    saved = save_outputs(conversation.session, outcome.outputs, out)
    lines = [] if progress.printed == outcome.answer else [escaped_lines(outcome.answer)]
    told = [] if quiet else [_told(outcome, config.settings.model.prices.get(conversation.model.name))]
    if not quiet or out is not None:
        told += told_of(saved)
    CommandResult({**outcome.to_json(), "outputs": saved}, lines, told=told).print(as_json=as_json)
    if outcome.advice:
        click.echo(f"vade: it was refused: {visible(outcome.advice)}.", err=True)
    failed = any(each.problem for each in saved)
    return _EXIT_REASONS.get(outcome.stop_reason) or _EXIT[outcome.status] or int(failed)


def model_for(wanted: str | None, config: LoadedConfig, context: Context) -> Model:
    """Return the model that the user named, or the configured one."""
    settings = config.settings.model
    same = wanted is None or wanted.partition(":")[0] == settings.provider.partition(":")[0]
    return choose_model(wanted or settings.provider, settings.params if same else {}, context=context)


def _cost(stats: Mapping[str, Any], price: PriceSettings) -> str:
    cached = stats.get("cached_tokens", 0)
    of_cached = price.input if price.cached is None else price.cached
    total = (stats["input_tokens"] - cached) * price.input + cached * of_cached
    total += stats["output_tokens"] * price.output
    return f"{total / 1_000_000:.4f} {price.currency}"


def _told(outcome: Outcome, price: PriceSettings | None) -> str:
    """Return how a run ended, and what it used."""
    stats = outcome.stats
    tokens = stats["input_tokens"] + stats["output_tokens"]
    took = [counted(stats["turns"], "turn"), counted(stats["tool_calls"], "tool call")]
    took += [f"{stats['seconds']:.1f} s", f"{tokens:,} tokens" if tokens else ""]
    took += [_cost(stats, price)] if price else []
    return f"vade: {outcome.status} · {', '.join(filter(None, took))} · vade runs show {outcome.run_id}"


# Everything after NAME is an argument, even if it looks like an option: it belongs to the script.
@click.command("exec", context_settings={"allow_interspersed_args": False})
@repeatable("--file", "PATH", "Another file, directory or glob for the script", name="files", type=_PATH)
@repeatable("--copy", "DIR", "Directory to copy, so that the script can change the copy", type=_PATH)
@source_option
@out_option
@_network_option
@yes_option
@index_options
@json_option
@name_argument()
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
        place=Place.at(reachable=reachable_for(named, out)),
        origin="user",
        approver=approver_for(yes=yes, replay=shlex.join(["vade", "exec", "--yes", *typed])),
        listener=None if as_json else printer,
    )
    skill = session.activate(name, source=source or "")
    record = session.begin(f"exec {skill.name} {script}", model="none", skills=1)
    call = RunScript(skill.skill_id, script, list(arguments), list(files), list(copy), list(network))
    summary = {"status": "interrupted", "stop_reason": "exec", "answer": "", "stats": {}}
    with _recorded_end(session, summary):
        result = raised(session.call(call, stdin=None if sys.stdin.isatty() else sys.stdin.fileno()))
        summary |= {"status": "failed" if result.code else "done", "answer": result.text}
        saved = save_outputs(session, result.outputs, out)
    if not as_json:
        printer.finish(result.files)
    about = {"run_id": record.run_id, "text": result.text, **result.facts}
    told = [*_remarks(result, record.place), *told_of(saved)]
    own = {flag for each in click.get_current_context().command.params for flag in each.opts}
    if result.facts["exit_code"] and (passed := next(filter(own.__contains__, arguments), None)):
        told.append(f"vade: {passed} was passed to the script; options of vade come before {skill.name}")
    CommandResult({**about, "files": result.files, "outputs": saved}, (), told=told).print(as_json=as_json)
    failed = any(each.problem for each in saved)
    return 0 if result.facts["exit_code"] == 0 and not failed else 1


def _remarks(result: Result, record: Path) -> Iterator[str]:
    """Yield a failed exit code, refused hosts, and the number of files that the rules left out."""
    if result.facts["exit_code"] != 0:
        yield f"vade: {result.text.splitlines()[0]} The record: {record}"
    for each in (each for each in result.facts.get("network", ()) if each["refused"]):
        yield f"vade: {each['host']}:{each['port']} was not reached: {each['refused']}"
    if beyond := result.facts.get("not_kept"):
        kept = len(result.outputs)
        yield f"vade: {counted(beyond, 'more file')} not kept: the limit is {kept:,}"
    if left_out := result.facts.get("left_out"):
        yield f"vade: the rules left {counted(left_out, 'file')} out of the directories"


@contextlib.contextmanager
def _recorded_end(session: Session, summary: dict[str, Any]) -> Iterator[None]:
    """Record how the script ended, even if it failed."""
    try:
        yield
    except VademecumError as error:
        status = {"declined": "declined", "denied": "refused"}.get(error.code, "failed")
        summary |= {"status": status, "answer": str(error)}
        raise
    finally:
        session.finish(summary)


class ScriptPrinter:
    """Print the output of a script as it arrives, and at the end everything that is not printed yet."""

    def __init__(self) -> None:
        self._printed = {"out": 0, "err": 0}

    def __call__(self, event: Event) -> None:
        """Print a piece of the output, or the progress of installing packages."""
        if event.type == "progress":
            click.echo(f"… {visible(event.data['text'])}", err=True)
        elif event.type == "output_piece":
            self._print(event.data["stream"], event.data["data"])
        elif event.type == "tool_called":
            tell_of_secrets(event)

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
        if target.isatty():  # escape control characters, but only for a terminal
            text = data.decode("utf-8", "replace").replace("\r\n", "\n")
            data = escaped_lines(text.expandtabs(8)).encode()
        target.buffer.write(data)
        target.flush()


@dataclass(frozen=True, slots=True)
class Saved:
    """One output: where it was copied to, or why not."""

    output: Output
    path: str = ""
    problem: str = ""
    replaced: str = ""  # the new path of the file that was there before

    def to_json(self) -> dict[str, Any]:
        """Return the output as ``--json`` prints it."""
        saved = {"saved": self.path} if self.path else {}
        return {**self.output.to_json(), **saved, **({"problem": self.problem} if self.problem else {})}


def reachable_for(words: Iterable[str], out: str | None) -> tuple[Path, ...]:
    """Return the paths outside the working directory that the user names; only these become reachable.

    Create the directory of ``--out`` if it is missing.
    """
    found = []
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            if word.startswith(("/", "../")) and Path(word).exists():
                found.append(Path(os.path.abspath(word)))
    if out is not None and not Path(os.path.abspath(out)).is_relative_to(Path.cwd()):
        Path(out).mkdir(parents=True, exist_ok=True)
        found.append(Path(os.path.abspath(out)))
    return tuple(found)


def save_outputs(session: Session, outputs: Sequence[Output], out: str | None) -> list[Saved]:
    """Copy outputs into a directory under the rules for writing; ``--out`` is the approval.

    Outputs with the same name go to directories that are named by the number of the call.
    """
    if out is None:
        return [Saved(output) for output in outputs]
    names = Counter(output.name for output in outputs)
    saved = []
    for output in outputs:
        name = output.name if names[output.name] == 1 else f"{output.number}/{output.name}"
        call = SaveOutput(output.reference, os.path.join(out, name))
        result = session.call(call, approver=Consent(), origin="user")
        problem = VademecumError(result.text, advice=result.advice).in_full if result.code else ""
        path = "" if problem else str(result.facts["path"])
        replaced = os.path.relpath(result.files[0], session.place.context.cwd) if result.files else ""
        saved.append(Saved(output, path, problem, replaced))
    return saved


def told_of(saved: Sequence[Saved]) -> Iterator[str]:
    """Yield a sentence about each output, problems first; of many files, the first ``MAX_TOLD``."""
    problems = [each for each in saved if each.problem]
    others = [each for each in saved if not each.problem]
    yield from map(_told_of_one, [*problems, *others[:MAX_TOLD]])
    if len(others) > MAX_TOLD:
        yield f"vade: … and {counted(len(others) - MAX_TOLD, 'more file')}"


def _told_of_one(saved: Saved) -> str:
    name, size = saved.output.name, counted(saved.output.bytes, "byte")
    if saved.problem:
        said = f"{name} was not saved: {saved.problem}"
    elif saved.path:
        before = f"; the previous file is now {saved.replaced}" if saved.replaced else ""
        said = f"saved {saved.path} ({size}){before}"
    else:
        said = f"{name} ({size}) is in {os.path.relpath(saved.output.file)}"
    return f"vade: {visible(said)}"
