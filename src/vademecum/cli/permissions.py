"""``vade permissions``: what is allowed here, which rule says so, and which answers are remembered."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output.groups import Group
from vademecum.cli.output.printing import counted, json_option, print_json
from vademecum.config import PERMISSIONS, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SkillNotFound
from vademecum.nearest import meant, nearest
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.base import Effect, Request
from vademecum.policy.gate import said
from vademecum.policy.grants import Grants, Trust, grants_file
from vademecum.session.base import project_of
from vademecum.skill.text import escaped, visible

_ONCE, _RUN = Answer("once"), Answer("always", scope="run")
_PROJECT, _USER = Answer("always", scope="project"), Answer("always", scope="user")
# Whole words only: somebody who types "reject" does not mean the first letter of "run".
_ANSWERS = {"o": _ONCE, "once": _ONCE, "y": _ONCE, "yes": _ONCE, "r": _RUN, "run": _RUN}
_ANSWERS |= {"a": _PROJECT, "always": _PROJECT, "u": _USER, "user": _USER}
_EXPLAINED = "  Type one of these letters; n and a reason tells the model why. Nothing happens until you do."
_NO = frozenset({"n", "no", "nope", "reject", "deny", "refuse", "cancel", "abort", "never", "stop"})
_CHOICES = "  allow [o]nce, for this [r]un, [a]lways in this project, always for this [u]ser, or [n]o"


def approver_for(*, yes: bool, replay: str) -> Approver:
    """Return the approver: ``--yes``, the person at the terminal, or ``None``."""
    if yes:
        return Consent()
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalApprover()
    return Nobody(replay)


class TerminalApprover:
    """Asks the person at the terminal; Enter alone approves nothing."""

    def ask(self, question: Question) -> Answer:
        """Show what is wanted, why it is asked and what would happen, and wait for a clear answer."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)  # where a line of progress may stand
        click.echo(f"{visible(question.wanted)}", err=True)
        click.echo(f"  asked because of {visible(question.decision.reason)}", err=True)
        for line in question.about.splitlines():
            click.echo(f"  | {escaped(line.expandtabs(4))}", err=True)
        while True:
            try:
                typed = click.prompt(_CHOICES, default="", show_default=False, err=True).strip()
            except click.Abort:
                raise KeyboardInterrupt from None
            word, _, rest = typed.partition(" ")
            if typed.lower() in _ANSWERS:
                return _ANSWERS[typed.lower()]
            if word.lower().rstrip(".,!") in _NO:
                return Answer("reject", rest)
            click.echo(_EXPLAINED, err=True)


@click.group("permissions", cls=Group, invoke_without_command=True)
@click.pass_context
def permissions_command(context: click.Context) -> None:
    """Show what is allowed here, which rule says so, and which answers are remembered."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@permissions_command.command("explain")
@click.argument("permission")
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE...")
@click.option("--agent", default="default", show_default=True, help="Agent whose permission rules apply.")
@click.option("--origin", type=click.Choice(["model", "user", "nested"]), default="model", show_default=True)
@index_options
@json_option
def explain_command(
    *, permission: str, resources: tuple[str, ...], agent: str, origin: Any, as_json: bool, **words: Any
) -> int:
    """Say what would happen to a request, because of which rule, and what would allow it.

    PERMISSION is skill, resource, script, command, tool, read, write, delete, network, private-network,
    script-network, packages or secret. The answer is the one that a run would get.
    Exit code 0: allowed, 3: not without being asked.
    """
    from vademecum.session.act import explain
    from vademecum.session.base import Place
    from vademecum.session.session import Session

    context = Context.current()
    known_permission(permission)
    known_agent(context, agent)
    request = Request(permission, resources, origin=origin, agent=agent)
    session = Session(IndexWords(**words).build(), place=Place.at(context), agent=agent, recording=False)
    decision = explain(session, permission, resources)
    grants = [
        grant
        for grant in Grants(grants_file(context)).all()
        if (grant.permission, grant.agent) == (permission, agent)
        and grant.resource in resources
        and grant.project in {"", str(project_of(context))}
    ]
    if as_json:
        print_json({**decision.to_json(), "remembered": [grant.to_json() for grant in grants]})
    else:
        click.echo(said(request, decision))
        for grant in grants if decision.effect is Effect.ASK else ():
            click.echo(f"answer {grant.id} is remembered for it, for the skill as it was then")
    return 0 if decision.effect is Effect.ALLOW else 3


def known_permission(permission: str) -> None:
    """Refuse a permission that does not exist."""
    if permission not in PERMISSIONS:
        hint = meant(nearest(permission, PERMISSIONS), otherwise=f"there are {', '.join(PERMISSIONS)}.")
        raise ConfigError(f"There is no permission {permission!r}: {hint}")


def known_agent(context: Context, name: str) -> None:
    """Refuse the name of an agent that no configuration has: no rule would apply to it."""
    config = load_config(context)
    known = ["default", *config.user.agents, *config.project.agents]
    if name not in known:
        hint = meant(nearest(name, known), otherwise=f"there are {', '.join(dict.fromkeys(known))}.")
        raise ConfigError(f"No agent {name!r} is configured: {hint}")


@permissions_command.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List the answers that are remembered."""
    found = Grants(grants_file(Context.current())).all()
    if as_json:
        print_json({"grants": [grant.to_json() for grant in found]})
        return
    for grant in found:
        day = time.strftime("%Y-%m-%d", time.localtime(grant.created))
        where = f"in {visible(grant.project)}" if grant.project else "everywhere"
        click.echo(f"{grant.id}  {grant.permission} {visible(grant.resource)}  {where}, since {day}")
    click.echo(f"{counted(len(found), 'remembered answer')}")


@permissions_command.command("revoke")
@click.argument("number", type=int)
@json_option
def revoke_command(*, number: int, as_json: bool) -> None:
    """Forget one remembered answer, by its number in the list."""
    if not Grants(grants_file(Context.current())).revoke(number):
        raise SkillNotFound(f"There is no remembered answer {number}: `vade permissions list` shows them.")
    if as_json:
        print_json({"revoked": number})
    else:
        click.echo(f"Forgotten: {number}")


@click.command("trust")
@click.option("--remove", is_flag=True, help="Withdraw the trust.")
@json_option
def trust_command(*, remove: bool, as_json: bool) -> None:
    """Let this project's configuration allow things, as it is now; a change asks for trust again."""
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
    if as_json:
        print_json({"file": str(file), "trusted": not remove, "allows": rules})
        return
    click.echo(f"{'No longer trusted' if remove else 'Trusted'}: {visible(str(file))}")
    for rule in rules:
        click.echo(f"  {visible(rule)}")
