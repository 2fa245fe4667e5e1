"""``vade link`` and ``vade unlink``: skills where other agents look for them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from vademecum.cli.approving import approver_for
from vademecum.cli.indexing import IndexWords, index_options, name_argument, scope_option, scope_root
from vademecum.cli.output.printing import CommandResult, command, yes_option
from vademecum.config import COMPATIBLE, Compatible, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, Denied, PackRefused
from vademecum.packs.links import Base, LinkResult, link, unlink
from vademecum.policy.base import Effect, Request
from vademecum.policy.engine import Policy
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants, grants_file
from vademecum.registry.index import SkillIndex
from vademecum.skill.assets import list_assets, skill_digest
from vademecum.skill.skill import Skill
from vademecum.skill.text import visible
from vademecum.wildcards import comparable

_SAID = {
    "linked": "Linked: {place}",
    "refreshed": "Refreshed: {place}",
    "there": "Already there: {place}",
    "removed": "Removed: {place}",
    "gone": "Forgotten: {place} was gone already",
    "other": "Forgotten: {place} is something else by now, and stays",
}

_scope = scope_option("The agents' directories in the project, or in the home directory.")


_AGENT = click.Choice(COMPATIBLE)
_FOR_AGENT = "For this agent; repeatable."


@command("link")
@name_argument("names", nargs=-1)
@click.option("--to", "agents", multiple=True, required=True, type=_AGENT, help=_FOR_AGENT)
@click.option("--all", "everything", is_flag=True, help="All skills that a person may call by name.")
@_scope
@yes_option
@index_options
def link_command(
    *,
    names: tuple[str, ...],
    agents: tuple[Compatible, ...],
    everything: bool,
    scope: str,
    yes: bool,
    **words: Any,
) -> CommandResult:
    """Put links to skills where another agent looks for them."""
    _check_names(names, everything=everything)
    context = Context.current()
    config = load_config(context)
    if not config.settings.scan.follow_links:
        raise ConfigError(
            "scan.follow_links is off, so linked skills would be left out here: turn it on first."
        )
    index = IndexWords(**words).build(config=config)
    base = _base(scope, context)
    gate = Gate(
        Policy.load(context, config=config),
        project=context.project,
        grants=Grants(grants_file(context)),
        approver=approver_for(yes=yes),
    )
    skills, left_out = _chosen(names, index, gate)
    done = link(skills, base, agents=agents)
    lines = [*_shown(done, context), *(f"Left out: {one['name']} ({one['reason']})" for one in left_out)]
    document = {"scope": scope, "links": done, "left_out": left_out}
    return CommandResult(document, map(visible, lines))


@command("unlink")
@click.argument("names", nargs=-1)
@click.option("--to", "agents", multiple=True, type=_AGENT, help=_FOR_AGENT)
@click.option("--all", "everything", is_flag=True, help="Everything that vade link made here.")
@_scope
def unlink_command(
    *, names: tuple[str, ...], agents: tuple[Compatible, ...], everything: bool, scope: str
) -> CommandResult:
    """Take away what vade link made, and nothing else."""
    _check_names(names, everything=everything)
    context = Context.current()
    chosen = None if everything else [comparable(name) for name in names]
    done = unlink(chosen, _base(scope, context), agents=agents)
    lines = _shown(done, context) or ["Nothing is linked here"]
    return CommandResult({"scope": scope, "links": done}, map(visible, lines))


def _check_names(names: tuple[str, ...], *, everything: bool) -> None:
    if bool(names) == everything:
        raise click.UsageError("Name the skills, or say --all.")


def _base(scope: str, context: Context) -> Base:
    """Return the project or the home directory; in the home directory both are the same."""
    base = os.path.realpath(scope_root(scope, context).parent.parent)
    return Base(Path(base), at_home=base == os.path.realpath(context.home))


def _chosen(
    names: tuple[str, ...], index: SkillIndex, gate: Gate
) -> tuple[list[Skill], list[dict[str, str]]]:
    """Return the skills that may be linked, and of all of them those that may not, with the reason."""
    chosen: dict[str, Skill] = {}
    left_out = []
    for skill in [index.get(name) for name in names] or index.for_people():
        if chosen.setdefault(skill.name, skill).location != skill.location:
            raise PackRefused(f"Two of these skills are called {skill.name!r}: link one of them.")
        try:
            _require(skill, gate)
        except Denied as error:
            if names:
                raise
            del chosen[skill.name]
            left_out.append({"name": skill.name, "reason": error.in_full.rstrip(".")})
    return list(chosen.values()), left_out


def _require(skill: Skill, gate: Gate) -> None:
    """Ask for the skill and for each of its files: the directory gives access to all of them."""
    requests = [Request("skill", (skill.name,), origin="user", skill=skill.name)]
    for asset in list_assets(skill):
        request = Request("resource", (f"{skill.name}/{asset}",), origin="user", skill=skill.name)
        if gate.policy.decide(request).effect is not Effect.ALLOW:
            requests.append(request)
    gate.require(*requests, digest=partial(skill_digest, skill))


def _shown(done: list[LinkResult], context: Context) -> list[str]:
    """Return a line for each place, named as a person here would type it."""
    lines = []
    for one in done:
        below = os.path.relpath(one.place, context.cwd)
        lines.append(_SAID[one.action].format(place=one.place if below.startswith("..") else below))
    return lines
