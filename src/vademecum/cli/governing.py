"""Lint, check and explain a charter, and run a simulation under it (``vade govern``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from vademecum.cli.indexing import complete_runs, html_option, model_option, repeatable, together
from vademecum.cli.main import group
from vademecum.cli.output.printing import CommandResult, ProgressBar, command
from vademecum.cli.output.skill_text import table_lines
from vademecum.cli.runs import run_or_latest
from vademecum.context import Context
from vademecum.errors import CharterRefused, FileRefused, VademecumError
from vademecum.files import read_capped, write_atomic
from vademecum.governance.audit import Audit, Stage, explain_event, stages_of
from vademecum.governance.charter import Linted, lint_charter, load_charter
from vademecum.governance.definitions import Actor, shown
from vademecum.governance.state import Ledger
from vademecum.masking import Secrets
from vademecum.models import choose_model
from vademecum.runs.record import Record, new_run, runs_directory
from vademecum.simulation.setting import PROGRAM, Setting, Simulate, Simulated, load_simulation
from vademecum.skill.skill import Problem
from vademecum.skill.text import counted, visible

MAX_STATE_BYTES = 16 * 1024 * 1024
_SIGNS = {True: "✓", False: "✗", None: "·"}

_CHARTER = click.argument("charter", type=click.Path())
_agent_options = together(
    click.option("--type", "agent_type", metavar="TYPE", help="The agent's type."),
    click.option("--agent", default="agent", show_default=True, help="The agent's id."),
    click.option(
        "--state",
        default="{}",
        metavar="JSON",
        help="The agent's state, or @FILE; its key world is the shared state.",
    ),
    repeatable("--param", "NAME=VALUE", "Parameter of the intent", name="params"),
    click.option("--step", type=int, default=0, show_default=True, help="The current step."),
    repeatable("--last", "SKILL=STEP", "Step at which the agent last did a skill"),
)


govern_command = group("govern", "Work with charters: who may do what, when, and at what cost.")


@command("lint", govern_command)
@click.argument("charters", nargs=-1, required=True, type=click.Path())
def lint_command(*, charters: tuple[str, ...]) -> CommandResult:
    """Read charters and list every problem with its line.

    Exit code 1: a charter has errors. Exit code 4: a charter does not exist.
    """
    found = {path: _linted(path) for path in charters}
    lines = []
    for path, linted in found.items():
        for problem in linted.problems:
            where = path if problem.line is None else f"{path}:{problem.line}"
            lines.append(visible(f"{where}: {problem.severity} {problem.code}: {problem.message}"))
        verdict = "valid" if linted.valid else "not valid"
        lines.append(f"{_SIGNS[linted.valid]} {visible(path)} {verdict}, {counted(linted.skills, 'skill')}")
    codes = {problem.code for linted in found.values() for problem in linted.problems}
    code = 4 if "no-charter" in codes else 0 if all(linted.valid for linted in found.values()) else 1
    return CommandResult([{"path": path, **linted.to_json()} for path, linted in found.items()], lines, code)


def _linted(path: str) -> Linted:
    """Return the problems of one charter; that it cannot be read is one of them."""
    try:
        return lint_charter(path)
    except CharterRefused as error:
        return Linted(None, None, (Problem(code=error.code, severity="error", message=str(error)),))


@command("check", govern_command)
@_CHARTER
@click.argument("skill")
@_agent_options
def check_command(*, charter: str, skill: str, **words: Any) -> CommandResult:
    """Check whether an agent may do SKILL now. Exit code 3: it may not."""
    held, (actor, said, around) = load_charter(charter), _asked(**words)
    result, possible = held.check(skill, actor, said, **around), held.feasible(actor, **around)
    verdict = "allowed" if result else "denied"
    lines = [f"{_SIGNS[result.valid]} {visible(skill)} is {verdict} for {visible(actor.type)}"]
    if not result:
        lines += [f"  {reason.code}: {visible(reason.message)}" for reason in result.reasons]
        lines.append(f"  possible now: {visible(', '.join(possible)) or 'nothing'}")
    document = {"skill_id": skill, **result.to_json(), "feasible": possible}
    return CommandResult(document, lines, 0 if result else 3)


@command("explain", govern_command)
@_CHARTER
@click.argument("skill", required=False)
@_agent_options
@click.option("--event", type=int, metavar="N", help="Explain event N of a run instead.")
@click.option(
    "--run", "run_id", metavar="RUN_ID", shell_complete=complete_runs, help="Default: the latest run."
)
def explain_command(
    *, charter: str, skill: str | None, event: int | None, run_id: str | None, **words: Any
) -> CommandResult:
    """Explain each check: the value found and the value required. Exit code 3: the intent is denied.

    With --event, explain a recorded intent from the values in the record.
    """
    held = load_charter(charter)
    if event is not None:
        stages, about = explain_event(held, run_or_latest(run_id), event)
    elif skill is None:
        raise click.UsageError("Name a SKILL, or a recorded intent with --event N.")
    else:
        actor, said, around = _asked(**words)
        stages = stages_of(held, skill, actor.type, held.check(skill, actor, said, **around))
        about = f"{actor.id} ({actor.type}) wants {skill} at step {around['step']}"
    denied = any(stage.holds is False for stage in stages)
    lines = [visible(about), *_lines_of(stages), "denied" if denied else "allowed"]
    return CommandResult({"about": about, "allowed": not denied, "stages": stages}, lines, 3 if denied else 0)


def _lines_of(stages: list[Stage]) -> Iterator[str]:
    width = max(len(stage.name) for stage in stages)
    for stage in stages:
        yield f"  {_SIGNS[stage.holds]} {stage.name:{width}}  {visible(stage.text)}"
        for reason in stage.reasons:
            required = reason.required if isinstance(reason.required, str) else shown(reason.required)
            takes = "the role allows" if reason.code == "role" else "required:"
            yield f"    {' ' * width}  {reason.code}: {visible(reason.message)}; {takes} {visible(required)}"


def _asked(  # noqa: PLR0913 - one for each option
    *,
    agent_type: str | None,
    agent: str,
    state: str,
    params: tuple[str, ...],
    step: int,
    last: tuple[str, ...],
) -> tuple[Actor, dict[str, Any], dict[str, Any]]:
    """Return the agent, the parameters, and the shared state, step and ledger from the options."""
    if agent_type is None:
        raise click.UsageError("Give the type of the agent: --type TYPE.")
    whole, ledger = _object(state), Ledger()
    world = whole.pop("world", {})
    for name, value in map(_pair, last):
        if type(value) is not int:
            raise click.BadParameter(f"{value!r} is not a step: write SKILL=NUMBER", param_hint="--last")
        ledger.add(name, agent_id=agent, step=value)
    around = {"world": world if isinstance(world, dict) else {}, "step": step, "ledger": ledger}
    return Actor(agent, agent_type, whole), dict(map(_pair, params)), around


def _object(typed: str) -> dict[str, Any]:
    """Parse a JSON object, or read it from the file after @."""
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


@command("simulate", govern_command)
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--agents", type=click.IntRange(10, 1_000_000), default=1000, help="Number of agents (default 1000)."
)
@click.option("--steps", type=click.IntRange(1, 10_000), default=50, help="Number of steps (default 50).")
@click.option("--seed", type=int, default=1, help="Seed of the random numbers (default 1).")
@model_option("--model", help="Let a model decide instead of the agents' own rules.")
@html_option("--report", help="Page to write (default NAME.html).")
@click.option("--no-record", is_flag=True, help="Do not record the outcomes.")
def simulate_command(  # noqa: PLR0913 - one for each option
    *,
    directory: str,
    agents: int,
    steps: int,
    seed: int,
    model: str | None,
    page: str | None,
    no_record: bool,
) -> CommandResult:
    """Run a simulation twice: with its charter enforced, and in shadow mode.

    DIRECTORY contains a skill_registry.yaml and a simulation.py, whose code is run. The same seed gives
    the same result. Every outcome of the enforced run is recorded; vade runs replay checks it.
    """
    from vademecum.simulation.figures import report_of, rows_of  # takes 35 ms to import

    place = Path(directory)
    name = place.absolute().name
    report = Path(page or f"{name}.html")
    if not os.access(report.absolute().parent, os.W_OK) or report.is_dir():
        raise click.BadParameter(f"{str(report)!r} cannot be written: choose a writable directory")
    charter, program = load_charter(place), load_simulation(place)
    request = f"simulate {directory} --agents {agents} --steps {steps} --seed {seed}"
    chosen = choose_model(model) if model else None
    with ProgressBar("simulating") as bar:
        ticks = count(1)
        setting = Setting(
            charter, agents, steps, seed, model=chosen, progress=lambda: bar(next(ticks), 2 * steps)
        )
        if no_record:
            enforced, run_id = _simulated(program, setting, place), None
        else:
            enforced, run_id = _recorded(program, setting, place, request=request, model=model or "rules")
        without = _simulated(program, replace(setting, enforced=False), place)
    runs = {"with the charter": enforced, "without": without}
    about = f"{agents:,} agents, {steps} steps, seed {seed}, charter {charter.digest[:19]}…"
    write_atomic(report, report_of(f"Simulation: {name}", about, runs).encode("utf-8"))
    whole = {"charter": charter.digest, "run_id": run_id, "report": report, "runs": runs}
    record = f"   record: vade runs replay {run_id}" if run_id else ""
    rows = [("", list(runs)), *rows_of(runs)]
    table = table_lines([[(text, "") for text in (name, *cells)] for name, cells in rows])
    return CommandResult(whole, [about, *table, f"report: {report}{record}"])


def _recorded(
    program: Simulate, setting: Setting, directory: Path, *, request: str, model: str
) -> tuple[Simulated, str]:
    """Run the simulation once, record its outcomes, and return the id of the record too."""
    context = Context.current()
    secrets = Secrets(context.env)
    record = Record(new_run(runs_directory(context)), secrets=secrets, clock=lambda: 0.0)
    audit = Audit(record, secrets=secrets)
    record.add("run_started", request=request, model=model, agent="simulation", skills=0)
    found = _simulated(program, replace(setting, audit=audit), directory)
    audit.flush()
    summary = {"status": "done", "stop_reason": "simulated", "answer": "", "stats": dict(found.figures)}
    record.finish({"request": request, **summary})
    return found, record.run_id


def _simulated(program: Simulate, setting: Setting, directory: Path) -> Simulated:
    """Run the simulation once; raise ``CharterRefused`` with its file if its code fails."""
    file = directory / PROGRAM
    try:
        found = program(setting)
    except VademecumError:
        raise
    except (Exception, SystemExit) as error:
        text = f"{file} failed ({type(error).__name__}: {error}): correct it (--debug shows where)."
        raise CharterRefused(text) from error
    if not isinstance(found, Simulated):
        raise CharterRefused(f"simulate() in {file} did not return a Simulated: return one.")
    return found
