"""``vade exec``: one script of a skill, in the sandbox, with its approval and its record."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from vademecum.cli.completing import complete_names, complete_paths, complete_scripts
from vademecum.cli.indexing import IndexWords, as_reference, index_options
from vademecum.cli.output import json_option, print_json, raised, yes_option
from vademecum.cli.permissions import approver_for
from vademecum.errors import Denied
from vademecum.session.base import Result
from vademecum.session.place import Place
from vademecum.session.session import Session
from vademecum.skill.text import escaped
from vademecum.tools.calls import RunScript

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
    place = Place.at(reachable=tuple(_elsewhere((*files, *arguments))))
    session = Session(
        IndexWords(**words).build(),
        place=place,
        origin="user",
        approver=approver_for(
            yes=yes, replay=shlex.join(["vade", "exec", "--yes", *sys.argv[sys.argv.index("exec") + 1 :]])
        ),
    )
    skill = session.activate(as_reference(name))
    record = session.begin(f"exec {skill.name} {script}", model="none", skills=1)
    call = RunScript(skill.skill_id, script, list(arguments), list(files), network=network)
    result = raised(_recorded(session, call))
    if as_json:
        files_kept = {"run_id": record.run_id, "text": result.text, **result.facts, "files": result.files}
        print_json(files_kept)
    else:
        _show(result, record.place)
    return 0 if result.facts["exit_code"] == 0 else 1


def _elsewhere(words: Iterable[str]) -> Iterator[Path]:
    """The directories of files outside the project that the person named: only those files can be read."""
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            if word.startswith("/") and Path(word).is_file():
                yield Path(word).parent


def _recorded(session: Session, call: RunScript) -> Result:
    """Run it, and write down how it ended."""
    status, answer = "interrupted", ""
    try:
        result = session.call(call)
        status = "refused" if result.code == "denied" else "failed" if result.code else "done"
        answer = result.text
    except Denied as error:
        status, answer = "declined", str(error)
        raise
    finally:
        session.finish({"status": status, "stop_reason": "exec", "answer": answer, "stats": {}})
    return result


def _harmless(line: bytes) -> bytes:
    text = line.decode("utf-8", "replace").rstrip("\r\n").expandtabs(8)
    return f"{escaped(text)}\n".encode()


def _show(result: Result, place: Path) -> None:
    """What the script printed, as it printed it, and how it ended."""
    for file, stream in zip(result.files, (sys.stdout, sys.stderr), strict=True):
        stream.flush()
        with open(file, "rb") as data:
            for line in data:
                # A terminal obeys some characters; a file or a program gets what was printed.
                stream.buffer.write(_harmless(line) if stream.isatty() else line)
        stream.flush()
    facts = result.facts
    if facts["exit_code"] != 0 or facts["made"]:
        click.echo(f"vade: {result.text.splitlines()[0]} The record: {place}", err=True)
    if facts["made"]:
        click.echo(f"vade: it made {', '.join(facts['made'])} in {facts['work']}", err=True)
