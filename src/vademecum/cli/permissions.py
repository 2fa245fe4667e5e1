"""Implement ``vade permissions`` and ``vade trust``."""

from __future__ import annotations

import time
from typing import Any

import click

from vademecum.cli.approving import agent_option, known_agent
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.main import group
from vademecum.cli.output.printing import CommandResult, command
from vademecum.config import PERMISSIONS, TOOLS, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SkillNotFound
from vademecum.nearest import there_is_no
from vademecum.policy.base import Effect, Request
from vademecum.policy.gate import said
from vademecum.policy.grants import Grants, Trust, grants_file
from vademecum.skill.text import counted, visible

permissions_command = group("permissions", "Show what is allowed here and why, and the remembered answers.")


@command("explain", permissions_command)
@click.argument("permission")
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE...")
@agent_option
@index_options
def explain_command(
    *, permission: str, resources: tuple[str, ...], agent: str, **words: Any
) -> CommandResult:
    """Show whether a request is allowed, which rule decides, and what would allow it.

    PERMISSION is skill, resource, script, command, tool, read, write, delete, network, private-network,
    script-network, packages or secret. A run gets the same answer.
    Exit code 0: allowed, 3: denied, or allowed only if you approve it.
    """
    from vademecum.session.base import Place
    from vademecum.session.direct import explain
    from vademecum.session.session import Session

    context = Context.current()
    if permission not in PERMISSIONS:
        raise ConfigError(there_is_no("permission", permission, PERMISSIONS))
    for tool in resources if permission == "tool" else ():
        if tool not in TOOLS:
            raise ConfigError(there_is_no("tool", tool, TOOLS))
    config = load_config(context)
    known_agent(config, agent)
    request = Request(permission, resources, agent=agent)
    index, place = IndexWords(**words).build(context, config), Place.at(context, config=config)
    session = Session(index, place=place, agent=agent, recording=False)
    decision = explain(session, permission, resources)
    grants = [
        grant
        for grant in Grants(grants_file(context)).all()
        if (grant.permission, grant.agent) == (permission, agent)
        and grant.resource in resources
        and grant.project in {"", str(context.project)}
    ]
    lines = [said([request], decision)]
    if decision.effect is Effect.ASK:
        lines += [f"answer {grant.id} is remembered for it, unless the skill has changed" for grant in grants]
    for name in resources if permission == "skill" else ():
        try:
            index.get(name)
        except SkillNotFound as error:
            lines.append(visible(str(error)))
    code = 0 if decision.effect is Effect.ALLOW else 3
    return CommandResult({**decision.to_json(), "remembered": grants}, lines, code)


@command("list", permissions_command)
def list_command() -> CommandResult:
    """List the remembered answers."""
    found = Grants(grants_file(Context.current())).all()
    lines = []
    for grant in found:
        day = time.strftime("%Y-%m-%d", time.localtime(grant.created))
        where = f"in {visible(grant.project)}" if grant.project else "everywhere"
        lines.append(f"{grant.id}  {grant.permission} {visible(grant.resource)}  {where}, since {day}")
    return CommandResult({"grants": found}, [*lines, counted(len(found), "remembered answer")])


@command("revoke", permissions_command)
@click.argument("number", type=int)
def revoke_command(*, number: int) -> CommandResult:
    """Forget one remembered answer, by its number in the list."""
    if not Grants(grants_file(Context.current())).revoke(number):
        raise SkillNotFound(f"There is no remembered answer {number}: `vade permissions list` shows them.")
    return CommandResult({"revoked": number}, [f"Forgotten: {number}"])


@command("trust")
@click.option("--remove", is_flag=True, help="Stop trusting it.")
def trust_command(*, remove: bool) -> CommandResult:
    """Accept the `allow` rules of this project's configuration, until the file changes."""
    context = Context.current()
    config = load_config(context)
    file = config.project_file
    if file is None:
        raise ConfigError("This project has no .agent/config.json to trust: write one first.")
    trust = Trust(grants_file(context))
    if remove:
        trust.remove(file)
    else:
        trust.add(file)
    rules = [f"{rule.effect} {rule.permission} {rule.pattern}" for rule in config.loosening]
    lines = [f"{'No longer trusted' if remove else 'Trusted'}: {visible(str(file))}"]
    lines += [f"  {visible(rule)}" for rule in rules]
    return CommandResult({"file": file, "trusted": not remove, "allows": rules}, lines)
