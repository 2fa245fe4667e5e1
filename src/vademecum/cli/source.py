"""``vade source``: MCP servers whose skills are used here."""

from __future__ import annotations

import sys

import click

from vademecum.cli.groups import Group
from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.integrations.mcp.source import McpSource, sources
from vademecum.skill.text import visible


@click.group("source", cls=Group, invoke_without_command=True)
@click.pass_context
def source_command(context: click.Context) -> None:
    """Use the skills of MCP servers."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@source_command.command("add")
@click.argument("name")
@click.option(
    "--mcp", "address", required=True, metavar="COMMAND|URL", help="How to start or reach the server."
)
@click.option("--token", "has_token", is_flag=True, help="Ask for a bearer token and keep it as a secret.")
@json_option
def add_command(*, name: str, address: str, has_token: bool, as_json: bool) -> None:
    """Add an MCP server under a name, and list its skills. Nothing else is read from it.

    Its skills have the source mcp:NAME. A skill of your own with the same name goes first.
    """
    token = ""
    if has_token and sys.stdin.isatty():
        token = str(click.prompt("Token", hide_input=True, err=True))
    elif has_token:
        token = sys.stdin.read().strip()
    source = McpSource(name, Context.current())
    source.add(address, token=token)
    _print([source], as_json=as_json, one=True)


@source_command.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List the servers and the number of their skills; vade refresh asks them again."""
    _print(sources(Context.current()), as_json=as_json, one=False)


@source_command.command("remove")
@click.argument("name")
@json_option
def remove_command(*, name: str, as_json: bool) -> None:
    """Remove a server and its token. Installed copies of its skills stay."""
    McpSource(name, Context.current()).remove()
    if as_json:
        print_json({"removed": name})
    else:
        click.echo(f"Removed mcp:{name}")


def _print(found: list[McpSource], *, as_json: bool, one: bool) -> None:
    shown = [source.to_json() for source in found]
    if as_json:
        print_json(shown[0] if one else {"sources": shown})
        return
    for each in shown:
        skills = counted(len(each["skills"]), "skill")
        click.echo(f"mcp:{each['name']}  {skills}  {visible(each['mcp'])}")
        for problem in each["left_out"]:
            click.echo(f"  left out: {visible(problem)}")
    if not shown:
        click.echo("No sources. Add one: vade source add NAME --mcp 'COMMAND or URL'")
