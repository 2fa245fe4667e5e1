"""Define the options that select skills, build the index from them, and complete names in a shell.

Most commands import this module, so the functions for completion import what they need themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import structs

from vademecum.cli.output.printing import ProgressBar
from vademecum.config import LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.build import build_index
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.roots import added_sources, default_roots, needs_recovery
from vademecum.skill.text import counted, visible


class _Sources(click.Choice[str]):
    """Accept the sources of skills, and ``mcp:NAME`` for each server that the user added."""

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
_DIRECTORY = click.Path(file_okay=False)
out_option = click.option("--out", type=_DIRECTORY, metavar="DIR", help="Directory to copy output files to.")


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return several options as one decorator."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def repeatable(
    flag: str, metavar: str, words: str, *, name: str = "", **more: Any
) -> Callable[[Command], Command]:
    """Return an option that can be given several times, with ``name`` as its parameter."""
    named = [flag, name] if name else [flag]
    return click.option(*named, multiple=True, metavar=metavar, help=f"{words}; repeatable.", **more)


def model_option(*names: str, **more: Any) -> Callable[[Command], Command]:
    """Return an option that names a model."""
    return click.option(*names, metavar="KIND:NAME", **more)


def html_option(*names: str, **more: Any) -> Callable[[Command], Command]:
    """Return the option that names a page to write."""
    return click.option("--html", *names, "page", type=click.Path(dir_okay=False), metavar="FILE", **more)


_NO_DEFAULTS = "Search only the directories of --root and VADE_SKILL_ROOTS."
index_options = together(
    repeatable("--root", "DIR", "Search this directory too, before all others", type=_DIRECTORY),
    click.option("--no-default-roots", is_flag=True, help=_NO_DEFAULTS),
    click.option("--lenient", is_flag=True, help="Repair invalid documents instead of leaving them out."),
)


@dataclass(frozen=True, slots=True)
class IndexWords:
    """The index options of a command line."""

    root: tuple[str, ...] = ()
    no_default_roots: bool = False
    lenient: bool = False

    def build(
        self,
        context: Context | None = None,
        config: LoadedConfig | None = None,
        *,
        quiet: bool = False,
        noted: bool = False,
    ) -> SkillIndex:
        """Build the index for this directory and these options.

        With ``quiet``, print nothing and do not finish interrupted changes. With ``noted``, the caller
        reports the project settings that have no effect.
        """
        if "" in self.root:
            raise click.BadParameter("name a directory", param_hint="--root")
        context = context or Context.current()
        config = config or load_config(context)
        options = IndexOptions.of(config.settings, context)
        if self.lenient:
            options = replace(options, reading=structs.replace(options.reading, lenient=True))
        roots = default_roots(context, config, extra=self.root, defaults=not self.no_default_roots)
        providers = [] if self.no_default_roots else added_sources(context)
        if quiet:
            return build_index(roots, options, context=context, providers=providers)
        for sentence in () if noted else without_effect(config, context):
            click.echo(f"vade: {visible(sentence)}", err=True)
        for root in roots:
            if root.source in {"project", "user"} and needs_recovery(Path(root.path)):
                _tidy(Path(root.path))
        with ProgressBar("reading skills") as progress:
            return build_index(roots, options, context=context, progress=progress, providers=providers)

    def repeated(self) -> str:
        """Return these options for another command, e.g. `` --root x``."""
        words = [word for path in self.root for word in ("--root", path)]
        words += ["--no-default-roots"] * self.no_default_roots + ["--lenient"] * self.lenient
        return "".join(f" {shlex.quote(word)}" for word in words)


def without_effect(config: LoadedConfig, context: Context) -> list[str]:
    """Return a sentence for each part of the project's configuration that has no effect."""
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
    """Finish an interrupted change and report it; if that fails, only report why."""
    from vademecum.packs.install_root import install_ground
    from vademecum.packs.transaction import tidied

    try:
        done = tidied(install_ground(root))
    except VademecumError as error:
        done = str(error)
    if done:
        click.echo(f"vade: {visible(done)}", err=True)


def scope_option(words: str) -> Callable[[Command], Command]:
    """Return the option that chooses between the project and the home directory."""
    choice = click.Choice(["project", "user"])
    return click.option("--scope", type=choice, default="project", show_default=True, help=words)


def scope_root(scope: str, context: Context) -> Path:
    """Return the root of installed skills of the project, or of the home directory."""
    return (context.home / ".agent" if scope == "user" else context.agent_directory) / "skills"


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def completer(words_of: Callable[[click.Context, str], Iterable[str]]) -> Completer:
    """Return a shell completer for click, from a function that lists the words.

    After an error it returns no words and prints no message.
    """

    def complete(context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
        given = context.params.get(parameter.name or "")
        done = given if isinstance(given, tuple) else ()
        try:
            words = list(words_of(context, start))
        except (VademecumError, click.ClickException, OSError):
            return []
        return [word for word in words if word.startswith(start) and word not in done]

    return complete


@completer
def complete_names(context: click.Context, _start: str) -> Iterable[str]:
    """Complete the name of a skill."""
    return (skill.name for skill in _index(context).for_people())


def name_argument(name: str = "name", **more: Any) -> Callable[[Command], Command]:
    """Return an argument that is a skill's name or path, or several of them."""
    return click.argument(name, shell_complete=complete_names, **more)


@completer
def complete_scripts(context: click.Context, start: str) -> Iterable[str]:
    """Complete a script of the skill named before, with or without its directory."""
    paths = [path for path in _files(context) if path.startswith("scripts/")]
    return paths if "/" in start else (path.removeprefix("scripts/") for path in paths)


@completer
def complete_assets(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a file of the skill named before."""
    return _files(context)


@completer
def complete_runs(_context: click.Context, _start: str) -> Iterable[str]:
    """Complete a run of this project, the latest first."""
    from vademecum.runs.record import runs_directory
    from vademecum.runs.stored import run_ids

    return reversed(run_ids(runs_directory(Context.current())))


def _index(context: click.Context) -> SkillIndex:
    """Return the index with the roots named before."""
    given = context.params
    words = {name: given[name] for name in ("root", "no_default_roots", "lenient") if given.get(name)}
    return IndexWords(**words).build(quiet=True)


def _files(context: click.Context) -> list[str]:
    """Return the files of the skill named before."""
    from vademecum.skill.assets import list_assets

    # While click completes the value of an option, it has not yet assigned the arguments.
    name = context.params.get("name") or "".join(context.args[:1])
    return list_assets(_index(context).get(name)) if name else []
