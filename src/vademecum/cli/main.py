"""The command ``vade``: finds the sub-command, runs it, and turns every outcome into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

import click

from vademecum.cli.groups import Group, usage
from vademecum.cli.output import json_option
from vademecum.errors import (
    CaseRefused,
    CharterRefused,
    ConfigError,
    Denied,
    IntegrityFailed,
    LoadRefused,
    PackRefused,
    RecordDamaged,
    SkillNotFound,
    SkillRefused,
    VademecumError,
)
from vademecum.skill.text import visible
from vademecum.version import VERSION

FOUND_PROBLEMS, WRONG_USE, REFUSED, NOT_FOUND, BROKEN, INTERRUPTED = 1, 2, 3, 4, 5, 130

# Each command's module is imported when the command is used.
_COMMANDS = {
    "chat": "chat",
    "diff": "installing",
    "doctor": "upkeep",
    "eval": "evaluating",
    "exec": "execution",
    "export": "packing",
    "govern": "governing",
    "inspect": "skills",
    "install": "installing",
    "keygen": "packing",
    "link": "linking",
    "list": "skills",
    "lock": "installing",
    "mcp": "mcp",
    "new": "authoring",
    "outdated": "installing",
    "pack": "packing",
    "permissions": "permissions",
    "publish": "packing",
    "refresh": "upkeep",
    "restore": "installing",
    "roots": "upkeep",
    "run": "running",
    "runs": "runs",
    "schema": "finding",
    "search": "finding",
    "show": "finding",
    "sign": "packing",
    "sync": "installing",
    "trust": "permissions",
    "uninstall": "installing",
    "unlink": "linking",
    "update": "installing",
    "validate": "authoring",
    "verify": "installing",
    "verify-pack": "packing",
}
_OTHER_WORDS = {
    "add": "install",
    "create": "new",
    "find": "search",
    "help": "--help",
    "init": "new",
    "lint": "validate",
    "ls": "list",
    "remove": "uninstall",
    "rm": "uninstall",
}


class _LazyGroup(Group):
    other_words = _OTHER_WORDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = import_module(f"vademecum.cli.{_COMMANDS[name]}")
        command: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
        return command


@click.group(
    cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, prog_name="vade", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@json_option
@click.pass_context
def vade(context: click.Context, *, debug: bool, as_json: bool) -> int:  # noqa: ARG001 - `run` looks for debug
    """Find, check, search, run, pack and install Agent Skills (SKILL.md directories).

    Every command takes --json and then prints one JSON document. Shell completion:
    eval "$(_VADE_COMPLETE=bash_source vade)", or zsh_source, or fish_source.
    """
    if context.invoked_subcommand is None:
        from vademecum.cli.greeting import greet

        return greet(as_json=as_json)
    if as_json:
        command = context.invoked_subcommand
        raise click.UsageError(f"--json goes behind the command: vade {command} … --json", context)
    return 0


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code; an error becomes one sentence on standard error."""
    debug = "--debug" in words
    _prepare_streams()
    try:
        outcome = vade.main(args=list(words), prog_name="vade", standalone_mode=False)
    except click.exceptions.Abort:
        return _say("interrupted", INTERRUPTED)
    except click.ClickException as error:
        return _say(usage(error), error.exit_code)
    except SystemExit:
        # click's answer to a closed pipe: whoever read our output has left, and there is nobody to tell.
        return 0
    except VademecumError as error:
        if debug:
            raise
        return _say(_advised(error), _exit_code(error))
    except Exception as error:  # the last line of defence: a person gets a sentence, not a traceback
        if debug:
            raise
        return _say(
            f"unexpected {type(error).__name__}: {error} (run with --debug to see where)", FOUND_PROBLEMS
        )
    return outcome if isinstance(outcome, int) else 0


def _advised(error: VademecumError) -> str:
    """The error's own words, with where to look when it could not guess."""
    if error.advice:
        return error.in_full
    guessed = not isinstance(error, SkillNotFound) or ":" in str(error)
    return str(error) if guessed else f"{error} `vade list` shows all there are."


def _exit_code(error: VademecumError) -> int:
    match error:
        case ConfigError() | SkillRefused():
            return WRONG_USE
        case Denied():
            return REFUSED
        case SkillNotFound() | CharterRefused(code="no-charter"):
            return NOT_FOUND
        case CharterRefused():
            return WRONG_USE
        case LoadRefused(code="missing"):
            return NOT_FOUND
        case PackRefused(code="missing" | "not-installed") | RecordDamaged(code="no-run"):
            return NOT_FOUND
        case CaseRefused(code="no-suite"):
            return NOT_FOUND
        case IntegrityFailed():
            return BROKEN
    return FOUND_PROBLEMS


def _say(sentence: str, code: int) -> int:
    click.echo(f"vade: {visible(sentence)}", err=True)
    return code


def _prepare_streams() -> None:
    """Make any text printable wherever the output goes, also into nothing."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
