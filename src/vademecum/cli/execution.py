"""``vade exec``: one script of a skill, in the sandbox, with its approval and its record."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from vademecum.assembly.workbench import tools_of
from vademecum.cli.completing import complete_names, complete_paths, complete_scripts
from vademecum.cli.indexing import IndexWords, as_reference, index_options
from vademecum.cli.output import json_option, print_json, yes_option
from vademecum.cli.permissions import gate_for, project_of
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import Denied, SkillNotFound, VademecumError
from vademecum.masking import Secrets
from vademecum.runs.place import new_run, runs_directory
from vademecum.runs.record import Record
from vademecum.skill.text import escaped
from vademecum.tools.base import Observation
from vademecum.tools.calls import RunScript
from vademecum.tools.runtime import Tools
from vademecum.tools.workspace import Workspace

# From NAME on everything is an argument, also what looks like an option: it is the script's.
_PASS_ON = {"allow_interspersed_args": False}


@click.command("exec", context_settings=_PASS_ON)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    shell_complete=complete_paths,
    help="Let the script read this too; repeatable.",
)
@click.option("--network", is_flag=True, help="Ask for the network as well.")
@yes_option
@index_options
@json_option
@click.argument("name", shell_complete=complete_names)
@click.argument("script", shell_complete=complete_scripts)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_paths)
def exec_command(  # noqa: PLR0913 - one for each option
    *,
    name: str,
    script: str,
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    network: bool,
    yes: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Run a script of a skill in the sandbox. It may read the files that its arguments name, and no others.

    Options come before NAME; what follows SCRIPT is the script's. Exit code 1: the script's was not 0.
    """
    context = Context.current()
    index = IndexWords(**words).build()
    skill = index.get(as_reference(name))
    replay = shlex.join(["vade", "exec", "--yes", *sys.argv[sys.argv.index("exec") + 1 :]])
    gate = gate_for(context, yes=yes, replay=replay)
    place = new_run(runs_directory(context))
    record = Record(place, secrets=Secrets(context.env))
    record.add("run_started", request=f"exec {skill.name} {script}", model="none", agent="default", skills=1)
    named = [word for word in arguments if _is_file(context.cwd, word)]
    call = RunScript(skill.location, script, list(arguments), [*files, *named], network=network)
    # Files elsewhere are the person's to name: they, and nothing beside them, can be read.
    elsewhere = [Path(word) for word in (*files, *named) if word.startswith("/")]
    workspace = Workspace(context.cwd, *(file.parent for file in elsewhere), project=project_of(context))
    execution = load_config(context).settings.execution
    tools = tools_of(
        gate,
        record,
        context=context,
        skill=index.get,
        skill_at=index.at,
        workspace=workspace,
        execution=execution,
        origin="user",
    )
    observation = _recorded(tools, call, record)
    if observation.code in {"denied", "declined"}:
        raise Denied(observation.text)
    if observation.code == "missing":
        raise SkillNotFound(observation.text)
    if not observation.ok and not observation.files:
        raise VademecumError(observation.text, code=observation.code)
    if as_json:
        print_json(_document(observation, place))
    else:
        _show(observation, place)
    return 0 if observation.facts["exit_code"] == 0 else 1


def _is_file(directory: Path, word: str) -> bool:
    try:
        return (directory / word).is_file()
    except (OSError, ValueError):
        return False


def _recorded(tools: Tools, call: RunScript, record: Record) -> Observation:
    """Run it, and write down how it ended."""
    status, answer = "interrupted", ""
    try:
        observation = tools.run(call)
        status = "refused" if observation.code == "denied" else "done" if observation.ok else "failed"
        answer = observation.text
    except Denied as error:
        status, answer = "declined", str(error)
        raise
    finally:
        summary = {"status": status, "stop_reason": "exec", "answer": answer, "stats": {}}
        record.add("run_finished", **summary)
        record.finish({"run_id": record.run_id, **summary}, answer)
    return observation


def _harmless(line: bytes) -> bytes:
    text = line.decode("utf-8", "replace").rstrip("\r\n").expandtabs(8)
    return f"{escaped(text)}\n".encode()


def _document(observation: Observation, place: Path) -> dict[str, Any]:
    return {"run_id": place.name, "text": observation.text, **observation.facts, "files": observation.files}


def _show(observation: Observation, place: Path) -> None:
    """What the script printed, as it printed it, and how it ended."""
    for file, stream in zip(observation.files, (sys.stdout, sys.stderr), strict=True):
        stream.flush()
        with open(file, "rb") as data:
            for line in data:
                # A terminal obeys some characters; a file or a program gets what was printed.
                stream.buffer.write(_harmless(line) if stream.isatty() else line)
        stream.flush()
    facts = observation.facts
    if facts["exit_code"] != 0 or facts["made"]:
        click.echo(f"vade: {observation.text.splitlines()[0]} The record: {place}", err=True)
    if facts["made"]:
        click.echo(f"vade: it made {', '.join(facts['made'])} in {facts['work']}", err=True)
