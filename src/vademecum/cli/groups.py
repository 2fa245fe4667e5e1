"""Groups of commands: called by a name that none of them has, they say which one was probably meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from vademecum.nearest import meant, nearest


class Group(click.Group):
    """A group whose error for an unknown command is one sentence with a suggestion."""

    # What other tools call the same: people type it before they have read anything.
    other_words: ClassVar[Mapping[str, str]] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names."""
        name = args[0]
        known = self.list_commands(ctx)
        # A shell that completes words wants no complaint about those that are not finished.
        if ctx.resilient_parsing or name.startswith("-") or name in known:
            return super().resolve_command(ctx, args)
        near = self.other_words.get(name) or nearest(name, known)
        path = ctx.command_path
        hint = meant(near and f"{path} {near}", otherwise=f"'{path} --help' lists the commands.")
        raise click.UsageError(f"There is no command {name!r}: {hint}", ctx)


def usage(error: click.ClickException) -> str:
    """What is wrong with a command line in one line, with where to read how it should have been."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    if isinstance(error, click.NoSuchOption) and context is not None:
        near = nearest(error.option_name, _options(context))
        text = f"No such option {error.option_name!r}: {meant(near, otherwise='')}".rstrip(": ")
    path = context.command_path if context else "vade"
    return text if text.endswith("?") or "--help" in text else f"{text} ({path} --help)"


def _options(context: click.Context) -> list[str]:
    """The long options of a command; a single letter is like any other."""
    parameters = context.command.get_params(context)
    options = [option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)]
    return [option for option in options if option.startswith("--")]
