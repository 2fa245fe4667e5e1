"""``vade permissions``: what is allowed here, and which rule says so."""

from __future__ import annotations

from typing import Any

import click

from vademecum.cli.output import json_option, print_json
from vademecum.errors import Denied
from vademecum.policy.base import Decision, Effect, Request
from vademecum.policy.engine import Policy


def require(request: Request) -> None:
    """Go on only when the rules of this place allow it; nobody is asked here, so asking is a refusal."""
    decision = Policy.load().decide(request)
    if decision.effect is not Effect.ALLOW:
        raise Denied(f"{_said(request, decision)}.")


@click.group("permissions")
def permissions_command() -> None:
    """Show what is allowed here, and which rule says so."""


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
        click.echo(_said(request, decision))
    return 0 if decision.effect is Effect.ALLOW else 3


def _said(request: Request, decision: Decision) -> str:
    wanted = f"{request.permission} {', '.join(map(repr, request.resources))}"
    remedy = f"; to allow it, {decision.remedy}" if decision.remedy else ""
    return f"{decision.effect.name.lower()} {wanted}, because {decision.reason}{remedy}"
