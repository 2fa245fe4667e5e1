"""``vade permissions``: what is allowed here, which rule says so, and which answers are remembered."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.errors import SkillNotFound
from vademecum.policy.approval import Answer, Approver, Nobody, Question, Verdict
from vademecum.policy.base import Effect, Request
from vademecum.policy.engine import Policy
from vademecum.policy.gate import Gate, said
from vademecum.policy.grants import Grants
from vademecum.skill.text import visible

_ANSWERS: dict[str, Verdict] = {"o": "once", "a": "always", "n": "reject"}


def require(request: Request, *, digest: Callable[[], str]) -> None:
    """Go on only when the rules of this place, a remembered answer or the person at the terminal allow it."""
    context = Context.current()
    approver: Approver = TerminalApprover() if sys.stdin.isatty() and sys.stderr.isatty() else Nobody()
    gate = Gate(Policy.load(context), project=_project(context), grants=grants_of(context), approver=approver)
    gate.require(request, digest=digest)


def grants_of(context: Context) -> Grants:
    """The remembered answers of this user."""
    return Grants(context.home / ".agent" / "grants.db")


class TerminalApprover:
    """Asks the person at the terminal; Enter alone approves nothing."""

    def ask(self, question: Question) -> Answer:
        """Show what is wanted and why it is asked, and wait for a clear answer."""
        request = question.request
        click.echo(f"{request.permission} {visible(', '.join(request.resources))}", err=True)
        click.echo(f"  asked because of {visible(question.decision.reason)}", err=True)
        if question.about:
            click.echo(question.about, err=True)
        while True:
            typed = click.prompt(
                "  allow [o]nce, [a]lways here, or [n]o", default="", show_default=False, err=True
            )
            verdict = _ANSWERS.get(typed.strip().lower()[:1])
            if verdict is not None:
                return Answer(verdict, "the answer was no" if verdict == "reject" else "")


@click.group("permissions")
def permissions_command() -> None:
    """Show what is allowed here, which rule says so, and which answers are remembered."""


@permissions_command.command("explain")
@click.argument("permission")
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE...")
@click.option("--origin", type=click.Choice(["model", "user", "nested"]), default="model", show_default=True)
@json_option
def explain_command(*, permission: str, resources: tuple[str, ...], origin: Any, as_json: bool) -> int:
    """Say what would happen to a request, because of which rule, and what would allow it.

    PERMISSION is skill, resource, script, tool or network. Exit code 0: allowed, 3: not without being asked.
    """
    request = Request(permission, resources, origin=origin)
    decision = Policy.load().decide(request)
    if as_json:
        print_json(decision.to_json())
    else:
        click.echo(said(request, decision))
    return 0 if decision.effect is Effect.ALLOW else 3


@permissions_command.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List the answers that are remembered."""
    found = grants_of(Context.current()).all()
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
    if not grants_of(Context.current()).revoke(number):
        raise SkillNotFound(f"There is no remembered answer {number}: `vade permissions list` shows them.")
    if as_json:
        print_json({"revoked": number})
    else:
        click.echo(f"Forgotten: {number}")


def _project(context: Context) -> Path:
    return next(iter(context.project_directories()[::-1]), context.cwd)
