"""``vade roots``, ``vade refresh`` and ``vade doctor``: what was looked at, what was left out, and why."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table

from vademecum import __version__
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import (
    ReadingProgress,
    console,
    counted,
    json_option,
    plain,
    print_json,
    print_table,
)
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import ConfigError
from vademecum.registry.index import SkillIndex, refresh_index
from vademecum.registry.report import LeftOut, Report

_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


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
    out = console()
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        table.add_row(str(root.root.priority), f"{root.root.source}{kind}", state, plain(str(root.root.path)))
    print_table(out, table)
    absent = len(report.roots) - len(shown)
    if absent:
        out.print(f"\n{counted(absent, 'default root')} not there: vade roots --all", style="dim")


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
    report = index.report
    if as_json:
        print_json({"report": report.to_json(), "hash": index.hash, "changed": before.hash != index.hash})
        return
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    console().print(f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, and what to do about it."""

    name: str
    status: Literal["ok", "note", "problem"]
    message: str
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The check as ``vade doctor`` prints it."""
        return {"name": self.name, "status": self.status, "message": self.message, "fix": self.fix}


@click.command("doctor")
@index_options
@json_option
def doctor_command(*, as_json: bool, **words: Any) -> int:
    """Say what is wrong here, and what to do about it. Exit code 1: something is."""
    checks = [_python(), _configuration()]
    index = IndexWords(**words).build() if checks[-1].status == "ok" else None
    if index is not None:
        checks += [_roots(index.report), _cache(index)]
    left_out = index.report.ignored if index else ()
    healthy = not left_out and all(check.status != "problem" for check in checks)
    if as_json:
        print_json(_doctor_json(index, checks, healthy=healthy))
    else:
        _print_doctor(console(), index, checks)
    return 0 if healthy else 1


def _doctor_json(index: SkillIndex | None, checks: list[Check], *, healthy: bool) -> dict[str, Any]:
    report = index.report if index else None
    remarks = [
        {"name": skill.name, "path": skill.location, "problems": [p.to_json() for p in skill.diagnostics]}
        for skill in (index.skills if index else ())
        if skill.diagnostics
    ]
    return {
        "healthy": healthy,
        "checks": [check.to_json() for check in checks],
        "left_out": [left_out.to_json() for left_out in (report.ignored if report else ())],
        "conflicts": [conflict.to_json() for conflict in (report.conflicts if report else ())],
        "remarks": remarks,
        "report": report.to_json() if report else None,
    }


def _python() -> Check:
    running = f"vademecum {__version__} on Python {platform.python_version()} ({sys.platform})"
    return Check("python", "ok", running)


def _configuration() -> Check:
    try:
        files = load_config(Context.current()).files
    except ConfigError as error:
        return Check("configuration", "problem", str(error), "Correct the file.")
    return Check(
        "configuration", "ok", ", ".join(map(str, files)) or "no configuration file, defaults are used"
    )


def _roots(report: Report) -> Check:
    searched = [root for root in report.roots if root.status == "searched"]
    unusable = [root for root in report.roots if root.status in {"not-a-directory", "unreadable"}]
    message = f"{counted(len(searched), 'root')} searched, {counted(report.found, 'document')} found"
    if unusable:
        paths = ", ".join(f"{root.root.path} ({root.status.replace('-', ' ')})" for root in unusable)
        return Check("roots", "problem", f"{message}; not usable: {paths}", "Make it a readable directory.")
    return Check("roots", "ok", message)


def _cache(index: SkillIndex) -> Check:
    problems = index.report.diagnostics
    if problems:
        return Check("cache", "note", "; ".join(problem.message for problem in problems))
    taken = index.report.found - index.report.read
    return Check(
        "cache",
        "ok",
        f"{taken:,} of {counted(index.report.found, 'document')} taken from {index.options.cache}",
    )


def _print_doctor(out: Console, index: SkillIndex | None, checks: list[Check]) -> None:
    marks = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}
    for check in checks:
        mark, style = marks[check.status]
        out.print(plain(mark, style=style), f" {check.name}: ", plain(check.message), sep="", soft_wrap=True)
    if index is None:
        return
    for left_out in index.report.ignored:
        _print_left_out(out, left_out)
    for conflict in index.report.conflicts:
        out.print(plain(f"\n{conflict.name}: {conflict.path} is used, not", style="bold"), soft_wrap=True)
        for other in conflict.overridden:
            out.print("  ", plain(f"{other.path}, because {_REASONS[other.reason]}"), sep="", soft_wrap=True)
    remarks = sum(bool(skill.diagnostics) for skill in index.skills)
    if remarks:
        out.print(
            f"\n{counted(remarks, 'skill')} with remarks: vade inspect NAME, or vade validate PATH",
            style="dim",
        )
    if not index.report.ignored:
        out.print("\nNothing was left out.")


def _print_left_out(out: Console, left_out: LeftOut) -> None:
    out.print()
    out.print(plain("left out", style="red"), " ", plain(left_out.path, style="bold"), sep="", soft_wrap=True)
    for problem in left_out.problems:
        line = f"line {problem.line}: " if problem.line else ""
        out.print(f"  {line}", plain(problem.message), sep="", soft_wrap=True)
