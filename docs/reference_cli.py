"""The commands → a page: every command, argument and option, from click itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from docs.reference_words import Say, table
from vademecum.cli.indexing import index_options
from vademecum.cli.main import vade

EXIT_CODES = [
    ("0", "done"),
    ("1", "it ran, and found problems: an invalid skill, a failed evaluation, an agent that gave up"),
    ("2", "the command line or the configuration is wrong"),
    ("3", "refused by a rule, a path that leads out, or approval was needed and nobody was there to ask"),
    ("4", "not found"),
    ("5", "not what was promised: a hash, a signature or the lock does not match"),
    ("130", "interrupted"),
]


def cli_page(say: Say) -> str:
    """The whole page."""
    parts = [
        f"# {say('Commands')}\n",
        say(
            "Every command of `vade`, with its arguments and options. This page is made from the program itself."
        )
        + "\n",
        f"## {say('Exit codes')}\n",
        say("They mean the same for every command.") + "\n",
        table("code | meaning", EXIT_CODES),
        f"## {say('Every command')}\n",
        _options(_everywhere()),
        f"## {say('Options of many commands')}\n",
        say("These choose where skills are looked for; commands that have them say so.") + "\n",
        _options(_shared()),
    ]
    for words, command in _commands(vade, ("vade",)):
        parts += _command(words, command, say)
    return "\n".join(parts)


def _commands(group: click.Group, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = (*before, name)
        if isinstance(command, click.Group):
            yield from _commands(command, words)
        else:
            yield words, command


def _command(words: tuple[str, ...], command: click.Command, say: Say) -> list[str]:
    shared = {option.name: _row(option) for option in _shared()}
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    own = [p for p in shown if shared.get(p.name) != _row(p) and p.name != "as_json"]
    usage = " ".join([*words, *command.collect_usage_pieces(click.Context(command))])
    parts = [f"## {' '.join(words)}\n", f"```text\n{usage}\n```\n", f"{_help(command)}\n"]
    if own:
        parts.append(_options(own))
    if shared.keys() <= {p.name for p in command.params}:
        parts.append(say("It also takes the options that choose where skills are looked for, above.") + "\n")
    elif not own:
        parts.append(say("It takes no arguments and no options of its own.") + "\n")
    return parts


def _help(command: click.Command) -> str:
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return re.sub(r"[<>]", lambda found: "&lt;" if found[0] == "<" else "&gt;", text)


def _options(parameters: list[click.Parameter]) -> str:
    return table("argument or option | default | meaning", [_row(p) for p in parameters])


def _row(parameter: click.Parameter) -> tuple[str, str, str]:
    if isinstance(parameter, click.Argument):
        name = parameter.make_metavar(click.Context(click.Command("x"))).removesuffix("...").strip("[]")
        needed = "required" if parameter.required else "optional"
        return f"`{name}`", "", f"{needed}, repeatable" if parameter.nargs == -1 else needed
    assert isinstance(parameter, click.Option)
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag or parameter.count else f" `{_value(parameter)}`"
    default = parameter.default
    shown = "" if parameter.is_flag or default in (None, (), "") or callable(default) else f"`{default}`"
    shown = shown if "Sentinel" not in shown else ""
    return f"{names}{value}", shown, _meaning(parameter)


def _value(option: click.Option) -> str:
    return option.make_metavar(click.Context(click.Command("x"))).replace("<", "").replace(">", "")


def _meaning(option: click.Option) -> str:
    text = option.help or ""
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    bounds = option.type if isinstance(option.type, click.IntRange) else None
    more = []
    if option.metavar and choices:
        more.append("one of " + ", ".join(f"`{choice}`" for choice in choices))
    if bounds is not None and bounds.min is not None:
        more.append(f"from {bounds.min:,}" + (f" to {bounds.max:,}" if bounds.max is not None else ""))
    if option.multiple and "epeatable" not in text:
        more.append("repeatable")
    if option.required:
        more.append("required")
    joined = "; ".join(more)
    return f"{text} ({joined})" if text and more else text or joined


def _shared() -> list[click.Parameter]:
    @click.command()
    @index_options
    def none(**_: object) -> None: ...

    return list(none.params)


def _everywhere() -> list[click.Parameter]:
    """Return the options that `vade` itself and every command have, each once."""
    own = [parameter for parameter in vade.params if parameter.name != "as_json"]
    shared = [parameter for parameter in vade.params if parameter.name == "as_json"]
    return [*own, *shared, click.Option(["-h", "--help"], is_flag=True, help="Show how it is used.")]
