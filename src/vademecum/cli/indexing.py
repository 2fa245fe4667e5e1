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

from vademecum.cli.output.printing import counted
from vademecum.cli.output.progress import ProgressBar
from vademecum.config import LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.build import build_index
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.roots import added_sources, default_roots, needs_recovery
from vademecum.skill.text import visible


class _Sources(click.Choice[str]):
    """The sources of skills, and ``mcp:NAME`` for each server that the user added."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = self.choices
        if str(value).startswith("mcp:"):
            known = (*known, *(f"mcp:{source.name}" for source in added_sources(Context.current())))
        return str(click.Choice(known).convert(value, param, ctx))


SOURCES = _Sources(["project", "user", "builtin", "extra", "package"])

Command = TypeVar("Command", bound=Callable[..., Any])


source_option = click.option(
    "--source", type=SOURCES, help="Source of the skill, even if another source overrides it."
)


def index_options(command: Command) -> Command:
    """Give a command ``--root``, ``--no-default-roots`` and ``--lenient``."""
    for option in (
        click.option("--lenient", is_flag=True, help="Repair invalid documents instead of leaving them out."),
        click.option(
            "--no-default-roots",
            is_flag=True,
            help="Search only the directories of --root and VADE_SKILL_ROOTS.",
        ),
        repeatable(
            "--root", "DIR", "Search this directory too, before all others", type=click.Path(file_okay=False)
        ),
    ):
        command = option(command)
    return command


def repeatable(
    flag: str, metavar: str, words: str, *, name: str = "", **more: Any
) -> Callable[[Command], Command]:
    """Return an option that can be given several times, with ``name`` as its parameter."""
    named = [flag, name] if name else [flag]
    return click.option(*named, multiple=True, metavar=metavar, help=f"{words}; repeatable.", **more)


@dataclass(frozen=True, slots=True)
class IndexWords:
    """The options about roots and reading that were typed."""

    root: tuple[str, ...] = ()
    no_default_roots: bool = False
    lenient: bool = False

    def build(self, *, quiet: bool = False) -> SkillIndex:
        """Build the index for this place and these options.

        With ``quiet``, nothing is printed, and what another command left undone is not finished.
        """
        if "" in self.root:
            raise click.BadParameter("name a directory", param_hint="--root")
        context = Context.current()
        config = load_config(context)
        options = IndexOptions.of(config.settings, context)
        if self.lenient:
            options = replace(options, reading=structs.replace(options.reading, lenient=True))
        roots = default_roots(context, config, extra=self.root, defaults=not self.no_default_roots)
        providers = [] if self.no_default_roots else added_sources(context)
        if quiet:
            return build_index(roots, options, context=context, providers=providers)
        for sentence in without_effect(config, context):
            click.echo(f"vade: {visible(sentence)}", err=True)
        for root in roots:
            if root.source in {"project", "user"} and needs_recovery(Path(root.path)):
                _tidy(Path(root.path))
        progress = ProgressBar("reading skills")
        try:
            return build_index(roots, options, context=context, progress=progress, providers=providers)
        finally:
            progress.done()

    def repeated(self) -> str:
        """Return these options for another command, e.g. `` --root x``."""
        words = [word for path in self.root for word in ("--root", path)]
        words += ["--no-default-roots"] * self.no_default_roots + ["--lenient"] * self.lenient
        return "".join(f" {shlex.quote(word)}" for word in words)


def without_effect(config: LoadedConfig, context: Context) -> list[str]:
    """Return what of the project's configuration has no effect, a sentence each."""
    file = config.project_file
    sentences = []
    if config.without_effect:
        keys = ", ".join(config.without_effect)
        sentences.append(f"{file} has no effect on {keys}: only ~/.agent/config.json can set or raise it.")
    if file is not None and config.loosening:
        from vademecum.policy.grants import Trust, grants_file

        if not Trust(grants_file(context)).holds(file):
            text = f"{file} has {counted(len(config.loosening), 'rule')} that would allow something"
            sentences.append(f"{text}, and is not trusted: read it, then run vade trust.")
    return sentences


def _tidy(root: Path) -> None:
    """Finish a change that was cut short and say so, or say why not: a command that only reads goes on."""
    from vademecum.packs.install_root import install_ground
    from vademecum.packs.transaction import tidied

    try:
        done = tidied(install_ground(root))
    except VademecumError as error:
        done = str(error)
    if done:
        click.echo(f"vade: {visible(done)}", err=True)


def as_reference(name: str) -> str:
    """Return a skill's name as it was typed, or the absolute path if it is a path."""
    return os.path.abspath(name) if name.startswith(("./", "../", "/")) else name


def scope_root(scope: str, context: Context) -> Path:
    """Return the root of installed skills of the project, or of the home directory."""
    if scope == "user":
        return context.home / ".agent" / "skills"
    places = context.project_directories() or [context.cwd]
    nearest = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return nearest / ".agent" / "skills"
