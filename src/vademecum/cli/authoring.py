"""``vade validate`` and ``vade new``: for those who write skills."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
from rich.console import Console

from vademecum.cli.output import console, counted, json_option, plain, print_json
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.registry.roots import BUILTIN_ROOT
from vademecum.registry.scan import find_documents
from vademecum.skill.model import Reading
from vademecum.skill.scaffold import write_skill
from vademecum.skill.validate import Validation, validate_skill


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--lenient", is_flag=True, help="Count what lenient reading repairs as a warning.")
@json_option
def validate_command(*, paths: tuple[str, ...], lenient: bool, as_json: bool) -> int:
    """Check skills against the whole specification.

    A PATH is a skill's directory, its SKILL.md, or a directory of skills. Exit code 1: a skill is not valid.
    """
    settings = load_config(Context.current()).settings
    reading = Reading(
        lenient=lenient or settings.lenient,
        block_angle_brackets=settings.security.block_angle_brackets_in_frontmatter,
    )
    verdicts = [
        validate_skill(place, reading=reading, max_body_lines=settings.security.max_skill_body_lines)
        for path in paths
        for place in _skills_at(path)
    ]
    if as_json:
        print_json([verdict.to_json() for verdict in verdicts])
    else:
        _print_verdicts(console(), verdicts)
    return 0 if all(verdict.valid for verdict in verdicts) else 1


def _skills_at(path: str) -> list[str]:
    """The skill at a path, or all the skills below it when it is a directory of skills."""
    if os.path.isdir(path):
        settings = load_config(Context.current()).settings.scan
        walk = find_documents(os.path.abspath(path), settings)
        below = [directory for directory, _, _ in walk.documents]
        if below and below != ["."]:
            return [os.path.join(path, directory) for directory in below]
    return [path]


def _print_verdicts(out: Console, verdicts: list[Validation]) -> None:
    for verdict in verdicts:
        mark, style = ("✓", "green") if verdict.valid else ("✗", "red")
        remark = "" if verdict.problems else " valid"
        out.print(plain(f"{mark} {verdict.path}{remark}", style=style), soft_wrap=True)
        for problem in verdict.problems:
            line = f"line {problem.line}: " if problem.line else ""
            style = "red" if problem.severity == "error" else "yellow"
            out.print(
                "  ",
                plain(problem.severity, style=style),
                " ",
                line,
                plain(problem.message),
                sep="",
                soft_wrap=True,
            )
    wrong = sum(not verdict.valid for verdict in verdicts)
    if len(verdicts) > 1:
        out.print(f"{counted(len(verdicts), 'skill')} checked, {wrong:,} not valid")


@click.command("new")
@click.argument("name")
@click.option("--description", help="What it does and when to use it.")
@click.option("--scope", type=click.Choice(["project", "user"]), default="project", show_default=True)
@click.option("--dir", "parent", metavar="DIR", help="Make it below this directory instead.")
@json_option
def new_command(*, name: str, description: str | None, scope: str, parent: str | None, as_json: bool) -> None:
    """Write a new skill that validates, ready to be filled in."""
    context = Context.current()
    place = context.expand(parent) if parent else _skills_directory(context, scope)
    template = (BUILTIN_ROOT / "skill-author/assets/template/SKILL.md").read_text("utf-8")
    made = write_skill(place, name, template=template, description=description)
    verdict = validate_skill(made)
    if as_json:
        print_json({"path": str(made), "name": name, "valid": verdict.valid})
        return
    out = console()
    out.print("Made ", plain(str(made / "SKILL.md"), style="bold"), sep="", soft_wrap=True)
    out.print(
        f"Fill it in, then: vade validate {_shell_word(os.path.relpath(made, context.cwd))}", soft_wrap=True
    )


def _skills_directory(context: Context, scope: str) -> Path:
    places = context.project_directories()
    if scope == "user" or not places:
        return context.home / ".agent" / "skills"
    project = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return project / ".agent" / "skills"


def _shell_word(text: str) -> str:
    return text if text.replace("/", "").replace("-", "").replace(".", "").isalnum() else json.dumps(text)
