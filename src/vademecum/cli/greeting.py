"""Implement ``vade`` without a command: what was found here, and three commands to try next."""

from __future__ import annotations

import os
import re
from collections import Counter
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
_SEARCH = 'vade search "compare two files"'
_AFTER_A_REPAIR = {
    "vade doctor": "what is wrong, and what to do about it",
    "vade list": "then: the skills, and what they are for",
    _SEARCH: "then: the one that fits",
}


def greet(*, as_json: bool) -> int:
    """Print the greeting. Return exit code 2 if the configuration is wrong."""
    sources, left_out, problem, offers = {}, 0, None, _AFTER_A_REPAIR
    try:
        context = Context.current()
        index = IndexWords((), no_default_roots=False, lenient=False).build()
    except VademecumError as error:
        problem = str(error)
    else:
        counts = Counter(skill.source for skill in index.for_people())
        sources = {source: counts[source] for source in _WHERE if counts[source]}
        left_out, offers = len(index.report.ignored), _offers(index, context)
    found = {
        "version": VERSION,
        "skills": sum(sources.values()),
        "sources": sources,
        "left_out": left_out,
        "problem": problem,
        "next": [{"command": command, "why": why} for command, why in islice(offers.items(), 3)],
    }
    if as_json:
        print_json(found)
    else:
        _show(found)
    return WRONG_USE if problem else 0


def _offers(index: SkillIndex, context: Context) -> dict[str, str]:
    """Return commands to try with what each does, the most useful first."""
    offers = {}
    if index.report.ignored:
        offers["vade doctor"] = "what was left out and why, with the correction"
    if all(skill.source == "builtin" for skill in index.for_people()):
        offers["vade new my-skill"] = "write a skill of your own"
    if run_ids(runs_directory(context)):
        offers["vade runs show"] = "what the last run did, step by step"
    offers[f'vade run "{_request(context)}"'] = "do a task with the skill that fits"
    return offers | {_SEARCH: "find the skill that fits", "vade list": "the skills, and what they are for"}


def _request(context: Context) -> str:
    """Return a request that works here without a key."""
    try:
        with os.scandir(context.cwd) as listing:
            names = sorted(entry.name for entry in islice(listing, MAX_LOOKED_AT))
    except OSError:
        names = []
    table = next(filter(_TABLE.fullmatch, names), None)
    return f"Summarise {table}" if table else "Compare old.txt with new.txt"


def _show(found: dict[str, Any]) -> None:
    name, help_ = paint("Vademecum", "1;36"), paint("(vade --help: all commands)", "2")
    click.echo(f"{name} {VERSION} finds, checks, searches and runs Agent Skills {help_}\n")
    if found["problem"]:
        click.echo(f"{paint('✗', '31')} {visible(found['problem'])}")
    else:
        by_source = ", ".join(f"{number:,} {_WHERE[source]}" for source, number in found["sources"].items())
        skills = counted(found["skills"], "skill")
        click.echo(f"{paint('✓', '32')} {skills}{f': {by_source}' if by_source else ''}")
    if found["left_out"]:
        click.echo(f"{paint('!', '33')} {found['left_out']:,} left out")
    click.echo()
    width = max(len(offer["command"]) for offer in found["next"])
    for offer in found["next"]:
        click.echo(f"  {paint(offer['command'].ljust(width), '1')}  {paint(offer['why'], '2')}")
