"""``vade exec``: one script of a skill, in the sandbox, with its approval and its record."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from vademecum.cli.completing import complete_names, complete_paths, complete_scripts
from vademecum.cli.indexing import SOURCES, IndexWords, as_reference, index_options
from vademecum.cli.output import counted, json_option, print_json, raised, yes_option
from vademecum.cli.outputs import elsewhere, network_option, out_option, reachable_for, save_outputs, tell
from vademecum.cli.permissions import approver_for
from vademecum.errors import Declined, Denied, VademecumError
from vademecum.runs.record import Event
from vademecum.session.place import Place
from vademecum.session.session import Session
from vademecum.skill.text import escaped, visible
from vademecum.tools.calls import RunScript
from vademecum.tools.inputs import parts_of

# From NAME on everything is an argument, also what looks like an option: it is the script's.
_PIECE_BYTES = 64 * 1024
_PASS_ON = {"allow_interspersed_args": False}


@click.command("exec", context_settings=_PASS_ON)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    shell_complete=complete_paths,
    help="Another file, directory or glob for the script; repeatable.",
)
@click.option(
    "--copy",
    multiple=True,
    metavar="DIR",
    shell_complete=complete_paths,
    help="Directory to copy for the script, so that it can change it; repeatable.",
)
@click.option("--source", type=SOURCES, help="The skill of this source, also when another one overrides it.")
@out_option
@network_option
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
    copy: tuple[str, ...],
    source: str | None,
    out: str | None,
    network: tuple[str, ...],
    yes: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Run a script of a skill in the sandbox, with the files and directories that its arguments name.

    Files are private copies, directories are read-only. Options come before NAME; what follows SCRIPT is the
    script's. Exit code 1: the script's exit code was not 0.
    """
    named = (*files, *copy, *(part for word in arguments for _, part in parts_of(word)))
    printer = Printer()
    session = Session(
        IndexWords(**words).build(),
        place=Place.at(reachable=(*elsewhere(named), *reachable_for(out))),
        origin="user",
        approver=approver_for(
            yes=yes, replay=shlex.join(["vade", "exec", "--yes", *sys.argv[sys.argv.index("exec") + 1 :]])
        ),
        listener=None if as_json else printer,
    )
    skill = session.activate(as_reference(name), source=source or "")
    record = session.begin(f"exec {skill.name} {script}", model="none", skills=1)
    call = RunScript(skill.skill_id, script, list(arguments), list(files), list(copy), list(network))
    summary = {"status": "interrupted", "stop_reason": "exec", "answer": "", "stats": {}}
    with _finished(session, summary):
        result = raised(session.call(call, stdin=None if sys.stdin.isatty() else sys.stdin.fileno()))
        summary |= {"status": "failed" if result.code else "done", "answer": result.text}
        saved = save_outputs(session, result.outputs, out)
    if as_json:
        outputs = [each.to_json() for each in saved]
        print_json(
            {
                "run_id": record.run_id,
                "text": result.text,
                **result.facts,
                "files": result.files,
                "outputs": outputs,
            }
        )
    else:
        printer.finish(result.files)
        if result.facts["exit_code"] != 0:
            click.echo(f"vade: {result.text.splitlines()[0]} The record: {record.place}", err=True)
        if left_out := result.facts.get("left_out"):
            click.echo(f"vade: the rules left {counted(left_out, 'file')} out of the directories", err=True)
        tell(saved)
    failed = any(each.problem for each in saved)
    return 0 if result.facts["exit_code"] == 0 and not failed else 1


@contextlib.contextmanager
def _finished(session: Session, summary: dict[str, Any]) -> Iterator[None]:
    """Write down how it ended, also if something goes wrong."""
    try:
        yield
    except VademecumError as error:
        status = (
            "declined"
            if isinstance(error, Declined)
            else "refused"
            if isinstance(error, Denied)
            else "failed"
        )
        summary |= {"status": status, "answer": str(error)}
        raise
    finally:
        session.finish(summary)


class Printer:
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
        # A terminal obeys some characters; a file or a program gets what was printed.
        target.buffer.write(_harmless(data) if target.isatty() else data)
        target.flush()


def _harmless(data: bytes) -> bytes:
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return "\n".join(escaped(line.expandtabs(8)) for line in lines).encode()
