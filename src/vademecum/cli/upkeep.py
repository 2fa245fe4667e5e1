"""``vade roots``, ``vade refresh`` and ``vade doctor``: what was looked at, what was left out, and why."""

from __future__ import annotations

from typing import Any

import click

from vademecum.cli import checks
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import ReadingProgress, json_option, print_json
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.registry.build import refresh_index
from vademecum.registry.index import SkillIndex


@click.command("roots")
@click.option("--all", "absent_too", is_flag=True, help="Also the default roots that do not exist.")
@index_options
@json_option
def roots_command(*, absent_too: bool, as_json: bool, **words: Any) -> None:
    """Show the directories that are searched, the highest first."""
    report = IndexWords(**words).build().report
    if as_json:
        print_json({"roots": [root.to_json() for root in report.roots]})
        return
    from vademecum.cli import show

    show.print_roots(report, absent_too=absent_too)


@click.command("refresh")
@index_options
@json_option
def refresh_command(*, as_json: bool, **words: Any) -> None:
    """Read every skill's metadata again, whatever the cache says."""
    progress = ReadingProgress()
    try:
        before = IndexWords(**words).build()
        index = refresh_index(before, progress=progress)
    finally:
        progress.done()
    if as_json:
        changed = before.hash != index.hash
        print_json({"report": index.report.to_json(), "hash": index.hash, "changed": changed})
        return
    from vademecum.cli import show

    show.print_refreshed(index)


@click.command("doctor")
@index_options
@json_option
def doctor_command(*, as_json: bool, **words: Any) -> int:
    """Say what is wrong here, and what to do about it. Exit code 1: something is."""
    from vademecum.cli import model_checks

    context = Context.current()
    found = [checks.python(), checks.configuration(context)]
    index = IndexWords(**words).build() if found[-1].status == "ok" else None
    if index is not None:
        config = load_config(context)
        found += [checks.rules(config, context), checks.sandbox(config.settings.execution.sandbox)]
        found += [checks.roots(index.report), checks.cache(index)]
        found += [checks.keys(config.settings.security, context)]
        found += model_checks.model(config.settings.model, context.env)
    left_out = index is not None and index.report.ignored
    healthy = not left_out and all(check.status != "problem" for check in found)
    if as_json:
        print_json(_doctor_json(index, found, healthy=healthy))
    else:
        from vademecum.cli import show

        show.print_doctor(index, found)
    return 0 if healthy else 1


def _doctor_json(index: SkillIndex | None, found: list[checks.Check], *, healthy: bool) -> dict[str, Any]:
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
    }
