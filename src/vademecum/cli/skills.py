"""``vade list`` and ``vade inspect``: which skills there are, and all about one."""

from __future__ import annotations

import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from vademecum.cli.indexing import SOURCES, IndexWords, index_options
from vademecum.cli.output import console, counted, json_option, plain, print_json, print_table
from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_capped
from vademecum.registry.index import SkillIndex
from vademecum.skill.frontmatter import body_start
from vademecum.skill.skill import Skill

MAX_LISTED_DESCRIPTION = 180
MAX_LISTED_FILES = 1000
MAX_BODY_BYTES = 10 * 1024 * 1024


@click.command("list")
@click.option("--source", type=SOURCES, help="Only skills of this source, overridden ones included.")
@click.option("--all", "hidden_too", is_flag=True, help="Also skills that are not meant for people.")
@index_options
@json_option
def list_command(*, source: Any, hidden_too: bool, as_json: bool, **words: Any) -> None:
    """List the skills that can be used here."""
    index = IndexWords(**words).build()
    chosen = index.select(source=source) if source else index.skills
    shown = [skill for skill in chosen if hidden_too or skill.controls.user_invocable]
    if as_json:
        skills = [skill.to_json() for skill in shown]
        print_json({"skills": skills, "report": index.report.to_json(), "hash": index.hash})
        return
    _print_list(console(), index, shown, hidden=len(chosen) - len(shown))


def _print_list(out: Console, index: SkillIndex, skills: list[Skill], *, hidden: int) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for skill in skills:
        table.add_row(
            plain(skill.name, style="bold cyan"),
            plain(skill.source, style="dim"),
            plain(skill.description, most=MAX_LISTED_DESCRIPTION),
        )
    if skills:
        print_table(out, table)
        out.print()
    out.print(f"{counted(len(skills), 'skill')}{_hidden_note(hidden)}")
    if not skills:
        out.print("Put one in .agent/skills/, or write one: vade new my-skill")
    if left_out := len(index.report.ignored):
        was = "was" if left_out == 1 else "were"
        out.print(f"{counted(left_out, 'skill')} {was} left out: vade doctor", style="yellow")


def _hidden_note(hidden: int) -> str:
    return f" ({hidden:,} not meant for people: vade list --all)" if hidden else ""


@click.command("inspect")
@click.argument("name")
@click.option("--source", type=SOURCES, help="The skill of this source, also when another one overrides it.")
@click.option("--show-body", is_flag=True, help="Also the instructions themselves.")
@index_options
@json_option
def inspect_command(*, name: str, source: str | None, show_body: bool, as_json: bool, **words: Any) -> None:
    """Show all about one skill. NAME may be group/name."""
    index = IndexWords(**words).build()
    skill = index.get(name, source=source)
    found = {**skill.to_json(), "files": _files(skill), "shadowed": _shadowed(index, skill)}
    if show_body:
        found["body"] = _body(skill)
    if as_json:
        print_json(found)
    else:
        _print_skill(console(), skill, found)


def _files(skill: Skill) -> list[dict[str, Any]]:
    """The files of a skill with their sizes, by name; none of them is read."""
    files: list[dict[str, Any]] = []
    for directory, names, members in os.walk(skill.location):
        names[:] = sorted(name for name in names if name not in {"__pycache__", "node_modules", ".git"})
        for member in sorted(members):
            path = os.path.join(directory, member)
            size = os.lstat(path).st_size
            files.append({"path": os.path.relpath(path, skill.location), "size": size})
            if len(files) == MAX_LISTED_FILES:
                return files
    return files


def _shadowed(index: SkillIndex, skill: Skill) -> list[dict[str, Any]]:
    """The namesakes, whichever of them was asked for."""
    for conflict in index.report.conflicts:
        if conflict.name == skill.name:
            return [other.to_json() for other in conflict.overridden]
    return []


def _body(skill: Skill) -> str:
    path = skill.path / skill.file
    try:
        data = read_capped(path, cap=MAX_BODY_BYTES)
    except (OSError, FileRefused) as error:
        raise VademecumError(
            f"The body of {skill.name!r} cannot be read ({error}): repair the file."
        ) from error
    return data[body_start(data) :].decode("utf-8", "replace")


def _print_skill(out: Console, skill: Skill, found: dict[str, Any]) -> None:
    out.print(plain(skill.name, style="bold cyan"), plain(skill.skill_id, style="dim"))
    out.print(plain(skill.description))
    out.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for label, text in _facts(skill, found):
        table.add_row(label, plain(text))
    print_table(out, table)
    if "body" in found:
        out.print()
        for line in found["body"].splitlines():
            out.print(plain(line) if line.strip() != line or not line.isprintable() else line, soft_wrap=True)


def _facts(skill: Skill, found: dict[str, Any]) -> list[tuple[str, str]]:
    meta, controls = skill.meta, skill.controls
    tools = "no bound" if controls.allowed_tools is None else " ".join(controls.allowed_tools) or "none"
    facts = [
        ("path", skill.location),
        ("version", meta.version),
        ("author", meta.author),
        ("license", meta.license),
        ("needs", meta.compatibility),
        ("metadata", ", ".join(f"{key}={value}" for key, value in meta.metadata.items())),
        ("tools", tools),
        ("models", "may not choose it" if controls.disable_model_invocation else "may choose it"),
        ("people", "may call it" if controls.user_invocable else "do not see it"),
        ("runs", "in a child agent" if controls.run_mode == "subagent" else "in the conversation"),
        *(("file", f"{file['path']} ({file['size']:,} bytes)") for file in found["files"]),
        *(("overrides", f"{other['path']} ({other['reason']})") for other in found["shadowed"]),
        *(("remark", problem.message) for problem in skill.diagnostics),
    ]
    return [(label, text) for label, text in facts if text]
