"""List the commands of a group without cutting lines, and suggest a command for an unknown word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from vademecum.nearest import meant, nearest

MAX_SUMMARY_CHARS = 300


class Group(click.Group):
    """A group of commands whose help cuts no line and whose errors suggest a command."""

    # The names that other tools use for our commands.
    other_words: ClassVar[Mapping[str, str]] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; raise a usage error for an unknown word."""
        name = args[0]
        known = self.list_commands(ctx)
        # While a shell completes a word, an unfinished word is not an error.
        if ctx.resilient_parsing or name.startswith("-") or name in known:
            return super().resolve_command(ctx, args)
        near = self.other_words.get(name) or nearest(name, known)
        path = ctx.command_path
        hint = meant(near and f"{path} {near}", otherwise=f"'{path} --help' lists the commands.")
        raise click.UsageError(f"There is no command {name!r}: {hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one entry for each command; click itself cuts what does not fit on a line."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(MAX_SUMMARY_CHARS)) for name, command in found if command]
            )


def group(name: str, words: str) -> Group:
    """Return a group of commands, with its help; without a command it prints that."""

    @click.pass_context
    def print_help(context: click.Context) -> None:
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    return Group(name, callback=print_help, invoke_without_command=True, help=words)


def usage(error: click.ClickException) -> str:
    """Return what is wrong with a command line in one line, with the help that explains it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        near = next(iter(error.possibilities or ()), None)
        text = f"No such option {error.option_name!r}: {meant(near, otherwise='')}".rstrip(": ")
    path = context.command_path if context else "vade"
    return text if text.endswith("?") or "--help" in text else f"{text} ({path} --help)"
