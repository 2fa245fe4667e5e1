"""Print skills as text: lists, search results and the facts about one skill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vademecum.cli.output.columns import print_rows, terminal_width, wrapped
from vademecum.cli.output.printing import MAX_LISTED_FILES, counted, paint, print_text
from vademecum.skill.text import visible

if TYPE_CHECKING:
    from vademecum.registry.report import LeftOut
    from vademecum.search.finder import Findings, Match
    from vademecum.skill.skill import Problem, Skill

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
MARKS = {"ok": ("✓", GREEN), "note": ("!", YELLOW), "problem": ("✗", RED)}


def print_list(skills: list[Skill], *, hidden: int, left_out: Sequence[LeftOut], doctor: str) -> None:
    """Print skills with their sources and descriptions, then how many are not shown and why."""
    print_rows([(skill.name, skill.source, skill.description) for skill in skills])
    if skills:
        click.echo()
    note = f" ({hidden:,} not meant for people: vade list --all)" if hidden else ""
    click.echo(f"{counted(len(skills), 'skill')}{note}")
    if not skills:
        click.echo("Put one in .agent/skills/, or create one: vade new my-skill")
    roots = sum(entry.reason.code.startswith("root-") for entry in left_out)
    for number, noun, what in ((len(left_out) - roots, "skill", "left out"), (roots, "root", "not searched")):
        if number:
            verb = "was" if number == 1 else "were"
            click.echo(paint(f"{counted(number, noun)} {verb} {what}: {doctor}", YELLOW))


def print_findings(found: Findings, *, terms: set[str], matches: list[list[Match]]) -> None:
    """Print the skills that fit, best first, with the words that matched; say so if none fits."""
    print_rows([(hit.name, hit.source, hit.description) for hit in found.hits], terms=terms)
    for hit, each in zip(found.hits, matches, strict=False):
        click.echo(visible(f"{hit.name} ({hit.score:.2f}):"))
        for match in each:
            through = "" if match.kind == "word" else f" ({match.kind}: {', '.join(match.found)})"
            click.echo(visible(f"{match.word}{through} in {', '.join(match.fields)}"))
    if matches:
        click.echo(f"{found.confidence:.0%} sure that the first one fits")
    if not found.hits:
        click.echo("No skill fits. Try other words; vade list lists all skills.")
    elif not found.fits:
        note = "No skill clearly fits; these are the nearest. Try other words."
        click.echo(f"{note} ({found.confidence:.0%} sure of the first)", err=True)


def print_skill(skill: Skill, found: dict[str, Any]) -> None:
    """Print one skill; ``found`` contains its files, namesakes and, if asked for, its body."""
    click.echo(f"{paint(visible(skill.name), '1;36')} {paint(visible(skill.skill_id), DIM)}")
    click.echo("\n".join(wrapped(visible(skill.description), terminal_width())))
    click.echo()
    for label, text in _facts(skill, found):
        click.echo(f"{paint(f'{label:<14}', DIM)}{visible(text)}")
    if "body" in found:
        click.echo()
        print_text(found["body"].rstrip("\n"))


def _facts(skill: Skill, found: dict[str, Any]) -> list[tuple[str, str]]:
    from vademecum.policy.bounds import Bounds

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
        ("secrets", " ".join(meta.secrets)),
        ("metadata", ", ".join(f"{key}={value}" for key, value in meta.metadata.items())),
        ("tools", tools),
        ("not tools here", ", ".join(Bounds.of(controls.allowed_tools or ()).unknown)),
        ("models", "may not choose it" if controls.disable_model_invocation else "may choose it"),
        ("people", "may call it" if controls.user_invocable else "do not see it"),
        ("runs", "in a child agent" if controls.run_mode == "subagent" else "in the conversation"),
        *(("file", f"{file['path']} ({file['size']:,} bytes)") for file in found["files"]),
        ("", "… and more files" if len(found["files"]) == MAX_LISTED_FILES else ""),
        *(("same name", f"{other['path']} ({other['reason']})") for other in found["shadowed"]),
        ("other fields", ", ".join(skill.extra)),
        *(("remark", remark(problem)) for problem in skill.diagnostics),
    ]
    return [(label, text) for label, text in facts if text]


def remark(problem: Problem) -> str:
    """Return the text of a problem with its line."""
    return f"line {problem.line}: {problem.message}" if problem.line else problem.message


def print_problem(problem: Problem, *, with_severity: bool = False) -> None:
    """Print a problem with its line, below the skill that it belongs to."""
    style = RED if problem.severity == "error" else YELLOW
    severity = paint(f"{problem.severity} ", style) if with_severity else ""
    click.echo(f"  {severity}{visible(remark(problem))}")
