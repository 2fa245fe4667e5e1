"""Implement ``vade list`` and ``vade inspect``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from vademecum.cli.indexing import SOURCES, IndexWords, index_options, name_argument, source_option
from vademecum.cli.output.printing import MAX_LISTED_FILES, CommandResult, command
from vademecum.cli.output.skill_text import list_lines, skill_lines
from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_capped
from vademecum.skill.frontmatter import body_start
from vademecum.skill.skill import Skill

MAX_BODY_BYTES = 10 * 1024 * 1024


@command("list")
@click.option("--source", type=SOURCES, help="List only skills of this source, including overridden ones.")
@click.option("--all", "hidden_too", is_flag=True, help="Include skills that only models can call.")
@index_options
def list_command(*, source: Any, hidden_too: bool, **words: Any) -> CommandResult:
    """List the skills that you can use here."""
    asked = IndexWords(**words)
    index = asked.build()
    chosen = index.select(source=source) if source else index.skills
    shown = [skill for skill in chosen if hidden_too or skill.controls.user_invocable]
    doctor = f"vade doctor{asked.repeated()}"
    lines = list_lines(
        shown, hidden=len(chosen) - len(shown), left_out=index.report.ignored, doctor=doctor, source=source
    )
    return CommandResult({"skills": shown, "report": index.report, "hash": index.hash}, lines)


@command("inspect")
@name_argument()
@source_option
@click.option("--show-body", is_flag=True, help="Also print the instructions.")
@index_options
def inspect_command(*, name: str, source: str | None, show_body: bool, **words: Any) -> CommandResult:
    """Print the metadata, files and problems of a skill.

    NAME may also be group/name, or the path of a directory. `vade show` prints the instructions.
    """
    index = IndexWords(**words).build()
    skill = index.get(name, source=source)
    conflict = next((each for each in index.report.conflicts if each.name == skill.name), None)
    others = () if conflict is None else conflict.overridden
    winner = conflict if conflict is not None and conflict.path != skill.location else None
    found = {
        **skill.to_json(),
        "files": list(islice(_files(skill), MAX_LISTED_FILES)),
        "shadowed": [other for other in others if other.path != skill.location],
        "overridden_by": winner and {"source": winner.source, "path": winner.path},
    }
    if show_body:
        found["body"] = _body(skill)
    return CommandResult(found, skill_lines(skill, found))


def _files(skill: Skill) -> Iterator[dict[str, Any]]:
    """Yield the files of a skill with their sizes, sorted by name, without reading them."""
    for directory, names, members in os.walk(skill.location):
        names[:] = sorted(name for name in names if name not in {"__pycache__", "node_modules", ".git"})
        for member in sorted(members):
            path = os.path.join(directory, member)
            yield {"path": os.path.relpath(path, skill.location), "size": os.lstat(path).st_size}


def _body(skill: Skill) -> str:
    try:
        data = read_capped(skill.path / skill.file, cap=MAX_BODY_BYTES)
    except (OSError, FileRefused) as error:
        raise VademecumError(f"The body of {skill.name!r} cannot be read ({error}): repair it.") from error
    return data[body_start(data) :].decode("utf-8", "replace")
