"""Define the command ``vade``, find its subcommands, and turn every outcome into an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

import click

from vademecum import errors
from vademecum.cli.output.printing import CommandResult, command, json_option
from vademecum.errors import VademecumError
from vademecum.nearest import meant, nearest
from vademecum.skill.text import visible
from vademecum.version import VERSION

FOUND_PROBLEMS, WRONG_USE, REFUSED, NOT_FOUND, BROKEN, INTERRUPTED = 1, 2, 3, 4, 5, 130

# Every command by its group in the help, with its module and its summary. The summaries are here and not in
# the modules, so that printing the help imports none of them.
_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Skills": {
        "list": ("listing", "List the skills that you can use here."),
        "search": ("finding", "Find the skills that fit a request."),
        "show": ("finding", "Print the instructions of a skill, as a model gets them."),
        "inspect": ("listing", "Print the metadata, files and problems of a skill."),
        "new": ("authoring", "Create a skill from a template."),
        "validate": ("authoring", "Check skills against the specification."),
    },
    "Run": {
        "run": ("running", "Do a task with the skill that fits."),
        "chat": ("chat", "Do several tasks in one conversation."),
        "exec": ("running", "Run one script of a skill in the sandbox."),
        "runs": ("runs", "List, show, replay or delete past runs."),
        "mcp": ("mcp", "Serve skills to an MCP client, such as Claude Code."),
        "schema": ("finding", "Print the tool schemas for OpenAI, Anthropic or MCP."),
    },
    "Share": {
        "install": ("sharing.installing", "Install skills from a directory, pack, site or Git."),
        "uninstall": ("sharing.installing", "Remove installed skills."),
        "restore": ("sharing.installing", "Undo the last uninstall or update of a skill."),
        "update": ("sharing.installing", "Install the newer versions of skills."),
        "diff": ("sharing.installing", "Print the local edits of an installed skill."),
        "lock": ("sharing.installing", "Write the lock file from the installed skills."),
        "sync": ("sharing.installing", "Install exactly what the lock file names."),
        "verify": ("sharing.installing", "Compare installed skills with the lock file."),
        "pack": ("sharing.zipping", "Zip skill directories into a pack."),
        "export": ("sharing.zipping", "Zip skills by name, wherever they are found."),
        "verify-pack": ("sharing.zipping", "Check a pack file before you install it."),
        "keygen": ("sharing.zipping", "Create a key pair for signing."),
        "sign": ("sharing.zipping", "Sign a skill or a pack."),
        "publish": ("sharing.zipping", "Write a site that others install from."),
        "link": ("sharing.linking", "Link skills into the directory of another agent."),
        "unlink": ("sharing.linking", "Remove what `vade link` created."),
    },
    "Measure": {
        "eval": ("eval.suites", "Run test cases for skills and compare the results."),
    },
    "Govern": {
        "permissions": ("permissions", "Explain the rules, list and revoke answers."),
        "trust": ("permissions", "Accept the `allow` rules of this project."),
        "govern": ("governing", "Check and simulate charters for many agents."),
    },
    "Set up": {
        "doctor": ("doctor", "Find problems in this installation and project."),
        "source": ("mcp", "Use the skills of an MCP server."),
        "roots": ("doctor", "List the directories that are searched for skills."),
        "refresh": ("doctor", "Rebuild the index cache."),
        "secrets": ("secrets", "Store secrets for skills and models."),
        "help": ("main", "Print the help of a command: vade help run."),
    },
}
_MODULES = {name: module for group in _GROUPS.values() for name, (module, _) in group.items()}
# The names that other tools use for our commands.
_OTHER_WORDS = {
    "add": "install",
    "create": "new",
    "find": "search",
    "init": "new",
    "lint": "validate",
    "ls": "list",
    "outdated": "update",
    "remove": "uninstall",
    "rm": "uninstall",
}


class Group(click.Group):
    """A group of commands whose errors suggest a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; raise a usage error for an unknown word."""
        name = args[0]
        known = self.list_commands(ctx)
        # While a shell completes a word, an unfinished word is not an error.
        if ctx.resilient_parsing or name.startswith("-") or name in known:
            return super().resolve_command(ctx, args)
        other = _OTHER_WORDS.get(name)
        near = other if other in known else nearest(name, known)
        path = ctx.command_path
        hint = meant(near and f"{path} {near}", otherwise=f"'{path} --help' lists the commands.")
        raise click.UsageError(f"There is no command {name!r}: {hint}", ctx)


def group(name: str, words: str) -> Group:
    """Return a group of commands that prints its help if no command is given."""

    @click.pass_context
    def print_help(context: click.Context) -> None:
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    return Group(name, callback=print_help, invoke_without_command=True, help=words)


class _LazyGroup(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        module = import_module(f"vademecum.cli.{_MODULES[name]}")
        command: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _MODULES))
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])


@click.group(
    cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, prog_name="vade", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@json_option
@click.pass_context
def vade(context: click.Context, *, debug: bool, as_json: bool) -> None:  # noqa: ARG001 - `run` looks for debug
    """Find, run, share and measure Agent Skills (directories with a SKILL.md).

    Every command but chat takes --json and then prints one JSON document. Shell completion:
    eval "$(_VADE_COMPLETE=bash_source vade)", or zsh_source, or fish_source.
    """
    command = context.invoked_subcommand
    if command is None:
        CommandResult({"help": context.get_help()}, [context.get_help()]).print(as_json=as_json)
    elif as_json:
        raise click.UsageError(f"--json comes after the command: vade {command} … --json", context)


@command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
def help_command(*, words: tuple[str, ...]) -> CommandResult:
    """Print the help of a command, such as: vade help run."""
    context = click.Context(vade, info_name="vade", **vade.context_settings)
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{context.command_path} has no command {word!r}.", context)
        name, command, _ = group.resolve_command(context, [word])
        assert command is not None  # an unknown word raised a usage error
        context = click.Context(command, info_name=name, parent=context)
    return CommandResult({"help": context.get_help()}, [context.get_help()])


def main() -> None:
    """Run the command line of this process and exit."""
    # Looking for cycles takes 5 ms of a start, and most commands end before it is worth it.
    gc.set_threshold(100_000)
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
        return _say(_usage(error), error.exit_code)
    except SystemExit:
        # click ends this way when the pipe that reads our output was closed: there is nothing left to report.
        return 0
    except Exception as error:  # a person gets a sentence, not a traceback
        if debug:
            raise
        if isinstance(error, VademecumError):
            return _say(_advised(error), _exit_code(error))
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            where = f" for {error.filename}" if error.filename else ""
            return _say(f"There is no space left on the disk{where}: make room there.", FOUND_PROBLEMS)
        text = f"unexpected {type(error).__name__}: {error} (vade --debug {words[0]} … shows where)"
        return _say(text, FOUND_PROBLEMS)
    return outcome if isinstance(outcome, int) else 0


def _usage(error: click.ClickException) -> str:
    """Return a usage error on one line, with the command that prints the help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        # Without the dashes, which all options share.
        known = [name.lstrip("-") for name in error.possibilities or ()]
        near = nearest(error.option_name.lstrip("-"), known)
        text = f"No such option {error.option_name!r}" + (f": did you mean '--{near}'?" if near else "")
    path = context.command_path if context else "vade"
    return text if text.endswith("?") or "--help" in text else f"{text} ({path} --help)"


def _advised(error: VademecumError) -> str:
    """Return the text of an error, with advice on where to look if it has none."""
    guessed = not isinstance(error, errors.SkillNotFound) or ":" in str(error)
    return error.in_full if error.advice or guessed else f"{error} `vade list` lists the skills."


_NOT_FOUND = {"missing", "no-charter", "no-run", "no-section", "no-source", "no-suite", "not-installed"}


def _exit_code(error: VademecumError) -> int:
    match error:
        case errors.Denied() | errors.PathRefused():
            return REFUSED
        case errors.IntegrityFailed():
            return BROKEN
    if isinstance(error, errors.SkillNotFound) or error.code in _NOT_FOUND:
        return NOT_FOUND
    wrong = isinstance(error, errors.ConfigError | errors.SkillRefused | errors.CharterRefused)
    return WRONG_USE if wrong or error.code == "url" else FOUND_PROBLEMS


def _say(sentence: str, code: int) -> int:
    click.echo(f"vade: {visible(sentence)}", err=True)
    return code


def _prepare_streams() -> None:
    """Make any text printable on the standard streams, also if they are closed."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
