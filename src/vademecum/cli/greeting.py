"""Implement ``vade`` without a command: what was found here, and three commands to try next."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from vademecum.cli.indexing import IndexWords
from vademecum.cli.output.printing import counted, paint, print_json
from vademecum.context import Context
from vademecum.errors import VademecumError
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import runs_directory
from vademecum.runs.stored import run_ids
from vademecum.skill.text import visible
from vademecum.version import VERSION

WRONG_USE = 2
MAX_LOOKED_AT = 200

_WHERE = {
    "extra": "named by you",
    "project": "of this project",
    "user": "of yours",
    "package": "of packages",
    "builtin": "built in",
}
# A file name that needs no quotes in a shell, of a kind that a built-in skill can read.
_TABLE = re.compile(r"\w[\w.-]{0,40}\.(csv|tsv)", re.ASCII)

Offer = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Greeting:
    """The skills that were found, a problem if there is one, and commands to try next."""

    sources: dict[str, int]
    left_out: int
    problem: str | None
    offers: tuple[Offer, Offer, Offer]

    def to_json(self) -> dict[str, Any]:
        """Return the greeting as ``vade --json`` prints it."""
        return {
            "version": VERSION,
            "skills": sum(self.sources.values()),
            "sources": self.sources,
            "left_out": self.left_out,
            "problem": self.problem,
            "next": [{"command": command, "why": why} for command, why in self.offers],
        }


def greet(*, as_json: bool) -> int:
    """Print the greeting. Return exit code 2 if the configuration is wrong."""
    greeting = _greeting()
    if as_json:
        print_json(greeting.to_json())
    else:
        _show(greeting)
    return WRONG_USE if greeting.problem else 0


def _greeting() -> Greeting:
    try:
        context = Context.current()
        index = IndexWords((), no_default_roots=False, lenient=False).build()
    except VademecumError as error:
        return Greeting({}, 0, str(error), _once_repaired())
    counts = Counter(skill.source for skill in index.for_people())
    sources = {source: counts[source] for source in _WHERE if counts[source]}
    return Greeting(sources, len(index.report.ignored), None, _offers(index, context))


def _once_repaired() -> tuple[Offer, Offer, Offer]:
    return (
        ("vade doctor", "what is wrong, and what to do about it"),
        ("vade list", "then: the skills, and what they are for"),
        ('vade search "compare two files"', "then: the one that fits"),
    )


def _offers(index: SkillIndex, context: Context) -> tuple[Offer, Offer, Offer]:
    """Return three commands, the most useful first."""
    offers: list[Offer] = []
    if index.report.ignored:
        offers.append(("vade doctor", "what was left out and why, with the correction"))
    if all(skill.source == "builtin" for skill in index.for_people()):
        offers.append(("vade new my-skill", "write a skill of your own"))
    if run_ids(runs_directory(context)):
        offers.append(("vade runs show", "what the last run did, step by step"))
    offers += [
        (f'vade run "{_request(context)}"', "do a task with the skill that fits"),
        ('vade search "compare two files"', "find the skill that fits"),
        ("vade list", "the skills, and what they are for"),
    ]
    return offers[0], offers[1], offers[2]


def _request(context: Context) -> str:
    """Return a request that works here without a key."""
    try:
        with os.scandir(context.cwd) as listing:
            names = sorted(entry.name for entry in islice(listing, MAX_LOOKED_AT))
    except OSError:
        names = []
    table = next(filter(_TABLE.fullmatch, names), None)
    return f"Summarise {table}" if table else "Compare old.txt with new.txt"


def _show(greeting: Greeting) -> None:
    name, help_ = paint("Vademecum", "1;36"), paint("(vade --help: all commands)", "2")
    click.echo(f"{name} {VERSION} finds, checks, searches and runs Agent Skills {help_}")
    click.echo()
    if greeting.problem:
        click.echo(f"{paint('✗', '31')} {visible(greeting.problem)}")
    else:
        by_source = ", ".join(f"{number:,} {_WHERE[source]}" for source, number in greeting.sources.items())
        found = counted(sum(greeting.sources.values()), "skill")
        click.echo(f"{paint('✓', '32')} {found}{f': {by_source}' if by_source else ''}")
    if greeting.left_out:
        click.echo(f"{paint('!', '33')} {greeting.left_out:,} left out")
    click.echo()
    width = max(len(command) for command, _ in greeting.offers)
    for command, why in greeting.offers:
        click.echo(f"  {paint(command, '1')}{' ' * (width - len(command))}  {paint(why, '2')}")
