"""Check this installation (``vade doctor``), list the roots, and rebuild the index cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from vademecum.cli.checks import HealthCheck, checks_of_files, checks_of_place
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output.printing import MARKS, CommandResult, ProgressBar, command, counted, paint
from vademecum.cli.output.skill_text import problem_line, remark
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.build import refresh_index
from vademecum.registry.index import Report, SkillIndex
from vademecum.registry.roots import added_sources
from vademecum.skill.text import visible
from vademecum.tools.packages.environments import Environments

MAX_LISTED_REMARKS = 20

_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


@command("roots")
@click.option("--all", "absent_too", is_flag=True, help="Include default roots that do not exist.")
@index_options
def roots_command(*, absent_too: bool, **words: Any) -> CommandResult:
    """List the directories that are searched for skills, highest priority first."""
    report = IndexWords(**words).build().report
    return CommandResult({"roots": report.roots}, _root_lines(report, absent_too=absent_too))


def _root_lines(report: Report, *, absent_too: bool) -> Iterator[str]:
    """Yield the roots in their order, with the number of skills in each."""
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        yield f"{row}{visible(str(root.root.path))}"
    if absent := len(report.roots) - len(shown):
        yield paint(f"\n{counted(absent, 'default root')} not there: vade roots --all", "dim")


@command("refresh")
@click.option("--environments", is_flag=True, help="Also delete the package environments of scripts.")
@index_options
def refresh_command(*, environments: bool, **words: Any) -> CommandResult:
    """Rebuild the index cache: read the metadata of every skill again, and list MCP sources again."""
    context = Context.current()
    for source in added_sources(context):
        try:
            source.refresh()
        except VademecumError as error:
            click.echo(f"vade: mcp:{source.name} was not listed again: {visible(str(error))}", err=True)
    before = IndexWords(**words).build()
    with ProgressBar("reading skills") as progress:
        index = refresh_index(before, progress=progress)
    report = index.report
    document = {"report": report, "hash": index.hash, "changed": before.hash != index.hash}
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    lines = [f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out"]
    if environments:
        removed = document["environments"] = Environments(context).clear()
        lines.append(f"Removed {counted(removed.number, 'environment')}, {removed.bytes / 1e6:,.1f} MB")
    return CommandResult(document, lines)


@command("doctor")
@click.option(
    "--model",
    "model",
    is_flag=False,
    flag_value="",
    metavar="[KIND:NAME]",
    help="Also call the model once, by default the configured one, and say what works.",
)
@index_options
def doctor_command(*, model: str | None, **words: Any) -> CommandResult:
    """Find problems in this installation and project, and print how to fix each.

    Exit code 1: there are problems.
    """
    context = Context.current()
    usage = Environments(context).usage()
    found = list(checks_of_files(context))
    index = IndexWords(**words).build(noted=True) if found[-1].status != "problem" else None
    if index is not None:
        found += checks_of_place(context, index, usage, asked=model)
    report = None if index is None else index.report
    left_out = report.ignored if report else ()
    remarked = [skill for skill in (() if index is None else index.skills) if skill.diagnostics]
    healthy = not left_out and all(check.status != "problem" for check in found)
    document = {
        "healthy": healthy,
        "checks": found,
        "left_out": left_out,
        "conflicts": report.conflicts if report else (),
        "remarks": [
            {"name": skill.name, "path": skill.location, "problems": skill.diagnostics} for skill in remarked
        ],
        "report": report,
        "environments": usage,
    }
    return CommandResult(document, _doctor_lines(found, index), 0 if healthy else 1)


def _doctor_lines(found: list[HealthCheck], index: SkillIndex | None) -> Iterator[str]:
    """Yield the checks, then everything that was left out, with its line and its correction."""
    for check in found:
        mark, style = MARKS[check.status]
        fix = f". {check.fix}" if check.fix else ""
        said = f"{check.name}: {check.message.removesuffix('.') if fix else check.message}{fix}"
        yield f"{paint(mark, style)} {visible(said)}"
    if index is None:
        return
    for left_out in index.report.ignored:
        yield f"\n{paint('left out ', 'red')}{paint(visible(left_out.path), 'bold')}"
        yield from map(problem_line, left_out.problems)
    yield from _conflict_lines(index.report)
    remarked = [skill for skill in index.skills if skill.diagnostics]
    if remarked:
        yield f"\n{counted(len(remarked), 'skill')} with remarks (vade inspect NAME shows all of them):"
    for skill in remarked[:MAX_LISTED_REMARKS]:
        yield f"  {paint(visible(f'{skill.name}: {remark(skill.diagnostics[0])}'), 'dim')}"
    if len(remarked) > MAX_LISTED_REMARKS:
        yield paint(f"  … and {len(remarked) - MAX_LISTED_REMARKS:,} more", "dim")
    if not index.report.ignored:
        yield "\nNothing was left out."


def _conflict_lines(report: Report) -> Iterator[str]:
    for conflict in report.conflicts:
        # A link to the directory that is used is not a conflict: `vade link` creates such links.
        used = os.path.realpath(conflict.path)
        others = [other for other in conflict.overridden if os.path.realpath(other.path) != used]
        if others:
            yield f"\n{paint(visible(f'{conflict.name}: {conflict.path} is used, not'), 'bold')}"
        for other in others:
            yield f"  {visible(f'{other.path}, because {_REASONS[other.reason]}')}"
