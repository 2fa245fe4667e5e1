"""Serve skills over MCP (``vade mcp``), and use the skills of MCP servers (``vade source``)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vademecum.cli.approving import known_agent
from vademecum.cli.indexing import IndexWords, index_options
from vademecum.cli.main import group
from vademecum.cli.output.printing import CommandResult, command, json_option, print_json
from vademecum.cli.secrets import typed_secret
from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import ConfigError
from vademecum.registry.mcp_source import McpSource, sources
from vademecum.skill.text import counted, visible

TOKEN = "VADE_MCP_TOKEN"  # noqa: S105 - the name of a variable


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of the standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, with --http.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 for any.")
@click.option("--agent", metavar="NAME", help="Agent whose rules apply (default: the client's name).")
@click.option(
    "--project", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="Work in this directory."
)
@click.option(
    "--direct-tools", is_flag=True, help="Also offer read_file, write_file and the other direct tools."
)
@index_options
@json_option
def mcp_command(  # noqa: PLR0913 - one for each option
    *,
    http: bool,
    host: str,
    port: int,
    agent: str | None,
    project: str | None,
    direct_tools: bool,
    as_json: bool,
    **words: Any,
) -> None:
    """Serve skills to an MCP client, as tools, resources and prompts.

    By default the server uses the standard streams. With --http it serves this machine only, unless --host
    names another address and VADE_MCP_TOKEN contains a token, which clients send as a bearer token.
    """
    try:
        import anyio

        from vademecum.integrations.mcp import serving
        from vademecum.integrations.mcp.server import SkillServer
    except ImportError as error:
        what = f"vade mcp needs the MCP SDK ({error.name} is not installed)"
        raise ConfigError(f"{what}: pip install 'vademecum[mcp]', or '.[mcp]' in a checkout.") from error
    from vademecum.integrations.mcp.clients import Clients
    from vademecum.session.schemas import ALL_TOOLS, SKILL_TOOLS

    if project is not None:
        os.chdir(project)  # the index, the rules and the scripts start there
    context = replace(Context.current(), cwd=Path.cwd())
    if agent is not None:
        known_agent(load_config(context), agent)
    clients = Clients(IndexWords(**words).build, context=context)
    server = SkillServer(clients, agent=agent, tools=ALL_TOOLS if direct_tools else SKILL_TOOLS)

    def ended(number: int, *_: object) -> None:
        """End the records and the process; scripts that still run end with it."""
        clients.abandon()
        os._exit(128 + number)

    def ready(address: str) -> None:
        if as_json:
            print_json({"url": address})
        else:
            click.echo(f"vade: serving skills at {address} (Ctrl-C ends it)", err=True)

    serve = partial(serving.serve_streams, server, ended=ended)
    if http:
        # The server installs its own handlers, and passes the signal on to ours when it is done.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ended)
        token = context.env.get(TOKEN, "")
        serve = partial(serving.serve_http, server, host=host, port=port, token=token, ready=ready)
    elif sys.stdin.isatty():
        click.echo("vade: waiting for a client on standard input; Ctrl-C ends it", err=True)
    try:
        anyio.run(serve)
    finally:
        clients.close()


source_command = group("source", "Use the skills of MCP servers.")


@command("add", source_command)
@click.argument("name")
@click.option(
    "--mcp", "address", required=True, metavar="COMMAND|URL", help="How to start or reach the server."
)
@click.option("--token", "has_token", is_flag=True, help="Ask for a bearer token and store it as a secret.")
def add_command(*, name: str, address: str, has_token: bool) -> CommandResult:
    """Add an MCP server under a name, and list its skills. vade reads nothing else from it.

    Its skills have the source mcp:NAME. Your own skills with the same names take precedence.
    """
    source = McpSource(name, Context.current())
    source.add(address, token=typed_secret("the token").strip() if has_token else "")
    return CommandResult(source, _lines(source))


@command("list", source_command)
def list_command() -> CommandResult:
    """List the servers and the number of their skills; vade refresh updates the list."""
    found = sources(Context.current())
    lines = [line for source in found for line in _lines(source)]
    none = ["No sources. Add one: vade source add NAME --mcp 'COMMAND or URL'"]
    return CommandResult({"sources": found}, lines or none)


def _lines(source: McpSource) -> Iterator[str]:
    shown = source.to_json()
    yield f"mcp:{source.name}  {counted(len(shown['skills']), 'skill')}  {visible(shown['mcp'])}"
    yield from (f"  left out: {visible(problem)}" for problem in shown["left_out"])


@command("remove", source_command)
@click.argument("name")
def remove_command(*, name: str) -> CommandResult:
    """Remove a server and its token. Installed copies of its skills stay."""
    McpSource(name, Context.current()).remove()
    return CommandResult({"removed": name}, [f"Removed mcp:{name}"])
