"""Implement ``vade validate`` and ``vade new``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from vademecum.cli.indexing import scope_option, scope_root
from vademecum.cli.output.printing import MARKS, CommandResult, command, json_option, paint
from vademecum.cli.output.skill_text import problem_line
from vademecum.config import ScanSettings, load_config
from vademecum.context import Context
from vademecum.errors import SkillRefused
from vademecum.registry.build import build_index
from vademecum.registry.roots import BUILTIN_ROOT, default_roots
from vademecum.registry.scan import Walk
from vademecum.skill.scaffold import checked_name, write_skill
from vademecum.skill.skill import Reading
from vademecum.skill.text import counted, visible
from vademecum.skill.validate import Validation, validate_skill


@command("validate")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option(
    "--lenient", is_flag=True, help="Report problems that lenient reading repairs as warnings, not errors."
)
def validate_command(*, paths: tuple[str, ...], lenient: bool) -> CommandResult:
    """Check skills against the specification.

    PATH is the directory of a skill, its SKILL.md, or a directory of skills (default: the skills of this
    project). Exit code 1: a skill is not valid, 4: a path does not exist.
    """
    context = Context.current()
    config = load_config(context)
    settings = config.settings
    if not paths:
        project = [str(root.path) for root in default_roots(context, config) if root.source == "project"]
        paths = tuple(filter(os.path.isdir, project))
        if not paths:
            raise click.UsageError("There are no skills in this project: name a PATH.")
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
    codes = {problem.code for verdict in verdicts for problem in verdict.problems}
    code = 4 if "missing-path" in codes else 0 if all(verdict.valid for verdict in verdicts) else 1
    return CommandResult(verdicts, _verdict_lines(verdicts), code)


def _verdict_lines(verdicts: list[Validation]) -> Iterator[str]:
    """Yield each skill with its problems, errors first."""
    for verdict in verdicts:
        mark, style = MARKS["ok" if verdict.valid else "problem"]
        remark = "" if verdict.problems else " valid"
        yield paint(visible(f"{mark} {verdict.path}{remark}"), style)
        yield from (problem_line(problem, with_severity=True) for problem in verdict.problems)
    wrong = sum(not verdict.valid for verdict in verdicts)
    if len(verdicts) > 1:
        yield f"{counted(len(verdicts), 'skill')} checked, {wrong:,} not valid"


def _skills_at(path: str, settings: ScanSettings) -> tuple[list[str], list[Validation]]:
    """Return the skill at a path or all skills below it, and a verdict on each that cannot be read."""
    if os.path.isdir(f"{path}/.agent/skills") and not os.path.lexists(f"{path}/SKILL.md"):
        path = f"{path}/.agent/skills"  # the path of a project
    walk = Walk(os.path.abspath(path), settings) if os.path.isdir(path) else None
    below = [directory for directory, _, _ in walk.documents] if walk else []
    if walk is None or below == ["."] or not (below or walk.obstacles):
        return [path], []
    unreachable = [Validation(place, None, None, (problem,)) for place, problem in walk.obstacles]
    return [os.path.join(path, directory) for directory in below], unreachable


@click.command("new")
@click.argument("name", required=False)
@click.option("--description", help="What the skill does and when to use it.")
@scope_option("The .agent/skills of the project or of your home directory.")
@click.option(
    "--dir", "parent", type=click.Path(file_okay=False), help="Parent directory, instead of --scope."
)
@json_option
def new_command(
    *, name: str | None, description: str | None, scope: str, parent: str | None, as_json: bool
) -> None:
    """Create a skill from a template.

    On a terminal, the command asks for a missing name or description.
    """
    context = Context.current()
    if not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        name, description = _asked(name, description)
    if name is None:
        raise click.UsageError("Missing argument 'NAME', such as pdf-forms.")
    place = context.expand(parent) if parent else scope_root(scope, context)
    template = (BUILTIN_ROOT / "skill-author/assets/template/SKILL.md").read_text("utf-8")
    made = write_skill(place, name, template=template, description=description)
    document = {"path": made, "name": name, "valid": validate_skill(made).valid}
    CommandResult(document, _made_lines(made, context)).print(as_json=as_json)


def _made_lines(made: Path, context: Context) -> Iterator[str]:
    """Yield where the new skill is, what to do next, and warnings."""
    here = os.path.relpath(made, context.cwd)
    yield f"Made {here}/SKILL.md"
    yield f"Fill it in, then: vade validate {shlex.quote(here)}"
    index = build_index(context=context)
    if made not in [skill.path for skill in index]:
        yield f"vade does not search this directory: vade list --root {shlex.quote(str(made.parent))}"
    for conflict in index.report.conflicts:
        if conflict.path == str(made):
            yield f"It overrides {conflict.overridden[0].path}"


def _asked(name: str | None, description: str | None) -> tuple[str, str | None]:
    """Return name and description, asking for what is missing."""
    while name is None:
        try:
            name = checked_name(click.prompt("Name, such as pdf-forms"))
        except SkillRefused as error:
            click.echo(visible(str(error).replace("Run: vade new ", "Type: ")), err=True)
    if description is None:
        question = "What does it do, and when is it used? (Enter: write it later)"
        description = click.prompt(question, default="", show_default=False) or None
    return name, description
