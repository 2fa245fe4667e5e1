"""Implement ``vade roots``, ``vade refresh`` and ``vade doctor``."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

import click

from vademecum.cli import health
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import ReadingProgress, counted, json_option, paint, print_json
from vademecum.cli.show import BOLD, DIM, MARKS, RED, print_problem, remark
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.build import refresh_index
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.skill.text import visible
from vademecum.tools.packages import Environments, Usage

MAX_LISTED_REMARKS = 20

_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


@click.command("roots")
@click.option("--all", "absent_too", is_flag=True, help="Include default roots that do not exist.")
@index_options
@json_option
def roots_command(*, absent_too: bool, as_json: bool, **words: Any) -> None:
    """List the directories that are searched for skills, highest priority first."""
    report = IndexWords(**words).build().report
    if as_json:
        print_json({"roots": [root.to_json() for root in report.roots]})
        return
    _print_roots(report, absent_too=absent_too)


@click.command("refresh")
@click.option("--environments", is_flag=True, help="Also delete the package environments of scripts.")
@index_options
@json_option
def refresh_command(*, environments: bool, as_json: bool, **words: Any) -> None:
    """Rebuild the index cache: read the metadata of every skill again, and list MCP sources again."""
    progress = ReadingProgress()
    _list_sources_again()
    try:
        before = IndexWords(**words).build()
        index = refresh_index(before, progress=progress)
    finally:
        progress.done()
    removed = Environments(Context.current()).clear() if environments else None
    if as_json:
        changed = before.hash != index.hash
        found = {"report": index.report.to_json(), "hash": index.hash, "changed": changed}
        print_json(found if removed is None else {**found, "environments": asdict(removed)})
        return
    _print_refreshed(index, removed)


def _list_sources_again() -> None:
    from vademecum.integrations.mcp.source import sources

    for source in sources(Context.current()):
        try:
            source.refresh()
        except VademecumError as error:
            click.echo(f"vade: mcp:{source.name} was not listed again: {visible(str(error))}", err=True)


@click.command("doctor")
@click.option(
    "--model",
    "model",
    is_flag=False,
    flag_value="",
    metavar="[KIND:NAME]",
    help="Also call the model once, by default the configured one, and say what works.",
)
@index_options
@json_option
def doctor_command(*, model: str | None, as_json: bool, **words: Any) -> int:
    """Find problems in this installation and project, and print how to fix each.

    Exit code 1: there are problems.
    """
    from vademecum.cli import model_checks

    context = Context.current()
    usage = Environments(context).usage()
    found = [health.python(), health.configuration(context)]
    index = IndexWords(**words).build() if found[-1].status == "ok" else None
    if index is not None:
        config = load_config(context)
        found += [health.rules(config), health.sandbox(config.settings.execution.sandbox)]
        found += [health.roots(index.report), health.cache(index)]
        found += [health.keys(config.settings.security, context), health.packages(usage, context)]
        settings = config.settings.model
        if model:
            params = settings.params if model.partition(":")[0] == settings.provider.partition(":")[0] else {}
            settings = replace(settings, provider=model, params=params)
        found += model_checks.model(settings, context)
        if model is not None:
            found += model_checks.called(settings.provider, settings, context)
    left_out = index is not None and index.report.ignored
    healthy = not left_out and all(check.status != "problem" for check in found)
    if as_json:
        print_json(_doctor_json(index, found, usage, healthy=healthy))
    else:
        _print_doctor(index, found)
    return 0 if healthy else 1


def _doctor_json(
    index: SkillIndex | None, found: list[health.HealthCheck], usage: Usage, *, healthy: bool
) -> dict[str, Any]:
    report = None if index is None else index.report
    remarks = [
        {"name": skill.name, "path": skill.location, "problems": [p.to_json() for p in skill.diagnostics]}
        for skill in (() if index is None else index.skills)
        if skill.diagnostics
    ]
    return {
        "healthy": healthy,
        "checks": [check.to_json() for check in found],
        "left_out": [left_out.to_json() for left_out in (report.ignored if report else ())],
        "conflicts": [conflict.to_json() for conflict in (report.conflicts if report else ())],
        "remarks": remarks,
        "report": report.to_json() if report else None,
        "environments": asdict(usage),
    }


def _print_roots(report: Report, *, absent_too: bool) -> None:
    """Print the roots in their order, with the number of skills in each."""
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        click.echo(f"{row}{visible(str(root.root.path))}")
    if absent := len(report.roots) - len(shown):
        click.echo(paint(f"\n{counted(absent, 'default root')} not there: vade roots --all", DIM))


def _print_refreshed(index: SkillIndex, removed: Usage | None) -> None:
    """Print what was read, and which environments were deleted."""
    report = index.report
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    click.echo(f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out")
    if removed is not None:
        click.echo(f"Removed {counted(removed.number, 'environment')}, {removed.bytes / 1e6:,.1f} MB")


def _print_doctor(index: SkillIndex | None, found: list[health.HealthCheck]) -> None:
    """Print the checks, then everything that was left out, with its line and its correction."""
    for check in found:
        mark, style = MARKS[check.status]
        fix = f". {check.fix}" if check.fix else ""
        said = f"{check.name}: {check.message.removesuffix('.') if fix else check.message}{fix}"
        click.echo(f"{paint(mark, style)} {visible(said)}")
    if index is None:
        return
    for left_out in index.report.ignored:
        click.echo(f"\n{paint('left out ', RED)}{paint(visible(left_out.path), BOLD)}")
        for problem in left_out.problems:
            print_problem(problem)
    _print_conflicts(index.report)
    _print_remarks(index)
    if not index.report.ignored:
        click.echo("\nNothing was left out.")


def _print_remarks(index: SkillIndex) -> None:
    remarked = [skill for skill in index.skills if skill.diagnostics]
    if not remarked:
        return
    click.echo(f"\n{counted(len(remarked), 'skill')} with remarks (vade inspect NAME shows all of them):")
    for skill in remarked[:MAX_LISTED_REMARKS]:
        click.echo(f"  {paint(visible(f'{skill.name}: {remark(skill.diagnostics[0])}'), DIM)}")
    if len(remarked) > MAX_LISTED_REMARKS:
        click.echo(paint(f"  … and {len(remarked) - MAX_LISTED_REMARKS:,} more", DIM))


def _print_conflicts(report: Report) -> None:
    for conflict in report.conflicts:
        # A link to the directory that is used is not a conflict: `vade link` creates such links.
        used = os.path.realpath(conflict.path)
        others = [other for other in conflict.overridden if os.path.realpath(other.path) != used]
        if not others:
            continue
        click.echo(f"\n{paint(visible(f'{conflict.name}: {conflict.path} is used, not'), BOLD)}")
        for other in others:
            click.echo(f"  {visible(f'{other.path}, because {_REASONS[other.reason]}')}")
