"""Implement ``vade validate`` and ``vade new``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from vademecum.cli.output.printing import counted, json_option, paint, print_json
from vademecum.cli.output.skill_text import MARKS, print_problem
from vademecum.config import LoadedConfig, ScanSettings, load_config
from vademecum.context import Context
from vademecum.errors import SkillRefused
from vademecum.registry.build import build_index
from vademecum.registry.roots import BUILTIN_ROOT, default_roots
from vademecum.registry.scan import Walk
from vademecum.skill.scaffold import checked_name, write_skill
from vademecum.skill.skill import Reading
from vademecum.skill.text import visible
from vademecum.skill.validate import Validation, validate_skill


@click.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option(
    "--lenient", is_flag=True, help="Report what lenient reading repairs as a warning, not an error."
)
@json_option
def validate_command(*, paths: tuple[str, ...], lenient: bool, as_json: bool) -> int:
    """Check skills against the specification.

    PATH is the directory of a skill, its SKILL.md, or a directory of skills (default: the skills of this
    project). Exit code 1: a skill is not valid.
    """
    context = Context.current()
    config = load_config(context)
    settings = config.settings
    paths = paths or _project_roots(context, config)
    reading = Reading(
        lenient=lenient or settings.lenient,
        block_angle_brackets=settings.security.block_angle_brackets_in_frontmatter,
    )
    verdicts: list[Validation] = []
    for path in paths:
        places, unreachable = _skills_at(path, settings.scan)
        lines = settings.security.max_skill_body_lines
        verdicts += [validate_skill(place, reading=reading, max_body_lines=lines) for place in places]
        verdicts += unreachable
    if as_json:
        print_json([verdict.to_json() for verdict in verdicts])
    else:
        _print_verdicts(verdicts)
    return 0 if all(verdict.valid for verdict in verdicts) else 1


def _print_verdicts(verdicts: list[Validation]) -> None:
    """Print each skill with its problems, errors first."""
    for verdict in verdicts:
        mark, style = MARKS["ok" if verdict.valid else "problem"]
        remark = "" if verdict.problems else " valid"
        click.echo(paint(visible(f"{mark} {verdict.path}{remark}"), style))
        for problem in verdict.problems:
            print_problem(problem, with_severity=True)
    wrong = sum(not verdict.valid for verdict in verdicts)
    if len(verdicts) > 1:
        click.echo(f"{counted(len(verdicts), 'skill')} checked, {wrong:,} not valid")


def _project_roots(context: Context, config: LoadedConfig) -> tuple[str, ...]:
    found = [str(root.path) for root in default_roots(context, config) if root.source == "project"]
    existing = tuple(path for path in found if os.path.isdir(path))
    if not existing:
        raise click.UsageError("There are no skills in this project: name a PATH.")
    return existing


def _skills_at(path: str, settings: ScanSettings) -> tuple[list[str], list[Validation]]:
    """Return the skill at a path or all skills below it, and a verdict on each that cannot be read."""
    if os.path.isdir(f"{path}/.agent/skills") and not os.path.lexists(f"{path}/SKILL.md"):
        path = f"{path}/.agent/skills"  # the path is that of a project
    walk = Walk(os.path.abspath(path), settings) if os.path.isdir(path) else None
    below = [directory for directory, _, _ in walk.documents] if walk else []
    if walk is None or below == ["."] or not (below or walk.obstacles):
        return [path], []
    unreachable = [Validation(place, None, None, (problem,)) for place, problem in walk.obstacles]
    return [os.path.join(path, directory) for directory in below], unreachable


@click.command("new")
@click.argument("name", required=False)
@click.option("--description", help="What the skill does and when to use it.")
@click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    default="project",
    help="The .agent/skills of the project or of your home directory (default: project).",
)
@click.option(
    "--dir", "parent", type=click.Path(file_okay=False), help="Parent directory, instead of --scope."
)
@json_option
def new_command(
    *, name: str | None, description: str | None, scope: str, parent: str | None, as_json: bool
) -> None:
    """Create a skill from a template.

    On a terminal, it asks for a name and a description that are not given.
    """
    context = Context.current()
    if name is None or description is None:
        name, description = _asked(name, description, may_ask=not as_json)
    place = context.expand(parent) if parent else _skills_directory(context, scope)
    template = (BUILTIN_ROOT / "skill-author/assets/template/SKILL.md").read_text("utf-8")
    made = write_skill(place, name, template=template, description=description)
    if as_json:
        print_json({"path": str(made), "name": name, "valid": validate_skill(made).valid})
        return
    here = os.path.relpath(made, context.cwd)
    click.echo(f"Made {here}/SKILL.md")
    click.echo(f"Fill it in, then: vade validate {shlex.quote(here)}")
    index = build_index(context=context)
    if made not in [skill.path for skill in index]:
        click.echo(f"It is not in a place that is searched: vade list --root {shlex.quote(str(place))}")
    for conflict in index.report.conflicts:
        if conflict.path == str(made):
            click.echo(f"It overrides {conflict.overridden[0].path}")


def _asked(name: str | None, description: str | None, *, may_ask: bool) -> tuple[str, str | None]:
    """Return name and description, asking on a terminal for what is missing."""
    if not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        if name is None:
            raise click.UsageError("Missing argument 'NAME', such as pdf-forms.")
        return name, description
    while name is None:
        try:
            name = checked_name(click.prompt("Name, such as pdf-forms"))
        except SkillRefused as error:
            click.echo(visible(str(error)), err=True)
    if description is None:
        question = "What does it do, and when is it used? (Enter: write it later)"
        description = click.prompt(question, default="", show_default=False) or None
    return name, description


def _skills_directory(context: Context, scope: str) -> Path:
    inside = next((place for place in (context.cwd, *context.cwd.parents) if place.name == ".agent"), None)
    places = [inside.parent] if inside else context.project_directories()
    if scope == "user" or not places:
        return context.home / ".agent" / "skills"
    project = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return project / ".agent" / "skills"
