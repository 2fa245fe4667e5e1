"""``vade mcp``: the skills of this place for any client of the Model Context Protocol."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.output import json_option, print_json
from vademecum.cli.permissions import known_agent
from vademecum.context import Context
from vademecum.errors import ConfigError

TOKEN = "VADE_MCP_TOKEN"  # noqa: S105 - the name of a variable


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of the standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, with --http.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any.")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Let pages of this origin use it; repeatable.",
)
@click.option("--agent", metavar="NAME", help="Whose rules hold; else the name that the client gives itself.")
@click.option(
    "--project", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="Work there, not here."
)
@click.option(
    "--direct-tools", is_flag=True, help="Offer read_file, write_file and the other direct tools as well."
)
@index_options
@json_option
def mcp_command(  # noqa: PLR0913 - one for each option
    *,
    http: bool,
    host: str,
    port: int,
    origins: tuple[str, ...],
    agent: str | None,
    project: str | None,
    direct_tools: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Serve the skills of this place to an agent: as tools, resources and prompts (MCP).

    On the standard streams by default, as clients start it. With --http for this machine only; for others a
    token is needed: VADE_MCP_TOKEN holds it, and clients send it as a bearer token.
    """
    try:
        import anyio

        from vademecum.integrations.mcp import serving
        from vademecum.integrations.mcp.server import SkillServer
    except ImportError as error:
        what = f"The server for other agents needs the MCP SDK ({error.name} is not installed)"
        raise ConfigError(f"{what}: pip install 'vademecum[mcp]', or '.[mcp]' in a checkout.") from error
    from vademecum.integrations.mcp.clients import Clients
    from vademecum.session.schemas import ALL_TOOLS, SKILL_TOOLS

    if project is not None:
        os.chdir(project)  # the index, the rules and the scripts all begin there
    context = replace(Context.current(), cwd=Path.cwd())
    if agent is not None:
        known_agent(context, agent)
    clients = Clients(IndexWords(**words).build, context=context)
    server = SkillServer(clients, agent=agent, tools=ALL_TOOLS if direct_tools else SKILL_TOOLS)

    def ended(number: int) -> None:
        """Nothing is left of scripts when we are gone: their lives are bound to ours."""
        clients.abandon()
        os._exit(128 + number)

    try:
        if http:
            # The server puts handlers of its own in place, and gives the signal back to ours when it is done.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda received, _: ended(received))
            token = context.env.get(TOKEN, "")
            ready = partial(_say_where, as_json=as_json)
            anyio.run(
                partial(
                    serving.serve_http,
                    server,
                    host=host,
                    port=port,
                    token=token,
                    origins=origins,
                    ready=ready,
                )
            )
        else:
            if sys.stdin.isatty():
                click.echo("vade: waiting for a client on standard input; Ctrl-C ends it", err=True)
            anyio.run(partial(serving.serve_streams, server, ended=ended))
    finally:
        clients.close()
    return 0


def _say_where(address: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": address})
    else:
        click.echo(f"vade: serving skills at {address} (Ctrl-C ends it)", err=True)
    sys.stdout.flush()
