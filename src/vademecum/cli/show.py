"""How results look to people: text, with colour on a terminal only.

Imported by a command when it has text to show: rich takes 40 ms, and programs ask for JSON.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from vademecum.cli.checks import Check
from vademecum.cli.columns import print_rows
from vademecum.cli.output import MAX_LISTED_FILES, counted, print_text
from vademecum.policy.bounds import Bounds
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import LeftOut, Report
from vademecum.runs.reading import PastRun
from vademecum.runs.timeline import timeline
from vademecum.search.finder import Hit
from vademecum.skill.skill import Problem, Skill
from vademecum.skill.text import escaped, visible
from vademecum.skill.validate import Validation

MAX_LISTED_REMARKS = 20

_MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}
_SIGNS = {
    "start": ("▶", "bold"),
    "model": ("·", "dim"),
    "action": ("→", "cyan"),
    "ok": ("✓", "green"),
    "refused": ("✗", "red"),
    "failed": ("!", "yellow"),
    "asked": ("?", "magenta"),
    "plan": ("≡", "blue"),
    "end": ("■", "bold"),
    "note": ("·", "dim"),
}
_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


def print_list(skills: list[Skill], *, hidden: int, left_out: Sequence[LeftOut], doctor: str) -> None:
    """The skills with their sources and descriptions, and one line for each thing that is not shown."""
    out = console()
    print_rows(out, [(skill.name, skill.source, skill.description) for skill in skills])
    if skills:
        out.print()
    note = f" ({hidden:,} not meant for people: vade list --all)" if hidden else ""
    out.print(f"{counted(len(skills), 'skill')}{note}")
    if not skills:
        out.print("Put one in .agent/skills/, or write one: vade new my-skill")
    roots = sum(entry.reason.code.startswith("root-") for entry in left_out)
    for number, noun, what in ((len(left_out) - roots, "skill", "left out"), (roots, "root", "not searched")):
        if number:
            verb = "was" if number == 1 else "were"
            out.print(f"{counted(number, noun)} {verb} {what}: {doctor}", style="yellow")


def print_hits(hits: list[Hit], *, terms: set[str]) -> None:
    """The skills that fit, best first, with the words that matched."""
    out = console()
    print_rows(out, [(hit.name, hit.source, hit.description) for hit in hits], terms=terms)
    if not hits:
        out.print("No skill fits. Other words may help; vade list shows all there are.")


def print_skill(skill: Skill, found: dict[str, Any]) -> None:
    """All about one skill; ``found`` holds its files, its namesakes and, if asked for, its body."""
    out = console()
    out.print(plain(skill.name, style="bold cyan"), plain(skill.skill_id, style="dim"))
    out.print(plain(skill.description))
    out.print()
    for label, text in _facts(skill, found):
        out.print(Text(f"{label:<14}", style="dim"), plain(text), sep="", soft_wrap=True)
    if "body" in found:
        out.print()
        print_text(found["body"].rstrip("\n"))


def _facts(skill: Skill, found: dict[str, Any]) -> list[tuple[str, str]]:
    meta, controls = skill.meta, skill.controls
    tools = "no bound" if controls.allowed_tools is None else " ".join(controls.allowed_tools) or "none"
    winner = found["overridden_by"]
    facts = [
        ("overridden", f"by {winner['path']} (source {winner['source']})" if winner else ""),
        ("path", skill.location),
        ("version", meta.version),
        ("author", meta.author),
        ("license", meta.license),
        ("needs", meta.compatibility),
        ("metadata", ", ".join(f"{key}={value}" for key, value in meta.metadata.items())),
        ("tools", tools),
        ("not tools here", ", ".join(Bounds.of(controls.allowed_tools or ()).unknown)),
        ("models", "may not choose it" if controls.disable_model_invocation else "may choose it"),
        ("people", "may call it" if controls.user_invocable else "do not see it"),
        ("runs", "in a child agent" if controls.run_mode == "subagent" else "in the conversation"),
        *(("file", f"{file['path']} ({file['size']:,} bytes)") for file in found["files"]),
        ("", "… and more files" if len(found["files"]) == MAX_LISTED_FILES else ""),
        *(("namesake", f"{other['path']} ({other['reason']})") for other in found["shadowed"]),
        ("other fields", ", ".join(skill.extra)),
        *(("remark", _remark(problem)) for problem in skill.diagnostics),
    ]
    return [(label, text) for label, text in facts if text]


def print_verdicts(verdicts: list[Validation]) -> None:
    """Each skill with its problems, errors first."""
    out = console()
    for verdict in verdicts:
        mark, style = _MARKS["ok" if verdict.valid else "problem"]
        remark = "" if verdict.problems else " valid"
        out.print(plain(f"{mark} {verdict.path}{remark}", style=style), soft_wrap=True)
        for problem in verdict.problems:
            _print_problem(out, problem, with_severity=True)
    wrong = sum(not verdict.valid for verdict in verdicts)
    if len(verdicts) > 1:
        out.print(f"{counted(len(verdicts), 'skill')} checked, {wrong:,} not valid")


def print_roots(report: Report, *, absent_too: bool) -> None:
    """The roots in their order, with what is in them."""
    out = console()
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        out.print(row, plain(str(root.root.path)), sep="", soft_wrap=True)
    if absent := len(report.roots) - len(shown):
        out.print(f"\n{counted(absent, 'default root')} not there: vade roots --all", style="dim")


def print_refreshed(index: SkillIndex) -> None:
    """One line: what was read, and what there is."""
    report = index.report
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    console().print(f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out")


def print_doctor(index: SkillIndex | None, found: list[Check]) -> None:
    """The checks, then everything that was left out, with its line and its correction."""
    out = console()
    for check in found:
        mark, style = _MARKS[check.status]
        fix = f". {check.fix}" if check.fix else ""
        said = f"{check.name}: {check.message.removesuffix('.') if fix else check.message}{fix}"
        out.print(Text(mark, style=style), plain(said), soft_wrap=True)
    if index is None:
        return
    for left_out in index.report.ignored:
        out.print()
        out.print(Text("left out ", style="red"), plain(left_out.path, style="bold"), sep="", soft_wrap=True)
        for problem in left_out.problems:
            _print_problem(out, problem)
    _print_conflicts(out, index.report)
    _print_remarks(out, index)
    if not index.report.ignored:
        out.print("\nNothing was left out.")


def print_runs(runs: Sequence[PastRun]) -> None:
    """The runs, the latest last: when, how they ended, what was asked."""
    out = console()
    for run in runs:
        status = Text(f"{run.status:<12}", style="green" if run.status == "done" else "yellow")
        row = f"  {run.seconds:6.1f} s  {run.request}"
        out.print(f"{run.run_id}  ", status, plain(row), sep="", overflow="ellipsis", no_wrap=True)
    if not runs:
        out.print('No runs yet: vade run "what is to be done"')


def print_timeline(run: PastRun) -> None:
    """One run, step by step."""
    out = console()
    out.print(plain(f"{run.run_id}  {run.status}  {run.seconds:.1f} s", style="bold"))
    for entry in timeline(run):
        sign, style = _SIGNS[entry.mark]
        head = Text(f"{entry.seconds:7.2f}  {sign} ", style=style)
        out.print(head, plain(entry.title), sep="", soft_wrap=True)
        if entry.mark in {"plan", "end", "asked"} and entry.detail:
            for line in entry.detail.splitlines():
                out.print(
                    "           ", Text(escaped(line.expandtabs(4)), style="dim"), sep="", soft_wrap=True
                )


def _print_remarks(out: Console, index: SkillIndex) -> None:
    remarked = [skill for skill in index.skills if skill.diagnostics]
    if not remarked:
        return
    out.print(f"\n{counted(len(remarked), 'skill')} with remarks (vade inspect NAME shows all of them):")
    for skill in remarked[:MAX_LISTED_REMARKS]:
        out.print(
            "  ",
            plain(f"{skill.name}: {_remark(skill.diagnostics[0])}", style="dim"),
            sep="",
            soft_wrap=True,
        )
    if len(remarked) > MAX_LISTED_REMARKS:
        out.print(f"  … and {len(remarked) - MAX_LISTED_REMARKS:,} more", style="dim")


def _remark(problem: Problem) -> str:
    return f"line {problem.line}: {problem.message}" if problem.line else problem.message


def _print_conflicts(out: Console, report: Report) -> None:
    for conflict in report.conflicts:
        # A link to the very directory that is used takes nothing from anybody: `vade link` makes such links.
        used = os.path.realpath(conflict.path)
        others = [other for other in conflict.overridden if os.path.realpath(other.path) != used]
        if not others:
            continue
        out.print()
        out.print(plain(f"{conflict.name}: {conflict.path} is used, not", style="bold"), soft_wrap=True)
        for other in others:
            out.print("  ", plain(f"{other.path}, because {_REASONS[other.reason]}"), sep="", soft_wrap=True)


def _print_problem(out: Console, problem: Problem, *, with_severity: bool = False) -> None:
    style = "red" if problem.severity == "error" else "yellow"
    severity = Text(f"{problem.severity} ", style=style) if with_severity else ""
    line = f"line {problem.line}: " if problem.line else ""
    out.print("  ", severity, line, plain(problem.message), sep="", soft_wrap=True)


def console() -> Console:
    """A console on standard output: no colour unless it is a terminal, and NO_COLOR is honoured."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    plain = "NO_COLOR" in os.environ
    return _Console(
        highlight=False, width=width, emoji=False, markup=False, color_system=None if plain else "auto"
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which knows that nobody reads any more."""
        raise BrokenPipeError(errno.EPIPE, "broken pipe")


def plain(text: str, *, style: str = "") -> Text:
    """Text from outside, on one line, with nothing in it that could steer a terminal."""
    return Text(visible(text), style=style)
