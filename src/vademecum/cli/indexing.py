"""The options that say which skills there are, and the index they lead to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import structs

from vademecum.cli.output import ReadingProgress
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.build import build_index
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.roots import Root, default_roots, needs_recovery
from vademecum.skill.text import visible

SOURCES = click.Choice(["project", "user", "builtin", "extra", "package"])

_DIRECTORY = click.Path(file_okay=False)

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class IndexWords:
    """What a person typed about roots and reading."""

    root: tuple[str, ...]
    no_default_roots: bool
    lenient: bool

    def build(self) -> SkillIndex:
        """The index for this place and these words."""
        context, roots, options = self._asked()
        for root in roots:
            if root.source in {"project", "user"} and needs_recovery(Path(root.path)):
                _tidy(Path(root.path))
        progress = ReadingProgress()
        try:
            return build_index(roots, options, context=context, progress=progress)
        finally:
            progress.done()

    def look(self) -> SkillIndex:
        """The same without a word, and without finishing what another command left undone."""
        context, roots, options = self._asked()
        return build_index(roots, options, context=context)

    def _asked(self) -> tuple[Context, list[Root], IndexOptions]:
        if "" in self.root:
            raise click.BadParameter("name a directory", param_hint="--root")
        context = Context.current()
        config = load_config(context)
        options = IndexOptions.of(config.settings, context)
        if self.lenient:
            options = replace(options, reading=structs.replace(options.reading, lenient=True))
        roots = default_roots(context, config, extra=self.root, defaults=not self.no_default_roots)
        return context, roots, options

    def repeated(self) -> str:
        """The same words for another command, e.g. `` --root x``."""
        words = [word for path in self.root for word in ("--root", path)]
        words += ["--no-default-roots"] * self.no_default_roots + ["--lenient"] * self.lenient
        return "".join(f" {shlex.quote(word)}" for word in words)


def _tidy(root: Path) -> None:
    """Finish a change that was cut short and say so, or say why not: a command that only reads goes on."""
    from vademecum.packs.transaction import tidied

    try:
        done = tidied(root)
    except VademecumError as error:
        done = str(error)
    if done:
        click.echo(f"vade: {visible(done)}", err=True)


def as_reference(name: str) -> str:
    """A skill's name as it was typed, or the absolute path where somebody typed a path."""
    return os.path.abspath(name) if name.startswith(("./", "../", "/")) else name


def index_options(command: Command) -> Command:
    """Give a command ``--root``, ``--no-default-roots`` and ``--lenient``."""
    for option in (
        click.option(
            "--lenient", is_flag=True, help="Repair what can be repaired instead of leaving it out."
        ),
        click.option(
            "--no-default-roots", is_flag=True, help="Look only where --root and VADE_SKILL_ROOTS say."
        ),
        click.option(
            "--root",
            multiple=True,
            type=_DIRECTORY,
            metavar="DIR",
            help="Look here too, before all others; repeatable.",
        ),
    ):
        command = option(command)
    return command
