"""Check this installation (``vade doctor``), list the roots, and rebuild the index cache."""

from __future__ import annotations

import os
import platform
import shlex
import stat
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from vademecum.cli.indexing import IndexWords, index_options, without_effect
from vademecum.cli.output.printing import counted, json_option, paint, print_json
from vademecum.cli.output.progress import ProgressBar
from vademecum.cli.output.skill_text import BOLD, DIM, MARKS, RED, print_problem, remark
from vademecum.config import LoadedConfig, SandboxName, SecuritySettings, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SandboxFailed, ToolRefused, VademecumError
from vademecum.packs.signing_keys import KEY_DIRECTORY, TRUSTED_DIRECTORY, trusted_files, trusted_in
from vademecum.registry.build import refresh_index
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.skill.text import visible
from vademecum.tools.packages.environments import Environments, EnvironmentUsage
from vademecum.tools.packages.uv import find_uv
from vademecum.version import VERSION

if TYPE_CHECKING:
    from vademecum.sandbox.available import Real


MAX_LISTED_REMARKS = 20

_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


@click.command("roots")
@click.option("--all", "absent_too", is_flag=True, help="Include default roots that do not exist.")
@index_options
@json_option
def roots_command(*, absent_too: bool, as_json: bool, **words: Any) -> None:
    """List the directories that are searched for skills, highest priority first."""
    report = IndexWords(**words).build().report
    if as_json:
        print_json({"roots": [root.to_json() for root in report.roots]})
        return
    _print_roots(report, absent_too=absent_too)


@click.command("refresh")
@click.option("--environments", is_flag=True, help="Also delete the package environments of scripts.")
@index_options
@json_option
def refresh_command(*, environments: bool, as_json: bool, **words: Any) -> None:
    """Rebuild the index cache: read the metadata of every skill again, and list MCP sources again."""
    progress = ProgressBar("reading skills")
    _list_sources_again()
    try:
        before = IndexWords(**words).build()
        index = refresh_index(before, progress=progress)
    finally:
        progress.done()
    removed = Environments(Context.current()).clear() if environments else None
    if as_json:
        changed = before.hash != index.hash
        found = {"report": index.report.to_json(), "hash": index.hash, "changed": changed}
        print_json(found if removed is None else {**found, "environments": asdict(removed)})
        return
    _print_refreshed(index, removed)


def _list_sources_again() -> None:
    from vademecum.integrations.mcp.source import sources

    for source in sources(Context.current()):
        try:
            source.refresh()
        except VademecumError as error:
            click.echo(f"vade: mcp:{source.name} was not listed again: {visible(str(error))}", err=True)


@click.command("doctor")
@click.option(
    "--model",
    "model",
    is_flag=False,
    flag_value="",
    metavar="[KIND:NAME]",
    help="Also call the model once, by default the configured one, and say what works.",
)
@index_options
@json_option
def doctor_command(*, model: str | None, as_json: bool, **words: Any) -> int:
    """Find problems in this installation and project, and print how to fix each.

    Exit code 1: there are problems.
    """
    from vademecum.cli import model_checks

    context = Context.current()
    usage = Environments(context).usage()
    found = [python(), configuration(context)]
    index = IndexWords(**words).build() if found[-1].status == "ok" else None
    if index is not None:
        config = load_config(context)
        found += [rules(config), sandbox(config.settings.execution.sandbox)]
        found += [roots(index.report), cache(index)]
        found += [keys(config.settings.security, context), packages(usage, context)]
        settings = config.settings.model
        if model:
            params = settings.params if model.partition(":")[0] == settings.provider.partition(":")[0] else {}
            settings = replace(settings, provider=model, params=params)
        found += model_checks.model(settings, context)
        if model is not None:
            found += model_checks.called(settings.provider, settings, context)
    left_out = index is not None and index.report.ignored
    healthy = not left_out and all(check.status != "problem" for check in found)
    if as_json:
        print_json(_doctor_json(index, found, usage, healthy=healthy))
    else:
        _print_doctor(index, found)
    return 0 if healthy else 1


def _doctor_json(
    index: SkillIndex | None, found: list[HealthCheck], usage: EnvironmentUsage, *, healthy: bool
) -> dict[str, Any]:
    report = None if index is None else index.report
    remarks = [
        {"name": skill.name, "path": skill.location, "problems": [p.to_json() for p in skill.diagnostics]}
        for skill in (() if index is None else index.skills)
        if skill.diagnostics
    ]
    return {
        "healthy": healthy,
        "checks": [check.to_json() for check in found],
        "left_out": [left_out.to_json() for left_out in (report.ignored if report else ())],
        "conflicts": [conflict.to_json() for conflict in (report.conflicts if report else ())],
        "remarks": remarks,
        "report": report.to_json() if report else None,
        "environments": asdict(usage),
    }


def _print_roots(report: Report, *, absent_too: bool) -> None:
    """Print the roots in their order, with the number of skills in each."""
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        click.echo(f"{row}{visible(str(root.root.path))}")
    if absent := len(report.roots) - len(shown):
        click.echo(paint(f"\n{counted(absent, 'default root')} not there: vade roots --all", DIM))


def _print_refreshed(index: SkillIndex, removed: EnvironmentUsage | None) -> None:
    """Print what was read, and which environments were deleted."""
    report = index.report
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    click.echo(f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out")
    if removed is not None:
        click.echo(f"Removed {counted(removed.number, 'environment')}, {removed.bytes / 1e6:,.1f} MB")


def _print_doctor(index: SkillIndex | None, found: list[HealthCheck]) -> None:
    """Print the checks, then everything that was left out, with its line and its correction."""
    for check in found:
        mark, style = MARKS[check.status]
        fix = f". {check.fix}" if check.fix else ""
        said = f"{check.name}: {check.message.removesuffix('.') if fix else check.message}{fix}"
        click.echo(f"{paint(mark, style)} {visible(said)}")
    if index is None:
        return
    for left_out in index.report.ignored:
        click.echo(f"\n{paint('left out ', RED)}{paint(visible(left_out.path), BOLD)}")
        for problem in left_out.problems:
            print_problem(problem)
    _print_conflicts(index.report)
    _print_remarks(index)
    if not index.report.ignored:
        click.echo("\nNothing was left out.")


def _print_remarks(index: SkillIndex) -> None:
    remarked = [skill for skill in index.skills if skill.diagnostics]
    if not remarked:
        return
    click.echo(f"\n{counted(len(remarked), 'skill')} with remarks (vade inspect NAME shows all of them):")
    for skill in remarked[:MAX_LISTED_REMARKS]:
        click.echo(f"  {paint(visible(f'{skill.name}: {remark(skill.diagnostics[0])}'), DIM)}")
    if len(remarked) > MAX_LISTED_REMARKS:
        click.echo(paint(f"  … and {len(remarked) - MAX_LISTED_REMARKS:,} more", DIM))


def _print_conflicts(report: Report) -> None:
    for conflict in report.conflicts:
        # A link to the directory that is used is not a conflict: `vade link` creates such links.
        used = os.path.realpath(conflict.path)
        others = [other for other in conflict.overridden if os.path.realpath(other.path) != used]
        if not others:
            continue
        click.echo(f"\n{paint(visible(f'{conflict.name}: {conflict.path} is used, not'), BOLD)}")
        for other in others:
            click.echo(f"  {visible(f'{other.path}, because {_REASONS[other.reason]}')}")


OLDEST_PYTHON = (3, 11)
_SEEN_UNDER_LANDLOCK = "scripts can see the names, sizes and times of all your files, not their contents"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    status: Literal["ok", "note", "problem"]
    message: str
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the check as ``vade doctor --json`` prints it."""
        return {"name": self.name, "status": self.status, "message": self.message, "fix": self.fix}


def python() -> HealthCheck:
    """Check that this version of Python is supported."""
    version = platform.python_version()
    running = f"vademecum {VERSION} on Python {version} ({sys.platform})"
    if tuple(map(int, version.split(".")[:2])) < OLDEST_PYTHON:
        fix = f"Install it for Python {'.'.join(map(str, OLDEST_PYTHON))} or newer."
        return HealthCheck("python", "problem", f"{running}, which is not supported", fix)
    return HealthCheck("python", "ok", running)


def configuration(context: Context) -> HealthCheck:
    """Check that the configuration files can be read and that all of it has an effect."""
    try:
        config = load_config(context)
    except ConfigError as error:
        return HealthCheck("configuration", "problem", str(error))
    if sentences := without_effect(config, context):
        return HealthCheck("configuration", "note", " ".join(sentences))
    return HealthCheck(
        "configuration", "ok", ", ".join(map(str, config.files)) or "no file: the defaults apply"
    )


def rules(config: LoadedConfig) -> HealthCheck:
    """Count the rules of the configuration."""
    count = len(config.user.permissions) + len(config.project.permissions)
    return HealthCheck("permissions", "ok", f"{counted(count, 'rule')} besides the defaults")


def sandbox(wanted: SandboxName) -> HealthCheck:
    """Run something in each sandbox, and return the one that scripts run in."""
    from vademecum.sandbox.available import choose_sandbox, network_by_host_problem, probe

    if wanted == "none":
        fix = "Remove execution.sandbox from ~/.agent/config.json."
        return HealthCheck("sandbox", "note", "none, as configured: scripts can do all that you can", fix)
    tried = [probe(name) for name in ("bubblewrap", "landlock")]
    works = [found.name for found in tried if found.sandbox is not None]
    problems = " ".join(found.problem for found in tried if found.problem)
    try:
        chosen = choose_sandbox(wanted).name
    except SandboxFailed:
        return HealthCheck(
            "sandbox", "note", f"none works, so scripts are refused. {problems}", "Install bubblewrap."
        )
    text = f"{chosen} ({' and '.join(works)} tried and working) {problems}".rstrip()
    problem = network_by_host_problem(cast("Real", chosen))
    by_host = f"network by host does not work ({problem})" if problem else "network by host works"
    seen = "" if chosen == "bubblewrap" else f"; {_SEEN_UNDER_LANDLOCK}"
    return HealthCheck("sandbox", "ok", f"{text}; {by_host}{seen}")


def roots(report: Report) -> HealthCheck:
    """Check that every root that exists can be searched."""
    searched = [root for root in report.roots if root.status == "searched"]
    unusable = [
        root
        for root in report.roots
        if root.status in {"not-a-directory", "unreadable"}
        or (root.status == "absent" and root.root.explicit)
    ]
    message = f"{counted(len(searched), 'root')} searched, {counted(report.found, 'document')} found"
    if unusable:
        paths = ", ".join(f"{root.root.path} ({root.status.replace('-', ' ')})" for root in unusable)
        return HealthCheck(
            "roots", "problem", f"{message}; not usable: {paths}", "Make it a readable directory."
        )
    return HealthCheck("roots", "ok", message)


def cache(index: SkillIndex) -> HealthCheck:
    """Check that the index cache can be used."""
    problems = index.report.diagnostics
    if problems:
        return HealthCheck("cache", "note", "; ".join(problem.message for problem in problems))
    report = index.report
    if index.options.cache is None:
        return HealthCheck("cache", "note", "there is no home directory, so every start reads every document")
    taken = f"{report.found - report.read:,} of {counted(report.found, 'document')}"
    return HealthCheck("cache", "ok", f"{taken} taken from {index.options.cache}")


def packages(usage: EnvironmentUsage, context: Context) -> HealthCheck:
    """Count the package environments of scripts, and check that more can be built."""
    message = f"{counted(usage.number, 'environment')} for scripts, {usage.bytes / 1e6:,.1f} MB"
    try:
        find_uv(context.env)
    except ToolRefused:
        fix = "For scripts that require packages run: pip install 'vademecum[packages]'"
        return HealthCheck("packages", "note", f"{message}; uv, which installs them, is not here", fix)
    return HealthCheck("packages", "ok", message)


def keys(security: SecuritySettings, context: Context) -> HealthCheck:
    """Check that every trusted key can be read, and that only the user can read the private keys."""
    home = context.home / ".agent"
    trusted, wrong = _trusted(home / TRUSTED_DIRECTORY)
    own = sorted((home / KEY_DIRECTORY).glob("*.pem"))
    open_to_all = [key for key in own if _mode(key) & 0o077]
    if open_to_all:
        readable = ", ".join(f"{key} is open to others (mode {_mode(key):o})" for key in open_to_all)
        fix = f"Run: chmod 600 {shlex.join(map(str, open_to_all))}"
        return HealthCheck("keys", "problem", "; ".join([readable, *wrong]), fix)
    if wrong:
        return HealthCheck("keys", "problem", f"nothing can be installed: {' '.join(wrong)}")
    message = f"{counted(trusted, 'trusted key')}, {counted(len(own), 'key')} to sign with"
    if security.require_signatures and not trusted:
        scopes = " and ".join(security.require_signatures)
        fix = f"Put the .pub files of those you trust into {home / TRUSTED_DIRECTORY}."
        return HealthCheck("keys", "note", f"{message}, but the {scopes} scope takes only signed skills", fix)
    return HealthCheck("keys", "ok", message)


def _trusted(directory: Path) -> tuple[int, list[str]]:
    """Return the number of trusted keys that can be read, and the problems of the others."""
    good, wrong = 0, []
    try:
        files = trusted_files(directory)
    except ConfigError as error:
        return 0, [str(error)]
    for file in files:
        try:
            trusted_in(file)
            good += 1
        except ConfigError as error:
            wrong.append(str(error))
    return good, wrong


def _mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)
