"""``vade validate`` and ``vade new``: for those who write skills."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from vademecum.cli.output import json_option, print_json
from vademecum.config import LoadedConfig, ScanSettings, load_config
from vademecum.context import Context
from vademecum.registry.build import build_index
from vademecum.registry.roots import BUILTIN_ROOT, default_roots
from vademecum.registry.scan import find_documents
from vademecum.skill.scaffold import write_skill
from vademecum.skill.skill import Problem, Reading
from vademecum.skill.validate import Validation, validate_skill


@click.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--lenient", is_flag=True, help="Count what lenient reading repairs as a warning.")
@json_option
def validate_command(*, paths: tuple[str, ...], lenient: bool, as_json: bool) -> int:
    """Check skills against the whole specification.

    A PATH is a skill's directory, its SKILL.md, or a directory of skills; without one, all skills of the
    project are checked. Exit code 1: one is not valid.
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
        from vademecum.cli import show

        show.print_verdicts(verdicts)
    return 0 if all(verdict.valid for verdict in verdicts) else 1


def _project_roots(context: Context, config: LoadedConfig) -> tuple[str, ...]:
    found = [str(root.path) for root in default_roots(context, config) if root.source == "project"]
    existing = tuple(path for path in found if os.path.isdir(path))
    if not existing:
        raise click.UsageError("There are no skills in this project: name a PATH.")
    return existing


def _skills_at(path: str, settings: ScanSettings) -> tuple[list[str], list[Validation]]:
    """The skill at a path, or all those below it, with a verdict on each that cannot be looked at."""
    if os.path.isdir(f"{path}/.agent/skills") and not os.path.lexists(f"{path}/SKILL.md"):
        path = f"{path}/.agent/skills"  # a project was named, and its skills are meant
    walk = find_documents(os.path.abspath(path), settings) if os.path.isdir(path) else None
    below = [directory for directory, _, _ in walk.documents] if walk else []
    if walk is None or below == ["."] or not (below or walk.obstacles):
        return [path], []
    unreachable = [
        Validation(obstacle.path, None, None, (Problem(obstacle.code, "error", obstacle.message),))
        for obstacle in walk.obstacles
    ]
    return [os.path.join(path, directory) for directory in below], unreachable


@click.command("new")
@click.argument("name")
@click.option("--description", help="What it does and when to use it.")
@click.option("--scope", type=click.Choice(["project", "user"]), default="project", show_default=True)
@click.option(
    "--dir", "parent", type=click.Path(file_okay=False), help="Make it below this directory instead."
)
@json_option
def new_command(*, name: str, description: str | None, scope: str, parent: str | None, as_json: bool) -> None:
    """Write a new skill that validates, ready to be filled in."""
    context = Context.current()
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


def _skills_directory(context: Context, scope: str) -> Path:
    inside = next((place for place in (context.cwd, *context.cwd.parents) if place.name == ".agent"), None)
    places = [inside.parent] if inside else context.project_directories()
    if scope == "user" or not places:
        return context.home / ".agent" / "skills"
    project = next((place for place in places if (place / ".agent").is_dir()), places[-1])
    return project / ".agent" / "skills"
