"""Complete words in a shell: names of skills, their files, runs.

This module is imported with every command, so it imports what it needs only while a word is completed.
A problem on the way yields no words and no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vademecum.registry.index import SkillIndex


def _complete(
    words_of: Callable[[click.Context], Iterable[str]],
    context: click.Context,
    parameter: click.Parameter,
    start: str,
) -> list[CompletionItem]:
    """Return the words that begin with what was typed."""
    from click.shell_completion import CompletionItem

    from vademecum.errors import VademecumError

    given = context.params.get(parameter.name or "")
    done = set(given) if isinstance(given, tuple) else set()
    try:
        words = list(words_of(context))
    except (VademecumError, click.ClickException, OSError):
        return []
    return [CompletionItem(word) for word in words if word.startswith(start) and word not in done]


def _names_names(context: click.Context) -> Iterable[str]:
    return (skill.name for skill in _index(context).for_people())


def complete_scripts(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Complete a script of the skill that was named before, with or without its directory."""
    return (_complete_script_paths if "/" in start else _complete_script_names)(context, parameter, start)


def _names_script_paths(context: click.Context) -> Iterable[str]:
    return _files(context, "scripts")


def _names_script_names(context: click.Context) -> Iterable[str]:
    return (path.removeprefix("scripts/") for path in _files(context, "scripts"))


def _names_assets(context: click.Context) -> Iterable[str]:
    return _files(context)


def _names_runs(_context: click.Context) -> Iterable[str]:
    """Return the runs of this project, the latest first."""
    from vademecum.context import Context
    from vademecum.runs.record import runs_directory
    from vademecum.runs.stored import run_ids

    return reversed(run_ids(runs_directory(Context.current())))


def _names_installed(context: click.Context) -> Iterable[str]:
    """Return the skills in the root that ``--scope`` names."""
    from vademecum.cli.sharing.installing import root_of
    from vademecum.context import Context
    from vademecum.packs.install_root import InstallRoot

    return InstallRoot(root_of(context.params["scope"], Context.current())).names()


def _names_kept(context: click.Context) -> Iterable[str]:
    """Return the skills in the trash of the root that ``--scope`` names."""
    from vademecum.cli.sharing.installing import root_of
    from vademecum.context import Context
    from vademecum.packs.install import kept_names

    return kept_names(root_of(context.params["scope"], Context.current()))


def complete_paths(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Let the shell complete a path."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(start, type="file")]


def _index(context: click.Context) -> SkillIndex:
    """Return the index with the roots that were named before."""
    from vademecum.cli.indexing import IndexWords

    given = {name: context.params.get(name) for name in ("root", "no_default_roots", "lenient")}
    return IndexWords(
        tuple(given["root"] or ()), bool(given["no_default_roots"]), bool(given["lenient"])
    ).look()


def _files(context: click.Context, *tops: str) -> list[str]:
    from vademecum.cli.indexing import as_reference
    from vademecum.skill.assets import list_assets

    # After an option that waits for its value, click has not yet assigned the arguments.
    name = context.params.get("name") or "".join(context.args[:1])
    if not name:
        return []
    skill = _index(context).get(as_reference(name))
    return list_assets(skill, tops) if tops else list_assets(skill)


complete_names = partial(_complete, _names_names)
_complete_script_paths = partial(_complete, _names_script_paths)
_complete_script_names = partial(_complete, _names_script_names)
complete_assets = partial(_complete, _names_assets)
complete_runs = partial(_complete, _names_runs)
complete_installed = partial(_complete, _names_installed)
complete_kept = partial(_complete, _names_kept)
