"""Print skills as text: rows of name, source and description, and the facts about one skill.

A table of rich takes seconds for ten thousand rows, and importing it takes 40 ms, so the layout is done here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vademecum.cli.output.printing import MAX_LISTED_FILES, paint
from vademecum.skill.text import counted, escaped_lines, visible

if TYPE_CHECKING:
    from vademecum.registry.index import LeftOut
    from vademecum.search.finder import Findings, Hit, Match
    from vademecum.skill.skill import Problem, Skill

MAX_LISTED_WIDTH = 180

Cell = tuple[str, str]  # a text and its style

_CHARACTER = "[^\x00-\u2fff]"
# A word with the spaces after it, or one character of a script without spaces with its punctuation.
_PIECE = re.compile(rf"{_CHARACTER}[，。、；：！？）」』…]*\s*|(?:(?!{_CHARACTER})\S)+\s*|\s+")


def list_lines(
    skills: Sequence[Skill], *, hidden: int, left_out: Sequence[LeftOut], doctor: str, source: str | None
) -> Iterator[str]:
    """Yield skills with their sources and descriptions, then how many are not shown and why."""
    yield from _rows(skills)
    if skills:
        yield ""
    note = f" ({hidden:,} only for models: vade list --all)" if hidden else ""
    yield f"{counted(len(skills), 'skill')}{note}"
    if not skills and source in {None, "project", "user"}:
        home, scope = ("~/", " --scope user") if source == "user" else ("", "")
        yield f"Put one in {home}.agent/skills/, or create one: vade new my-skill{scope}"
    roots = sum(entry.reason.code.startswith("root-") for entry in left_out)
    for number, noun, what in ((len(left_out) - roots, "skill", "left out"), (roots, "root", "not searched")):
        if number:
            verb = "was" if number == 1 else "were"
            yield paint(f"{counted(number, noun)} {verb} {what}: {doctor}", "yellow")


def finding_lines(found: Findings, matches: list[list[Match]]) -> Iterator[str]:
    """Yield the skills that fit, best first, with the words that matched; say so if there is none."""
    yield from _rows(found.hits)
    for hit, each in zip(found.hits, matches, strict=False):
        yield visible(f"{hit.name} ({hit.score:.2f}):")
        for match in each:
            through = "" if match.kind == "word" else f" ({match.kind}: {', '.join(match.found)})"
            yield visible(f"{match.word}{through} in {', '.join(match.fields)}")
    if matches:
        yield f"{found.confidence:.0%} sure that the first one fits"
    if not found.hits:
        yield "No skill fits. Try other words; vade list lists all skills."


def _rows(found: Sequence[Skill | Hit]) -> Iterator[str]:
    """Yield columns on a terminal; elsewhere one line for each row, with tabs."""
    rows = [(visible(one.name), visible(one.source), visible(one.description)) for one in found]
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        yield from map("\t".join, rows)
        return
    widths = [max((_cells(row[n]) for row in rows), default=0) + 2 for n in (0, 1)]
    indent = sum(widths)
    room = max(20, terminal_width() - indent)
    for name, source, description in rows:
        first = paint(name, "bold cyan") + " " * (widths[0] - _cells(name))
        first += paint(source, "dim") + " " * (widths[1] - _cells(source))
        lines = wrapped(shortened(description, MAX_LISTED_WIDTH), room)
        yield (first + f"\n{' ' * indent}".join(lines)).rstrip()


def terminal_width() -> int:
    """Return the width to wrap text at: that of ``COLUMNS`` or of the terminal, else 100."""
    import shutil  # takes 2 ms to import, and a piped list needs no width

    return shutil.get_terminal_size((100, 24)).columns


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines between words, or between characters of a script without spaces.

    >>> wrapped("one two three", 8)
    ['one two', 'three']
    >>> wrapped("整理会议，列出结论", 10)
    ['整理会议，', '列出结论']
    """
    lines, line, used = [], "", 0
    for piece in _PIECE.findall(text):
        if line and used + _cells(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, used = "", 0
        line += piece
        used += _cells(piece)
    return [*lines, line.rstrip()]


def table_widths(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Return the width of each column."""
    return [max(_cells(text) for text, _ in column) for column in zip(*rows, strict=True)]


def table_lines(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield rows with the first column to the left and the others to the right."""
    widths = table_widths(rows)
    for row in rows:
        padding = [" " * (width - _cells(text)) for (text, _), width in zip(row, widths, strict=True)]
        first, *others = (paint(text, style) for text, style in row)
        shown = [f"{space}{cell}" for space, cell in zip(padding[1:], others, strict=True)]
        yield "  ".join([f"{first}{padding[0]}", *shown])


def shortened(text: str, width: int) -> str:
    """Return a text cut to one line of this width, with an ellipsis at the cut."""
    kept = text[: width + 1]
    while _cells(kept) > width + 1:
        kept = kept[:-1]
    if kept == text and _cells(text) <= width:
        return text
    head, space, tail = kept.rpartition(" ")
    return f"{head if space and _cells(tail) < width // 4 else kept[:-1]}…"


def _cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def skill_lines(skill: Skill, found: dict[str, Any]) -> Iterator[str]:
    """Yield one skill as text; ``found`` contains its files, namesakes and, if requested, its body."""
    yield f"{paint(visible(skill.name), 'bold cyan')} {paint(visible(skill.skill_id), 'dim')}"
    yield from wrapped(visible(skill.description), terminal_width())
    yield ""
    for label, text in _facts(skill, found):
        if text:
            yield f"{paint(f'{label:<14}', 'dim')}{visible(text)}"
    if "body" in found:
        yield ""
        yield escaped_lines(found["body"].rstrip("\n"))


def _facts(skill: Skill, found: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    meta, controls = skill.meta, skill.controls
    tools = "not limited" if controls.allowed_tools is None else " ".join(controls.allowed_tools) or "none"
    winner = found["overridden_by"]
    yield "overridden", f"by {winner['path']} (source {winner['source']})" if winner else ""
    yield "path", skill.location
    yield "version", meta.version
    yield "author", meta.author
    yield "license", meta.license
    yield "needs", meta.compatibility
    yield "secrets", " ".join(meta.secrets)
    yield "metadata", ", ".join(f"{key}={value}" for key, value in meta.metadata.items())
    yield "tools", tools
    yield "models", "cannot choose it" if controls.disable_model_invocation else "can choose it"
    yield "people", "can call it" if controls.user_invocable else "do not see it"
    yield "runs", "in a child agent" if controls.run_mode == "subagent" else "in the conversation"
    yield from (("file", f"{file['path']} ({counted(file['size'], 'byte')})") for file in found["files"])
    yield "", "… and more files" if len(found["files"]) == MAX_LISTED_FILES else ""
    yield from (("same name", f"{other.path} ({other.reason})") for other in found["shadowed"])
    yield "other fields", ", ".join(skill.extra)
    yield from (("remark", remark(problem)) for problem in skill.diagnostics)


def remark(problem: Problem) -> str:
    """Return the text of a problem with its line."""
    return f"line {problem.line}: {problem.message}" if problem.line else problem.message


def problem_line(problem: Problem, *, with_severity: bool = False) -> str:
    """Return a problem with its line, to print below the skill that it belongs to."""
    style = "red" if problem.severity == "error" else "yellow"
    severity = paint(f"{problem.severity} ", style) if with_severity else ""
    return f"  {severity}{visible(remark(problem))}"
