"""``vade govern``: a charter read, asked, explained, tried in a simulation, gathered from skills."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vademecum.cli.completing import complete_runs
from vademecum.cli.groups import Group
from vademecum.cli.output import counted, json_option, print_json
from vademecum.context import Context
from vademecum.errors import CharterRefused, FileRefused
from vademecum.files import read_capped
from vademecum.governance.charter import Charter
from vademecum.governance.explain import Stage, explain, facts_of_event
from vademecum.governance.ledger import Ledger
from vademecum.governance.loading import Linted, lint_charter, load_charter
from vademecum.governance.model import Actor, ValidationResult
from vademecum.governance.words import shown
from vademecum.runs.reading import read_run, run_ids
from vademecum.runs.record import runs_directory
from vademecum.skill.skill import Problem
from vademecum.skill.text import visible

MAX_STATE_BYTES = 16 * 1024 * 1024
_SIGNS = {True: "✓", False: "✗", None: "·"}

_CHARTER = click.argument("charter", type=click.Path())
_AGENT_OPTIONS = (
    click.option("--type", "agent_type", metavar="TYPE", help="The agent's type."),
    click.option("--agent", default="agent", show_default=True, help="The agent's id."),
    click.option(
        "--state", default="{}", metavar="JSON", help="The agent's state, or @FILE; world in it is shared."
    ),
    click.option(
        "--param", "params", multiple=True, metavar="NAME=VALUE", help="What the intent says; repeatable."
    ),
    click.option("--step", type=int, default=0, show_default=True, help="The present step."),
    click.option(
        "--last", multiple=True, metavar="SKILL=STEP", help="When the agent did a skill; repeatable."
    ),
)


def _agent_options(command: Any) -> Any:
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


@click.group("govern", cls=Group, invoke_without_command=True)
@click.pass_context
def govern_command(context: click.Context) -> None:
    """Work with charters: who may do what, when, at what cost, and changing what."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@govern_command.command("lint")
@click.argument("charters", nargs=-1, required=True, type=click.Path())
@json_option
def lint_command(*, charters: tuple[str, ...], as_json: bool) -> int:
    """Read charters and say everything that is wrong, with lines.

    Exit code 1: something is. Exit code 4: one of them is not there.
    """
    found = {path: _linted(path) for path in charters}
    if as_json:
        print_json([{"path": path, **linted.to_json()} for path, linted in found.items()])
    else:
        for path, linted in found.items():
            for problem in linted.problems:
                where = path if problem.line is None else f"{path}:{problem.line}"
                click.echo(visible(f"{where}: {problem.severity} {problem.code}: {problem.message}"))
            verdict = "valid" if linted.valid else "not valid"
            click.echo(f"{_SIGNS[linted.valid]} {visible(path)} {verdict}, {counted(linted.skills, 'skill')}")
    codes = {problem.code for linted in found.values() for problem in linted.problems}
    return 4 if "no-charter" in codes else 0 if all(linted.valid for linted in found.values()) else 1


def _linted(path: str) -> Linted:
    """What is wrong with one charter, also where it cannot even be read: the others are still looked at."""
    try:
        return lint_charter(path)
    except CharterRefused as error:
        return Linted(None, None, (Problem(code=error.code, severity="error", message=str(error)),))


@govern_command.command("check")
@_CHARTER
@click.argument("skill")
@_agent_options
@json_option
def check_command(*, charter: str, skill: str, as_json: bool, **words: Any) -> int:
    """Ask whether an agent may do SKILL now. Exit code 3: it may not."""
    asked = _Asked(load_charter(charter), skill, **words)
    result, possible = asked.check(), asked.feasible()
    if as_json:
        print_json({"skill_id": skill, **result.to_json(), "feasible": possible})
    elif result:
        click.echo(f"✓ {visible(skill)} is allowed for {visible(asked.actor.type)}")
    else:
        click.echo(f"✗ {visible(skill)} is denied for {visible(asked.actor.type)}")
        for reason in result.reasons:
            click.echo(f"  {reason.code}: {visible(reason.message)}")
        click.echo(f"  possible now: {visible(', '.join(possible)) or 'nothing'}")
    return 0 if result else 3


@govern_command.command("explain")
@_CHARTER
@click.argument("skill", required=False)
@_agent_options
@click.option("--event", type=int, metavar="N", help="Explain event N of a run instead.")
@click.option(
    "--run", "run_id", metavar="RUN_ID", shell_complete=complete_runs, help="Which run; else the latest."
)
@json_option
def explain_command(
    *, charter: str, skill: str | None, event: int | None, run_id: str | None, as_json: bool, **words: Any
) -> int:
    """Go through the gate clause by clause: what was found, what it takes. Exit code 3: it is denied.

    With --event a recorded intent is explained, from what the record says of it.
    """
    held = load_charter(charter)
    if event is not None:
        directory = runs_directory(Context.current())
        known = run_ids(directory)
        stages, about = facts_of_event(
            held, read_run(directory, run_id or (known[-1] if known else "none")), event
        )
    elif skill is None:
        raise click.UsageError("Name a SKILL, or a recorded intent with --event N.")
    else:
        asked = _Asked(held, skill, **words)
        stages = explain(
            held, skill, asked.actor, asked.params, world=asked.world, step=asked.step, ledger=asked.ledger
        )
        about = f"{asked.actor.id} ({asked.actor.type}) wants {skill} at step {asked.step}"
    return _show_stages(stages, about, as_json=as_json)


def _show_stages(stages: list[Stage], about: str, *, as_json: bool) -> int:
    denied = [stage for stage in stages if stage.holds is False]
    if as_json:
        print_json({"about": about, "allowed": not denied, "stages": [stage.to_json() for stage in stages]})
        return 3 if denied else 0
    click.echo(visible(about))
    width = max(len(stage.name) for stage in stages)
    for stage in stages:
        click.echo(f"  {_SIGNS[stage.holds]} {stage.name:{width}}  {visible(stage.text)}")
        for reason in stage.reasons:
            required = reason.required if isinstance(reason.required, str) else shown(reason.required)
            click.echo(
                f"    {' ' * width}  {reason.code}: {visible(reason.message)}; it takes {visible(required)}"
            )
    click.echo("denied" if denied else "allowed")
    return 3 if denied else 0


class _Asked:
    """What a person typed about an agent."""

    def __init__(  # noqa: PLR0913 - one for each option
        self,
        charter: Charter,
        skill: str,
        *,
        agent_type: str | None,
        agent: str,
        state: str,
        params: tuple[str, ...],
        step: int,
        last: tuple[str, ...],
    ) -> None:
        if agent_type is None:
            raise click.UsageError("Say which kind of agent asks: --type TYPE.")
        whole = dict(_object(state))
        world = whole.pop("world", {})
        self.world: Mapping[str, Any] = world if isinstance(world, dict) else {}
        self.actor = Actor(agent, agent_type, whole)
        self.params = dict(map(_pair, params))
        self.step = step
        self.ledger = Ledger()
        for name, value in map(_pair, last):
            if type(value) is not int:
                raise click.BadParameter(f"{value!r} is not a step: write SKILL=NUMBER", param_hint="--last")
            self.ledger.of(agent).last[name] = value
        self._charter = charter
        self._skill = skill

    def check(self) -> ValidationResult:
        around = {"world": self.world, "step": self.step, "ledger": self.ledger}
        return self._charter.check(self._skill, self.actor, self.params, **around)  # type: ignore[arg-type]

    def feasible(self) -> list[str]:
        return self._charter.feasible(self.actor, world=self.world, step=self.step, ledger=self.ledger)


def _object(typed: str) -> dict[str, Any]:
    """A JSON object as it was typed, or as the file after @ has it."""
    try:
        text = read_capped(typed[1:], cap=MAX_STATE_BYTES).decode() if typed.startswith("@") else typed
        found = json.loads(text)
    except (OSError, ValueError, RecursionError, FileRefused) as error:
        raise click.BadParameter(f"this is not JSON ({error})", param_hint="--state") from error
    if not isinstance(found, dict):
        raise click.BadParameter("this is not a JSON object", param_hint="--state")
    return found


def _pair(typed: str) -> tuple[str, Any]:
    name, sign, value = typed.partition("=")
    if not sign:
        raise click.BadParameter(f"{typed!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


@govern_command.command("export")
@click.argument("source", type=click.Path(exists=True))
@click.option(
    "-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the charter here."
)
@click.option(
    "--into", "root", type=click.Path(exists=True, file_okay=False), metavar="ROOT", help="The way back."
)
@json_option
def export_command(*, source: str, out: str | None, root: str | None, as_json: bool) -> int:
    """Gather the governance.yaml of a root's skills into one charter, or spread a charter into a root.

    There: vade govern export ROOT -o skill_registry.yaml. And back: vade govern export skill_registry.yaml
    --into ROOT. Exit code 1: something was left out because it is wrong.
    """
    from vademecum.governance.export import DEFINITION_FILE, as_yaml, collect, spread
    from vademecum.governance.loading import charter_of
    from vademecum.governance.registry import SkillRegistry

    if (out is None) is (root is None):
        raise click.UsageError("Say where to: -o FILE for a charter, or --into ROOT for skill directories.")
    if out is not None:
        check_place_of(out)
    if root is not None:
        report = spread(load_charter(source), {skill.name: skill for skill in _skills_in(root)})
    else:
        definitions, report = collect(_skills_in(source))
        if not definitions:
            raise CharterRefused(
                f"No skill in {source} has a {DEFINITION_FILE} that can be used.", code="no-charter"
            )
        from vademecum.files import write_atomic

        text = as_yaml(Charter(SkillRegistry(definitions)).to_json())
        charter_of(text)  # a charter that could not be used is not written
        write_atomic(Path(str(out)), text.encode("utf-8"))
    if as_json:
        print_json({"to": out or root, **report.to_json()})
    else:
        click.echo(f"{counted(len(report.skills), 'definition')} written to {visible(str(out or root))}")
        for name, why in report.left_out.items():
            click.echo(f"  left out {visible(name)}: {visible(why)}")
    return 1 if report.wrong else 0


def check_place_of(file: str) -> None:
    """Whether a file can be written where it is wanted, before anything is done for it."""
    directory = Path(file).absolute().parent
    if not directory.is_dir() or not os.access(directory, os.W_OK) or Path(file).is_dir():
        raise click.BadParameter(f"{file!r} cannot be written: name a file in a directory of yours")


def _skills_in(root: str) -> Any:
    from vademecum.registry.build import build_index
    from vademecum.registry.index import IndexOptions
    from vademecum.registry.roots import Root

    return build_index([Root(Path(root).absolute(), "extra")], IndexOptions()).skills


@govern_command.command("simulate")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--agents", type=click.IntRange(10, 1_000_000), default=1000, show_default=True)
@click.option("--steps", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--model", "model", metavar="KIND:NAME", help="Let a model decide instead of the agents' own rules."
)
@click.option(
    "--report", "page", type=click.Path(dir_okay=False), metavar="FILE", help="[default: NAME.html]"
)
@click.option("--no-record", is_flag=True, help="Keep no record of the outcomes.")
@json_option
def simulate_command(  # noqa: PLR0913 - one for each option
    *,
    directory: str,
    agents: int,
    steps: int,
    seed: int,
    model: str | None,
    page: str | None,
    no_record: bool,
    as_json: bool,
) -> None:
    """Run a simulation with its charter enforced, and once more with the charter only looking on.

    DIRECTORY has a skill_registry.yaml and a simulation.py, whose code is run. The same seed gives the same
    bytes. Every outcome of the enforced run is on record: vade runs replay checks it.
    """
    from vademecum.cli.simulating import Words, simulate

    if page is not None:
        check_place_of(page)
    simulate(Words(Path(directory), agents, steps, seed, model, page, no_record, as_json))
