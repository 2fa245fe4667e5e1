"""What a shell offers when somebody presses Tab: skills, their files, runs.

Nobody asked for anything yet, so whatever goes wrong is passed over, and nothing is put in order on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import click
from click.shell_completion import CompletionItem

from vademecum.cli.indexing import IndexWords, as_reference
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.index import SkillIndex
from vademecum.runs.reading import run_ids
from vademecum.runs.record import runs_directory
from vademecum.skill.assets import list_assets


def _complete(
    words_of: Callable[[click.Context], Iterable[str]],
    context: click.Context,
    parameter: click.Parameter,
    start: str,
) -> list[CompletionItem]:
    """Offer those of the words that begin as what was typed; nothing if they cannot be found out."""
    given = context.params.get(parameter.name or "")
    done = set(given) if isinstance(given, tuple) else set()
    try:
        words = list(words_of(context))
    except (VademecumError, click.ClickException, OSError):
        return []
    return [CompletionItem(word) for word in words if word.startswith(start) and word not in done]


def _names_names(context: click.Context) -> Iterable[str]:
    """The names of the skills that can be used here."""
    return (skill.name for skill in _index(context).for_people())


def complete_scripts(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """The scripts of the skill that was named before, with their directory for those who began with it."""
    return (_complete_script_paths if "/" in start else _complete_script_names)(context, parameter, start)


def _names_script_paths(context: click.Context) -> Iterable[str]:
    return _files(context, "scripts")


def _names_script_names(context: click.Context) -> Iterable[str]:
    return (path.removeprefix("scripts/") for path in _files(context, "scripts"))


def _names_assets(context: click.Context) -> Iterable[str]:
    """The files of the skill that was named before."""
    return _files(context)


def _names_runs(_context: click.Context) -> Iterable[str]:
    """The runs of this project, the latest first."""
    return reversed(run_ids(runs_directory(Context.current())))


def _names_installed(context: click.Context) -> Iterable[str]:
    """The skills in the root that ``--scope`` means."""
    from vademecum.cli.installing import root_of
    from vademecum.packs.shelf import Shelf

    return Shelf(root_of(context.params["scope"], Context.current())).names()


def _names_kept(context: click.Context) -> Iterable[str]:
    """The skills of which something is in the trash of that root."""
    from vademecum.cli.installing import root_of
    from vademecum.packs.install import kept_names

    return kept_names(root_of(context.params["scope"], Context.current()))


def complete_paths(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Whatever file the shell finds."""
    return [CompletionItem(start, type="file")]


def _index(context: click.Context) -> SkillIndex:
    """The index with the roots that were named before."""
    given = {name: context.params.get(name) for name in ("root", "no_default_roots", "lenient")}
    return IndexWords(
        tuple(given["root"] or ()), bool(given["no_default_roots"]), bool(given["lenient"])
    ).look()


def _files(context: click.Context, *tops: str) -> list[str]:
    # Behind an option that waits for its value, click has not yet said which argument is which.
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
