"""Implement ``vade eval run``, ``vade eval init`` and ``vade eval improve``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from vademecum.cli.approving import allow_option
from vademecum.cli.eval.reporting import EvalProgress, eval_command, suites_home, summary_lines
from vademecum.cli.indexing import IndexWords, complete_names, index_options, model_option, name_argument
from vademecum.cli.output.printing import CommandResult, command, yes_option
from vademecum.context import Context
from vademecum.errors import CaseRefused, SkillNotFound
from vademecum.evals import units as ways
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.pool import EvalEngine, Processes
from vademecum.evals.reports.summary import summarise
from vademecum.evals.reports.texts import summary_document
from vademecum.evals.suite import Suite, read_suite
from vademecum.evals.units import SECONDS, Configuration, EvalSettings
from vademecum.files import read_capped
from vademecum.models import choose_model
from vademecum.nearest import meant, nearest
from vademecum.registry.index import SkillIndex
from vademecum.skill.skill import Skill
from vademecum.skill.text import counted, visible
from vademecum.tracing import belonging

MAX_WORKERS = 256
MAX_CANDIDATES_BYTES = 1024 * 1024

_DIRECTORY = click.Path(file_okay=False)
_FILE = click.Path(dir_okay=False)
_PROJECT = click.Path(exists=True, file_okay=False)


_workers_option = click.option(
    "-j",
    "workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    help="Number of parallel runs (default: cores).",
)


@command("run", eval_command)
@click.argument("suite", shell_complete=complete_names)
@model_option(
    "--model",
    "models",
    multiple=True,
    help="offline, openai:NAME, recorded:TAPE, … or mock (default: the mock of each case, else offline); "
    "repeatable: each is compared with the first.",
)
@click.option(
    "--without",
    metavar="SKILL",
    default="",
    shell_complete=complete_names,
    help="Run everything with and without this skill.",
)
@model_option("--judge", default="", help="Model that judges the statements of cases.")
@click.option("--record", "tape", type=_FILE, metavar="TAPE", help="Record the model's replies in this file.")
@click.option("--repeat", type=click.IntRange(1, 1000), help="Run each case N times, overriding `repeat`.")
@click.option("--tag", "tags", multiple=True, help="Run only cases with this tag; repeatable.")
@click.option("--project", type=_PROJECT, help="Project to copy for each run, with its rules.")
@_workers_option
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to run.")
@click.option("--address", default="", help="Address of the Ray cluster (default: start one here).")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400),
    default=SECONDS,
    help="Time limit of a run in seconds (default 600).",
)
@click.option("--retry", is_flag=True, help="Run errors, time-outs and unusable runs again.")
@click.option("--out", type=_DIRECTORY, help="Directory of the results (default .agent/evals/results/SUITE).")
@allow_option
@yes_option
@index_options
def run_command(  # noqa: PLR0913 - one for each option
    *,
    suite: str,
    models: tuple[str, ...],
    without: str,
    judge: str,
    tape: str | None,
    repeat: int | None,
    tags: tuple[str, ...],
    project: str | None,
    workers: int,
    engine: str,
    address: str,
    seconds: float,
    retry: bool,
    out: str | None,
    allow: tuple[str, ...],
    yes: bool,
    **words: Any,
) -> CommandResult:
    """Run the cases of SUITE: a file, a directory, or the name of a skill that has cases.

    Each run has its own copy of the project and its own home. Runs that have a result are skipped: repeat an
    interrupted command to continue. Exit code 0: every run passed, 1: a run did not pass.
    """
    context = Context.current()
    index = IndexWords(**words).build()
    found = _chosen(_suite(suite, index, context), tags=tags, repeat=repeat)
    base = Configuration(
        "default",
        yes=yes,
        allow=tuple(sorted(allow)),
        judge=judge,
        tape=os.path.abspath(tape) if tape else "",
        seconds=seconds,
    )
    wanted = ways.by_model(base, models)
    wanted = ways.with_and_without(wanted, without, index) if without else wanted
    place = Path(out).absolute() if out else suites_home(context) / "results" / found.name
    copied = Path(project).absolute() if project else None
    workshop = EvalSettings(index, place, copied, dict(os.environ))
    for name in {*models, judge} - {"", "case", "mock"}:
        choose_model(name)  # report a wrong name before anything runs
    progress = EvalProgress()
    runs_on: EvalEngine = Processes(workers)
    if engine == "ray":
        from vademecum.evals.on_ray import OnRay

        runs_on = OnRay(workers, address=address or None)
    evaluator = Evaluator(runs_on, workshop, progress=progress, retry=retry)
    try:
        with progress, belonging(f"evaluate {found.name}"):
            evaluation = evaluator.evaluate(found, wanted)
    except KeyboardInterrupt:
        kept = f"{progress.finished:,} of {counted(progress.total, 'run')} are kept"
        click.echo(f"vade: {kept}; the same command continues from there", err=True)
        raise
    summary = summarise(evaluation)
    refused = sum(one.outcome == "fail" and one.status == "refused" for one in evaluation.results)
    said = f"vade: {counted(refused, 'run')} failed because nobody could approve something"
    told = [f"{said}: --yes approves it"] if refused and not yes else []
    code = 0 if summary.is_clean else 1
    return CommandResult(summary_document(evaluation, summary), summary_lines(summary), code, told)


@command("init", eval_command)
@name_argument()
@index_options
def init_command(*, name: str, **words: Any) -> CommandResult:
    """Write a draft suite for the skill NAME to .agent/evals/NAME. Edit it before you run it.

    Its requests come from the description of the skill, its near-misses from similar skills.
    """
    from vademecum.evals.drafting import write_draft

    index = IndexWords(**words).build()
    skill = index.get(name)
    written = write_draft(skill, index, suites_home(Context.current()) / skill.name)
    lines = [f"Wrote {os.path.relpath(written)}", f"Edit it, then: vade eval run {skill.name}"]
    own = Path(skill.location) / "evals"
    if own.is_dir():
        lines.append(f"vade eval runs it instead of the skill's own cases in {visible(str(own))}")
    return CommandResult({"written": [str(written)]}, lines)


@command("improve", eval_command)
@name_argument()
@model_option("--model", "proposer", help="Language model that proposes descriptions.")
@click.option(
    "--candidates",
    type=click.Path(exists=True, dir_okay=False),
    help="File of descriptions: one per line, or a JSON list.",
)
@model_option("--run-model", default="offline", show_default=True, help="Model that runs the cases.")
@_workers_option
@click.option("--write", is_flag=True, help="Write the description into SKILL.md if it is better.")
@index_options
def improve_command(  # noqa: PLR0913 - one for each option
    *,
    name: str,
    proposer: str | None,
    candidates: str | None,
    run_model: str,
    workers: int,
    write: bool,
    **words: Any,
) -> CommandResult:
    """Try other descriptions of the skill NAME on its cases.

    One half of the cases chooses among the candidates; the best is kept only if it wins on the other half
    beyond chance. The difference is shown before anything is written. Exit code 1: none is better.
    """
    from vademecum.evals import drafting

    if bool(proposer) == bool(candidates):
        raise click.UsageError("Use either --model or --candidates.")
    context = Context.current()
    index = IndexWords(**words).build()
    skill = index.get(name)
    suite = _suite(skill.name, index, context)
    if suite.malformed:
        raise CaseRefused(f"{counted(len(suite.malformed), 'case')} cannot be read: {suite.malformed[0]}")
    listed = []
    if candidates:
        listed = drafting.read_candidates(read_capped(candidates, cap=MAX_CANDIDATES_BYTES).decode())
    model = choose_model(proposer) if proposer else None
    with tempfile.TemporaryDirectory(prefix="vade-improve-") as place:
        workshop = EvalSettings(index, Path(place), None, dict(os.environ))
        found = drafting.improve(
            suite,
            lambda failed: drafting.ask_for_candidates(model, skill, failed) if model else listed,
            skill=skill,
            evaluator=Evaluator(Processes(workers), workshop),
            configuration=Configuration("default", model=run_model),
        )
    written = str(drafting.write_description(skill, found.new)) if write and found.is_better else ""
    told = found.comparison.said if found.comparison else "no candidate is better on the first half"
    lines = [
        f"{sign} {visible(text)}  ({found.tuned[text]:.0%} of the first half)"
        for sign, text in (("-", found.old), ("+", found.new))
    ]
    lines.append(f"On the other half: {told}" if found.comparison else f"N{told[1:]}: nothing was changed.")
    if found.is_better:
        lines.append(f"Wrote {os.path.relpath(written)}" if written else "Not written: add --write.")
    document = {"skill": skill.name, "old": found.old, "new": found.new, "better": found.is_better}
    return CommandResult(document | {"said": told, "written": written}, lines, 0 if found.is_better else 1)


def _suite(wanted: str, index: SkillIndex, context: Context) -> Suite:
    """Return the suite at a path, or the suite of a skill: the project's, else the skill's own."""
    if not wanted:
        raise click.UsageError("Name a file or directory of cases, or a skill.")
    if os.path.exists(wanted):
        return read_suite(Path(wanted).absolute())
    named = suites_home(context) / wanted
    if Path(wanted).name == wanted and named.is_dir() and wanted != "results":
        known = {skill.name for skill in index}
        return read_suite(named, name=wanted, skill=wanted if wanted in known else "")
    try:
        skill = index.get(wanted)
    except SkillNotFound as error:
        near = nearest(wanted, (skill.name for skill in index))
        hint = meant(near, otherwise="vade eval init NAME writes a suite for one.")
        message = f"There is neither a file nor a skill {wanted!r}: {hint}"
        raise CaseRefused(message, code="no-suite") from error
    for place in (suites_home(context) / skill.name, Path(skill.location) / "evals"):
        if place.is_dir():
            return read_suite(place, name=skill.name, skill=skill.name)
    _offer(skill, index, suites_home(context) / skill.name)
    raise CaseRefused(
        f"The skill {skill.name!r} has no cases: vade eval init {skill.name} writes a draft.", code="no-suite"
    )


def _offer(skill: Skill, index: SkillIndex, place: Path) -> None:
    """On a terminal, offer to write a draft suite; then stop, because the user must edit it first."""
    asked = f"The skill {visible(skill.name)} has no cases. Write a draft to {os.path.relpath(place)}?"
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if not is_terminal or not click.confirm(asked, default=True, err=True):
        return
    from vademecum.evals.drafting import write_draft

    click.echo(f"Wrote {os.path.relpath(write_draft(skill, index, place))}", err=True)
    raise CaseRefused(f"Edit the draft, then run it: vade eval run {skill.name}.", code="no-suite")


def _chosen(suite: Suite, *, tags: Sequence[str], repeat: int | None) -> Suite:
    kept = [case for case in suite.cases if not tags or set(tags) & set(case.tags)]
    if not kept and tags:
        raise CaseRefused(f"No case of {suite.name} has the tag {', '.join(tags)}.", code="no-suite")
    changed = {} if repeat is None else {"repeat": repeat}
    return structs.replace(suite, cases=tuple(case.model_copy(update=changed) for case in kept))
