"""Run ``vade govern simulate``: two runs, a table, a report and a record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from vademecum.cli.output import print_json
from vademecum.context import Context
from vademecum.errors import CharterRefused, VademecumError
from vademecum.files import write_atomic
from vademecum.governance.audit import Audit
from vademecum.governance.charter import load_charter
from vademecum.masking import Secrets
from vademecum.models.choose import choose_model
from vademecum.runs.record import Record, new_run, runs_directory
from vademecum.simulation.report import figure, report_of
from vademecum.simulation.setting import PROGRAM, Setting, Simulate, Simulated, load_simulation

ENFORCED, LOOKING_ON = "with the charter", "without"


@dataclass(frozen=True, slots=True)
class Words:
    """The options as they were typed."""

    directory: Path
    agents: int
    steps: int
    seed: int
    model: str | None
    page: str | None
    no_record: bool
    as_json: bool


def simulate(words: Words) -> None:
    """Run both, print the table, write the report."""
    charter = load_charter(words.directory)
    program = load_simulation(words.directory)
    with _progress(words.steps * 2) as tick:
        model = choose_model(words.model) if words.model else None
        setting = Setting(charter, words.agents, words.steps, words.seed, model=model, progress=tick)
        enforced, run_id = _recorded(program, setting, words)
        runs = {ENFORCED: enforced, LOOKING_ON: _run(program, replace(setting, enforced=False), words)}
    name = words.directory.absolute().name
    about = f"{words.agents:,} agents, {words.steps} steps, seed {words.seed}, charter {charter.digest[:19]}…"
    page = Path(words.page or f"{name}.html")
    write_atomic(page, report_of(f"Simulation: {name}", about, runs).encode("utf-8"))
    if words.as_json:
        results = {key: run.to_json() for key, run in runs.items()}
        print_json({"charter": charter.digest, "run_id": run_id, "report": str(page), "runs": results})
        return
    click.echo(about)
    _table(runs)
    click.echo(f"report: {page}" + (f"   record: vade runs replay {run_id}" if run_id else ""))


def _recorded(program: Simulate, setting: Setting, words: Words) -> tuple[Simulated, str | None]:
    """Run it enforced, with every outcome recorded unless --no-record was given."""
    if words.no_record:
        return _run(program, setting, words), None
    context = Context.current()
    secrets = Secrets(context.env)
    record = Record(new_run(runs_directory(context)), secrets=secrets, clock=lambda: 0.0)
    audit = Audit(record, secrets=secrets)
    request = f"simulate {words.directory} --agents {words.agents} --steps {words.steps} --seed {words.seed}"
    record.add("run_started", request=request, model=words.model or "rules", agent="simulation", skills=0)
    found = _run(program, replace(setting, audit=audit), words)
    audit.flush()
    summary = {"status": "done", "stop_reason": "simulated", "answer": "", "stats": dict(found.figures)}
    record.add("run_finished", **summary)
    record.finish({"run_id": record.run_id, "request": request, **summary}, "")
    return found, record.run_id


def _run(program: Simulate, setting: Setting, words: Words) -> Simulated:
    """Run the simulation once; an error in its code names its file."""
    file = words.directory / PROGRAM
    try:
        found = program(setting)
    except VademecumError:
        raise
    except (Exception, SystemExit) as error:
        text = f"{file} failed ({type(error).__name__}: {error}): correct it (--debug shows where)."
        raise CharterRefused(text) from error
    if not isinstance(found, Simulated):
        raise CharterRefused(f"simulate() in {file} gave no Simulated: return one.")
    return found


def _table(runs: dict[str, Simulated]) -> None:
    keys = dict.fromkeys(key for run in runs.values() for key in run.figures)
    rows = [("", *runs)] + [(key, *(figure(run.figures.get(key)) for run in runs.values())) for key in keys]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
        ]
        click.echo("  ".join(cells).rstrip())


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=steps, label="simulating", file=sys.stderr) as bar:
        yield lambda: bar.update(1)
