"""How results look to people: text, with colour on a terminal only.

Imported by a command when it has text to show: rich takes 40 ms, and programs ask for JSON.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vademecum.cli.checks import Check
from vademecum.cli.output import MAX_LISTED_FILES, counted
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.skill.model import Problem
from vademecum.skill.skill import Skill
from vademecum.skill.text import escaped, visible
from vademecum.skill.validate import Validation

MAX_LISTED_DESCRIPTION = 180

_MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}
_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


def print_list(skills: list[Skill], *, hidden: int, left_out: int, doctor: str) -> None:
    """The skills with their sources and descriptions, and one line for each thing that is not shown."""
    out = _console()
    table = _grid(no_wrap=(True, True, False))
    for skill in skills:
        table.add_row(
            _plain(skill.name, style="bold cyan"),
            _plain(skill.source, style="dim"),
            _plain(skill.description, most=MAX_LISTED_DESCRIPTION),
        )
    if skills:
        _print_table(out, table)
        out.print()
    note = f" ({hidden:,} not meant for people: vade list --all)" if hidden else ""
    out.print(f"{counted(len(skills), 'skill')}{note}")
    if not skills:
        out.print("Put one in .agent/skills/, or write one: vade new my-skill")
    if left_out:
        verb = "was" if left_out == 1 else "were"
        out.print(f"{counted(left_out, 'skill')} {verb} left out: {doctor}", style="yellow")


def print_skill(skill: Skill, found: dict[str, Any]) -> None:
    """All about one skill; ``found`` holds its files, its namesakes and, if asked for, its body."""
    out = _console()
    out.print(_plain(skill.name, style="bold cyan"), _plain(skill.skill_id, style="dim"))
    out.print(_plain(skill.description))
    out.print()
    table = _grid(no_wrap=(True, False))
    for label, text in _facts(skill, found):
        table.add_row(Text(label, style="dim"), _plain(text))
    _print_table(out, table)
    if "body" in found:
        out.print()
        for line in found["body"].splitlines():
            out.print(Text(escaped(line.expandtabs(4))), soft_wrap=True)


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
        ("", "… and more files" if len(found["files"]) == MAX_LISTED_FILES else ""),
        *(("namesake", f"{other['path']} ({other['reason']})") for other in found["shadowed"]),
        *(("remark", problem.message) for problem in skill.diagnostics),
    ]
    return [(label, text) for label, text in facts if text]


def print_verdicts(verdicts: list[Validation]) -> None:
    """Each skill with its problems, errors first."""
    out = _console()
    for verdict in verdicts:
        mark, style = _MARKS["ok" if verdict.valid else "problem"]
        remark = "" if verdict.problems else " valid"
        out.print(_plain(f"{mark} {verdict.path}{remark}", style=style), soft_wrap=True)
        for problem in verdict.problems:
            _print_problem(out, problem, with_severity=True)
    wrong = sum(not verdict.valid for verdict in verdicts)
    if len(verdicts) > 1:
        out.print(f"{counted(len(verdicts), 'skill')} checked, {wrong:,} not valid")


def print_roots(report: Report, *, absent_too: bool) -> None:
    """The roots in their order, with what is in them."""
    out = _console()
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        out.print(row, _plain(str(root.root.path)), sep="", soft_wrap=True)
    if absent := len(report.roots) - len(shown):
        out.print(f"\n{counted(absent, 'default root')} not there: vade roots --all", style="dim")


def print_refreshed(index: SkillIndex) -> None:
    """One line: what was read, and what there is."""
    report = index.report
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    _console().print(f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out")


def print_doctor(index: SkillIndex | None, found: list[Check]) -> None:
    """The checks, then everything that was left out, with its line and its correction."""
    out = _console()
    for check in found:
        mark, style = _MARKS[check.status]
        said = f"{check.name}: {check.message} {check.fix or ''}"
        out.print(Text(mark, style=style), _plain(said), soft_wrap=True)
    if index is None:
        return
    for left_out in index.report.ignored:
        out.print()
        out.print(Text("left out ", style="red"), _plain(left_out.path, style="bold"), sep="", soft_wrap=True)
        for problem in left_out.problems:
            _print_problem(out, problem)
    _print_conflicts(out, index.report)
    remarks = sum(bool(skill.diagnostics) for skill in index.skills)
    if remarks:
        advice = "vade inspect NAME, or vade validate PATH"
        out.print(f"\n{counted(remarks, 'skill')} with remarks: {advice}", style="dim")
    if not index.report.ignored:
        out.print("\nNothing was left out.")


def _print_conflicts(out: Console, report: Report) -> None:
    for conflict in report.conflicts:
        out.print()
        out.print(_plain(f"{conflict.name}: {conflict.path} is used, not", style="bold"), soft_wrap=True)
        for other in conflict.overridden:
            out.print("  ", _plain(f"{other.path}, because {_REASONS[other.reason]}"), sep="", soft_wrap=True)


def _print_problem(out: Console, problem: Problem, *, with_severity: bool = False) -> None:
    style = "red" if problem.severity == "error" else "yellow"
    severity = Text(f"{problem.severity} ", style=style) if with_severity else ""
    line = f"line {problem.line}: " if problem.line else ""
    out.print("  ", severity, line, _plain(problem.message), sep="", soft_wrap=True)


def _console() -> Console:
    """A console on standard output: no colour unless it is a terminal, and NO_COLOR is honoured."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    return _Console(highlight=False, width=width, emoji=False, markup=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which knows that nobody reads any more."""
        raise BrokenPipeError(errno.EPIPE, "broken pipe")


def _grid(*, no_wrap: tuple[bool, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    for one_line in no_wrap:
        table.add_column(no_wrap=one_line, overflow="fold", ratio=None if one_line else 1)
    return table


def _print_table(out: Console, table: Table) -> None:
    """Print a table without the blanks that would fill each line to its end."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(f"{line.rstrip()}\n")


def _plain(text: str, *, style: str = "", most: int | None = None) -> Text:
    """Text from outside, on one line, with nothing in it that could steer a terminal."""
    shown = visible(text)
    if most is not None and len(shown) > most:
        head, space, tail = shown[:most].rpartition(" ")
        shown = f"{head if space and len(tail) < most // 4 else shown[: most - 1]}…"
    return Text(shown, style=style)
