"""Complete words in a shell: names of skills, their files, runs.

This module is imported with every command, so it imports what it needs only while a word is completed.
A problem on the way yields no words and no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vademecum.registry.index import SkillIndex

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completer(words_of: Callable[[click.Context, str], Iterable[str]]) -> Completer:
    """Return what click calls to complete a word, from a function that lists the words."""

    def complete(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from vademecum.errors import VademecumError

        given = context.params.get(parameter.name or "")
        done = given if isinstance(given, tuple) else ()
        try:
            words = list(words_of(context, start))
        except (VademecumError, click.ClickException, OSError):
            return []
        return [CompletionItem(word) for word in words if word.startswith(start) and word not in done]

    return complete


@_completer
def complete_names(context: click.Context, _start: str) -> Iterable[str]:
    """Complete the name of a skill."""
    return (skill.name for skill in _index(context).for_people())


@_completer
def complete_scripts(context: click.Context, start: str) -> Iterable[str]:
    """Complete a script of the skill that was named before, with or without its directory."""
    paths = _files(context, "scripts")
    return paths if "/" in start else (path.removeprefix("scripts/") for path in paths)


@_completer
def complete_assets(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a file of the skill that was named before."""
    return _files(context)


@_completer
def complete_runs(_context: click.Context, _start: str) -> Iterable[str]:
    """Complete a run of this project, the latest first."""
    from vademecum.context import Context
    from vademecum.runs.record import runs_directory
    from vademecum.runs.stored import run_ids

    return reversed(run_ids(runs_directory(Context.current())))


@_completer
def complete_installed(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a skill in the root that ``--scope`` names."""
    from vademecum.cli.indexing import scope_root
    from vademecum.context import Context
    from vademecum.packs.install_root import InstallRoot

    return InstallRoot(scope_root(context.params["scope"], Context.current())).names()


@_completer
def complete_kept(context: click.Context, _start: str) -> Iterable[str]:
    """Complete a skill in the trash of the root that ``--scope`` names."""
    from vademecum.cli.indexing import scope_root
    from vademecum.context import Context
    from vademecum.packs.install import kept_names

    return kept_names(scope_root(context.params["scope"], Context.current()))


def _index(context: click.Context) -> SkillIndex:
    """Return the index with the roots that were named before."""
    from vademecum.cli.indexing import IndexWords

    given = context.params
    words = {name: given[name] for name in ("root", "no_default_roots", "lenient") if given.get(name)}
    return IndexWords(**words).build(quiet=True)


def _files(context: click.Context, *tops: str) -> list[str]:
    """Return the files of the skill that was named before, or only those below its directories ``tops``."""
    from vademecum.cli.indexing import as_reference
    from vademecum.skill.assets import list_assets

    # After an option that waits for its value, click has not yet assigned the arguments.
    name = context.params.get("name") or "".join(context.args[:1])
    if not name:
        return []
    skill = _index(context).get(as_reference(name))
    return list_assets(skill, tops) if tops else list_assets(skill)
