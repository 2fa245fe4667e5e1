"""Implement ``vade search``, ``vade show`` and ``vade schema``."""

from __future__ import annotations

from typing import Any

import click

from vademecum.cli.indexing import IndexWords, complete_assets, index_options, name_argument, source_option
from vademecum.cli.output.printing import CommandResult, ProgressBar, command, raised, yes_option
from vademecum.skill.text import escaped_lines, visible


@command("search")
@click.argument("query")
@click.option(
    "-n", "number", type=click.IntRange(1, 1000), default=5, show_default=True, help="Number of results."
)
@click.option("--explain", is_flag=True, help="Show which words matched, in which fields, and how.")
@index_options
def search_command(*, query: str, number: int, explain: bool, **words: Any) -> CommandResult:
    """Find the skills that fit a request, best first."""
    from vademecum.cli.output.skill_text import finding_lines
    from vademecum.search.finder import Finder

    index = IndexWords(**words).build()
    with ProgressBar("reading skills") as progress:
        finder = Finder(index, skills=index.for_people(), progress=progress)
    if finder.problem is not None:
        click.echo(f"vade: {visible(finder.problem.message)}.", err=True)
    if not finder.words(query):
        raise click.UsageError("The query has no words to search for: say what you are looking for.")
    found = finder.find(query, number)
    matches = [finder.explain(query, hit) for hit in found.hits] if explain else []
    printed = found.to_json()
    for result, each in zip(printed["results"], matches, strict=False):
        result["matches"] = each
    note = "No skill clearly fits; these are the nearest. Try other words."
    unsure = found.hits and not found.fits
    told = [f"{note} ({found.confidence:.0%} sure of the first)"] if unsure else []
    return CommandResult(printed, finding_lines(found, matches), told=told)


@command("show")
@name_argument()
@source_option
@click.option(
    "--asset",
    metavar="PATH",
    shell_complete=complete_assets,
    help="File of the skill to print instead, such as references/forms.md.",
)
@click.option("--section", metavar="HEADING", default="", help="Print only this section.")
@yes_option
@click.option("--truncate", is_flag=True, help="Cut a text that is too long instead of refusing it.")
@index_options
def show_command(  # noqa: PLR0913 - one for each option
    *, name: str, source: str | None, asset: str | None, section: str, truncate: bool, yes: bool, **words: Any
) -> CommandResult:
    """Print the body of a skill, or one of its files, as a model gets it."""
    from vademecum.cli.approving import approver_for
    from vademecum.session.base import BodyLimits
    from vademecum.session.session import Session
    from vademecum.tools.calls import LoadSkillAsset

    index = IndexWords(**words).build()
    session = Session(
        index,
        origin="user",
        approver=approver_for(yes=yes),
        limits=BodyLimits(index.options.body_lines, excess="truncate" if truncate else "refuse"),
        recording=False,
    )
    if asset is None:
        loaded = session.show(name, source=source or "", section=section)
    else:
        loaded = raised(session.call(LoadSkillAsset(name, asset, section, source or "")))
    return CommandResult({"text": loaded.text, "report": loaded.report}, [escaped_lines(loaded.text)])


@command("schema")
@click.argument("dialect", type=click.Choice(["openai", "anthropic", "mcp"]))
def schema_command(*, dialect: Any) -> CommandResult:
    """Print the skill tools in the format of a model API."""
    from vademecum.session.schemas import schemas

    return CommandResult(schemas(dialect))
