"""Check this installation (``vade doctor``), list the roots, and rebuild the index cache."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import click

from vademecum.cli.indexing import IndexWords, index_options, without_effect
from vademecum.cli.output.printing import MARKS, CommandResult, ProgressBar, command, paint
from vademecum.cli.output.skill_text import problem_line, remark
from vademecum.cli.running import model_for
from vademecum.config import LoadedConfig, SandboxName, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SandboxFailed, ToolRefused, ToolsUnsupported, VademecumError
from vademecum.models import Service, find_key, kind_and_name, services_of
from vademecum.models.base import Message, Model, Tool, wire_of
from vademecum.models.wire import ServedModel
from vademecum.registry.build import refresh_index
from vademecum.registry.index import Report, SkillIndex
from vademecum.registry.roots import added_sources
from vademecum.skill.text import counted, visible
from vademecum.tools.packages.environments import Environments, EnvironmentUsage
from vademecum.tools.packages.uv import find_uv
from vademecum.version import VERSION

_CONFIG = "~/.agent/config.json"
_SEEN_UNDER_LANDLOCK = "scripts can see the names, sizes and times of all your files, not their contents"
MAX_LISTED_REMARKS = 20

_REASONS = {
    "same-file": "it is the same file, reached by a link",
    "older": "it was changed earlier",
    "same-age": "its path comes later",
    "compatible-root": "native roots come before other tools' roots",
    "lower-root": "its root has a lower priority",
}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    status: Literal["ok", "note", "problem"]
    message: str
    fix: str | None = None


@command("roots")
@click.option("--all", "absent_too", is_flag=True, help="Include default roots that do not exist.")
@index_options
def roots_command(*, absent_too: bool, **words: Any) -> CommandResult:
    """List the directories that are searched for skills, highest priority first."""
    report = IndexWords(**words).build().report
    return CommandResult({"roots": report.roots}, _root_lines(report, absent_too=absent_too))


def _root_lines(report: Report, *, absent_too: bool) -> Iterator[str]:
    """Yield the roots in their order, with the number of skills in each."""
    shown = [root for root in report.roots if absent_too or root.root.explicit or root.status != "absent"]
    for root in shown:
        state = counted(root.valid, "skill") if root.status == "searched" else root.status.replace("-", " ")
        kind = "" if root.root.kind == "native" else f" ({root.root.kind})"
        row = f"{root.root.priority:4}  {root.root.source + kind:<18}  {state:<15}  "
        yield f"{row}{visible(str(root.root.path))}"
    if absent := len(report.roots) - len(shown):
        yield paint(f"\n{counted(absent, 'default root')} missing: vade roots --all", "dim")


@command("refresh")
@click.option("--environments", is_flag=True, help="Also delete the package environments of scripts.")
@index_options
def refresh_command(*, environments: bool, **words: Any) -> CommandResult:
    """Rebuild the index cache: read the metadata of every skill again, and list MCP sources again."""
    context = Context.current()
    for source in added_sources(context):
        try:
            source.refresh()
        except VademecumError as error:
            click.echo(f"vade: mcp:{source.name} could not be listed again: {visible(str(error))}", err=True)
    before = IndexWords(**words).build()
    with ProgressBar("reading skills") as progress:
        index = refresh_index(before, progress=progress)
    report = index.report
    document = {"report": report, "hash": index.hash, "changed": before.hash != index.hash}
    read = f"Read {counted(report.read, 'document')} again in {report.seconds:.2f} s"
    lines = [f"{read}: {counted(len(index), 'skill')}, {len(report.ignored):,} left out"]
    if environments:
        removed = document["environments"] = Environments(context).clear()
        lines.append(f"Removed {counted(removed.number, 'environment')}, {removed.bytes / 1e6:,.1f} MB")
    return CommandResult(document, lines)


@command("doctor")
@click.option(
    "--model",
    "model",
    is_flag=False,
    flag_value="",
    metavar="[KIND:NAME]",
    help="Also call this model (default: the configured one) once and report what works.",
)
@index_options
def doctor_command(*, model: str | None, **words: Any) -> CommandResult:
    """Find problems in this installation and project, and print how to fix each.

    Exit code 1: there are problems.
    """
    context = Context.current()
    usage = Environments(context).usage()
    running = f"vademecum {VERSION} on Python {platform.python_version()} ({sys.platform})"
    found, index = [HealthCheck("python", "ok", running)], None
    try:
        config = load_config(context)
    except ConfigError as error:
        found.append(HealthCheck("configuration", "problem", str(error)))
    else:
        index = IndexWords(**words).build(context, config, noted=True)
        found += _checks(context, config, index, usage, asked=model)
    report = None if index is None else index.report
    left_out = report.ignored if report else ()
    remarked = [skill for skill in (() if index is None else index.skills) if skill.diagnostics]
    healthy = not left_out and all(check.status != "problem" for check in found)
    document = {
        "healthy": healthy,
        "checks": found,
        "left_out": left_out,
        "conflicts": report.conflicts if report else (),
        "remarks": [
            {"name": skill.name, "path": skill.location, "problems": skill.diagnostics} for skill in remarked
        ],
        "report": report,
        "environments": usage,
    }
    return CommandResult(document, _doctor_lines(found, index), 0 if healthy else 1)


def _doctor_lines(found: list[HealthCheck], index: SkillIndex | None) -> Iterator[str]:
    """Yield the checks, then the skills that were left out, with their problems."""
    for check in found:
        mark, style = MARKS[check.status]
        fix = f". {check.fix}" if check.fix else ""
        said = f"{check.name}: {check.message.removesuffix('.') if fix else check.message}{fix}"
        yield f"{paint(mark, style)} {visible(said)}"
    if index is None:
        return
    for left_out in index.report.ignored:
        yield f"\n{paint('left out ', 'red')}{paint(visible(left_out.path), 'bold')}"
        yield from map(problem_line, left_out.problems)
    yield from _conflict_lines(index.report)
    remarked = [skill for skill in index.skills if skill.diagnostics]
    if remarked:
        yield f"\n{counted(len(remarked), 'skill')} with remarks (vade inspect NAME shows all of them):"
    for skill in remarked[:MAX_LISTED_REMARKS]:
        yield f"  {paint(visible(f'{skill.name}: {remark(skill.diagnostics[0])}'), 'dim')}"
    if len(remarked) > MAX_LISTED_REMARKS:
        yield paint(f"  … and {len(remarked) - MAX_LISTED_REMARKS:,} more", "dim")
    if not index.report.ignored:
        yield "\nNothing was left out."


def _conflict_lines(report: Report) -> Iterator[str]:
    for conflict in report.conflicts:
        # A link to the directory that is used is not a conflict: `vade link` creates such links.
        used = os.path.realpath(conflict.path)
        others = [other for other in conflict.overridden if os.path.realpath(other.path) != used]
        if others:
            yield f"\n{paint(visible(f'{conflict.name}: {conflict.path} is used, not'), 'bold')}"
        for other in others:
            yield f"  {visible(f'{other.path}, because {_REASONS[other.reason]}')}"


def _checks(
    context: Context, config: LoadedConfig, index: SkillIndex, usage: EnvironmentUsage, *, asked: str | None
) -> Iterator[HealthCheck]:
    """Check everything from the configuration to the model; call the model if it was ``asked`` for."""
    if sentences := without_effect(config, context):
        yield HealthCheck("configuration", "note", " ".join(sentences))
    else:
        files = ", ".join(map(str, config.files)) or "no file: the defaults apply"
        yield HealthCheck("configuration", "ok", files)
    rules = counted(len(config.user.permissions) + len(config.project.permissions), "rule")
    yield HealthCheck("permissions", "ok", f"{rules} in addition to the defaults")
    yield from _trusted(config, context)
    yield from _state(context)
    yield _sandbox(config.settings.execution.sandbox)
    yield _root_check(index.report)
    yield _cache(index)
    yield _packages(usage, context)
    provider = asked or config.settings.model.provider
    yield from _model(provider, context)
    if asked is not None:
        yield from _called(provider, config, context)


def _trusted(config: LoadedConfig, context: Context) -> Iterator[HealthCheck]:
    """Report trusted keys that cannot be read, or required signatures without a trusted key."""
    from vademecum.packs.signatures import TRUSTED_DIRECTORY, trusted_keys

    directory = context.home / ".agent" / TRUSTED_DIRECTORY
    try:
        keys = trusted_keys(directory)
    except VademecumError as error:
        yield HealthCheck("trusted keys", "problem", str(error))
        return
    if config.settings.security.require_signatures and not keys:
        text = "vade install accepts only signed skills, and no key is trusted"
        yield HealthCheck("trusted keys", "note", text, f"Put public keys into {directory}.")


def _state(context: Context) -> Iterator[HealthCheck]:
    """Report directories that cannot be written, and lock files that cannot be read."""
    from vademecum.packs.lock import lock_path, read_lock

    for directory in dict.fromkeys((context.agent_directory, context.home / ".agent")):
        if directory.exists() and not (directory.is_dir() and os.access(directory, os.W_OK)):
            text = f"{directory} cannot be written, so nothing can be recorded or installed there"
            yield HealthCheck("state", "problem", text, "Make it a directory that you can write.")
        try:
            read_lock(lock_path(directory / "skills"))
        except VademecumError as error:
            yield HealthCheck("lock", "problem", str(error))


def _sandbox(wanted: SandboxName) -> HealthCheck:
    """Try each sandbox, and report the one that scripts run in."""
    from vademecum.sandbox.available import Real, choose_sandbox, network_by_host_problem, probe

    if wanted == "none":
        fix = f"Remove execution.sandbox from {_CONFIG}."
        return HealthCheck("sandbox", "note", "none, as configured: scripts can do anything you can", fix)
    tried = [probe(name) for name in ("bubblewrap", "landlock")]
    works = [found.sandbox.name for found in tried if found.sandbox is not None]
    problems = [found.problem.rstrip(".") for found in tried if found.problem]
    try:
        chosen = choose_sandbox(wanted)
    except SandboxFailed:
        said = "; ".join(["none works, so scripts are refused", *problems])
        return HealthCheck("sandbox", "note", said, "Install bubblewrap.")
    text = f"{chosen.name} ({' and '.join(works)} tried and working)"
    problem = network_by_host_problem(cast("Real", chosen.name))
    by_host = f"network by host does not work ({problem.rstrip('.')})" if problem else "network by host works"
    seen = [] if chosen.name == "bubblewrap" else [_SEEN_UNDER_LANDLOCK]
    return HealthCheck("sandbox", "ok", "; ".join([text, *problems, by_host, *seen]))


def _root_check(report: Report) -> HealthCheck:
    """Check that every root that exists can be searched."""
    searched = [root for root in report.roots if root.status == "searched"]
    unusable = [
        f"{root.root.path} ({root.status.replace('-', ' ')})"
        for root in report.roots
        if root.status in {"not-a-directory", "unreadable"}
        or (root.status == "absent" and root.root.explicit)
    ]
    message = f"{counted(len(searched), 'root')} searched, {counted(report.found, 'document')} found"
    if unusable:
        message += f"; not usable: {', '.join(unusable)}"
        return HealthCheck("roots", "problem", message, "Make it a readable directory.")
    return HealthCheck("roots", "ok", message)


def _cache(index: SkillIndex) -> HealthCheck:
    """Check that the index cache can be used."""
    report = index.report
    if report.diagnostics:
        return HealthCheck("cache", "note", "; ".join(problem.message for problem in report.diagnostics))
    if index.options.cache is None:
        return HealthCheck("cache", "note", "there is no home directory, so every start reads every document")
    taken = f"{report.found - report.read:,} of {counted(report.found, 'document')}"
    return HealthCheck("cache", "ok", f"{taken} taken from {index.options.cache}")


def _packages(usage: EnvironmentUsage, context: Context) -> HealthCheck:
    """Count the package environments of scripts, and check that more can be built."""
    message = f"{counted(usage.number, 'environment')} for scripts, {usage.bytes / 1e6:,.1f} MB"
    try:
        find_uv(context.env)
    except ToolRefused:
        fix = "For scripts that require packages run: pip install 'vademecum[packages]'"
        return HealthCheck("packages", "note", f"{message}; uv, which installs them, was not found", fix)
    return HealthCheck("packages", "ok", message)


def _model(provider: str, context: Context) -> list[HealthCheck]:
    """Check the model that ``vade run`` uses here and its needs, without calling it."""
    fix = f"Correct model.provider in {_CONFIG}."
    try:
        services = services_of(context)
        kind, name = kind_and_name(provider, services)
    except ConfigError as error:
        return [HealthCheck("model", "problem", str(error), fix)]
    if kind in {"offline", "mock"}:
        return [HealthCheck("model", "ok", "offline: rules, not a language model; no key, no network")]
    if kind not in services:
        if Path(name).is_file():
            return [HealthCheck("model", "ok", provider)]
        return [HealthCheck("model", "problem", f"the file {Path(name)} does not exist", fix)]
    package = services[kind].package
    found = HealthCheck("model", "ok", f"{provider}, by the package {package}")
    if find_spec(package) is None:
        fix = f"Run: pip install 'vademecum[{package}]'"
        found = HealthCheck("model", "problem", f"{provider} needs the package {package}", fix)
    return [found, _key(services[kind], context)]


def _key(service: Service, context: Context) -> HealthCheck:
    """Report where the key comes from, never the key."""
    variables = tuple(service.variables)
    if not variables:
        told = "none is needed" if service.package == "openai" else "found by the SDK"
        return HealthCheck("model key", "ok", told)
    try:
        key = find_key(service, context)
    except ConfigError as error:
        return HealthCheck("model key", "problem", str(error), "Repair the secrets, or set the variable.")
    if key is not None:
        place = "set in the environment" if key.source == "environment" else "stored by vade secrets"
        return HealthCheck("model key", "ok", f"{key.variable} is {place}")
    name = variables[0]
    fix = f"Set {name} (your own server accepts any text), or run: vade secrets set {name} --models"
    return HealthCheck("model key", "problem", f"{' or '.join(variables)} is not set", fix)


def _called(provider: str, config: LoadedConfig, context: Context) -> Iterator[HealthCheck]:
    """Make one cheap call and report the reply, native tools, streaming and the context length."""
    name = "model call"
    try:
        chosen = model_for(provider, config, context)
        if not isinstance(chosen, ServedModel):
            yield HealthCheck(name, "ok", f"{provider} does not call a server")
            return
        started = time.monotonic()
        tools = _tools(chosen)
    except VademecumError as error:
        yield HealthCheck(name, "problem", str(error), "Check the key, the name and the address.")
        return
    yield HealthCheck(name, "ok", f"{provider} answers in {time.monotonic() - started:.1f} s")
    yield tools
    if chosen.streamed:
        yield HealthCheck("model streaming", "ok", "works")
    else:
        yield HealthCheck("model streaming", "note", "the server does not stream")
    length = chosen.context_length()
    said = f"{length:,} tokens" if length else "the server does not report its length"
    yield HealthCheck("model context", "ok", said)


_PING = Tool(
    "ping",
    "Call this to show that tool calls work.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


def _tools(chosen: Model) -> HealthCheck:
    """Call the model once, with a tool if its server supports tools."""
    name = "model tools"
    if wire_of(chosen) == "tools":
        system = Message("system", "You test tool calls.", tools=(_PING,))
        asked = Message("user", "Call the tool ping with the text pong.")
        try:
            if chosen.reply([system, asked], schema={}).calls:
                return HealthCheck(name, "ok", "native tool calls work")
        except ToolsUnsupported:
            pass
        else:
            said = "the server accepts tools, but the model did not call one"
            fix = 'Set model.params.protocol to "json" if runs end without doing anything.'
            return HealthCheck(name, "note", said, fix)
    chosen.reply([Message("system", "Answer in JSON."), Message("user", 'Answer {"ok": true}')], schema={})
    return HealthCheck(name, "note", "none: the model writes actions as JSON text")
