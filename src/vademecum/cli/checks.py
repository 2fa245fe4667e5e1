"""The checks of ``vade doctor``: what of this installation, this place and its model works."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from vademecum.cli.indexing import without_effect
from vademecum.cli.output.printing import counted
from vademecum.cli.running import model_for
from vademecum.config import LoadedConfig, SandboxName, load_config
from vademecum.context import Context
from vademecum.errors import (
    ConfigError,
    SandboxFailed,
    ToolRefused,
    ToolsUnsupported,
    VademecumError,
)
from vademecum.models import Service, find_key, kind_and_name, services_of
from vademecum.models.base import Message, Model, Tool, wire_of
from vademecum.models.wire import ServedModel
from vademecum.registry.index import Report, SkillIndex
from vademecum.tools.packages.environments import EnvironmentUsage
from vademecum.tools.packages.uv import find_uv
from vademecum.version import VERSION

_CONFIG = "~/.agent/config.json"
_SEEN_UNDER_LANDLOCK = "scripts can see the names, sizes and times of all your files, not their contents"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    status: Literal["ok", "note", "problem"]
    message: str
    fix: str | None = None


def checks_of_files(context: Context) -> Iterator[HealthCheck]:
    """Check what can be checked without an index: the installation and the configuration files."""
    running = f"vademecum {VERSION} on Python {platform.python_version()} ({sys.platform})"
    yield HealthCheck("python", "ok", running)
    try:
        config = load_config(context)
    except ConfigError as error:
        yield HealthCheck("configuration", "problem", str(error))
        return
    if sentences := without_effect(config, context):
        yield HealthCheck("configuration", "note", " ".join(sentences))
    else:
        files = ", ".join(map(str, config.files)) or "no file: the defaults apply"
        yield HealthCheck("configuration", "ok", files)


def checks_of_place(
    context: Context, index: SkillIndex, usage: EnvironmentUsage, *, asked: str | None
) -> Iterator[HealthCheck]:
    """Check rules, sandbox, roots, cache, packages and model; call the model if it was ``asked`` for."""
    config = load_config(context)
    rules = counted(len(config.user.permissions) + len(config.project.permissions), "rule")
    yield HealthCheck("permissions", "ok", f"{rules} besides the defaults")
    yield from _trusted(config, context)
    yield _sandbox(config.settings.execution.sandbox)
    yield _roots(index.report)
    yield _cache(index)
    yield _packages(usage, context)
    provider = asked or config.settings.model.provider
    yield from _model(provider, context)
    if asked is not None:
        yield from _called(provider, context)


def _trusted(config: LoadedConfig, context: Context) -> Iterator[HealthCheck]:
    """Say so if no skill could be installed, because of a trusted key or for lack of one."""
    from vademecum.packs.signatures import TRUSTED_DIRECTORY, trusted_keys

    directory = context.home / ".agent" / TRUSTED_DIRECTORY
    try:
        keys = trusted_keys(directory)
    except VademecumError as error:
        yield HealthCheck("trusted keys", "problem", str(error))
        return
    if config.settings.security.require_signatures and not keys:
        text = "vade install takes only signed skills, and no key is trusted"
        yield HealthCheck("trusted keys", "note", text, f"Put public keys into {directory}.")


def _sandbox(wanted: SandboxName) -> HealthCheck:
    """Run something in each sandbox, and return the one that scripts run in."""
    from vademecum.sandbox.available import Real, choose_sandbox, network_by_host_problem, probe

    if wanted == "none":
        fix = f"Remove execution.sandbox from {_CONFIG}."
        return HealthCheck("sandbox", "note", "none, as configured: scripts can do all that you can", fix)
    tried = [probe(name) for name in ("bubblewrap", "landlock")]
    works = [found.name for found in tried if found.sandbox is not None]
    problems = " ".join(found.problem for found in tried if found.problem)
    try:
        chosen = choose_sandbox(wanted)
    except SandboxFailed:
        said = f"none works, so scripts are refused. {problems}"
        return HealthCheck("sandbox", "note", said, "Install bubblewrap.")
    text = f"{chosen.name} ({' and '.join(works)} tried and working) {problems}".rstrip()
    problem = network_by_host_problem(cast("Real", chosen.name))
    by_host = f"network by host does not work ({problem})" if problem else "network by host works"
    seen = "" if chosen.name == "bubblewrap" else f"; {_SEEN_UNDER_LANDLOCK}"
    return HealthCheck("sandbox", "ok", f"{text}; {by_host}{seen}")


def _roots(report: Report) -> HealthCheck:
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
        return HealthCheck("packages", "note", f"{message}; uv, which installs them, is not here", fix)
    return HealthCheck("packages", "ok", message)


def _model(provider: str, context: Context) -> list[HealthCheck]:
    """Check the model that ``vade run`` takes here, and what it needs, without calling it."""
    fix = f"Correct model.provider in {_CONFIG}."
    try:
        services = services_of(context)
        kind, name = kind_and_name(provider, services)
    except ConfigError as error:
        return [HealthCheck("model", "problem", str(error), fix)]
    if kind in {"offline", "mock"}:
        return [HealthCheck("model", "ok", "offline, by rules, not a language model: no key, no network")]
    if kind not in services:
        if Path(name).is_file():
            return [HealthCheck("model", "ok", provider)]
        return [HealthCheck("model", "problem", f"there is no file {Path(name)}", fix)]
    package = services[kind].package
    found = HealthCheck("model", "ok", f"{provider}, by the package {package}")
    if find_spec(package) is None:
        fix = f"Run: pip install 'vademecum[{package}]'"
        found = HealthCheck("model", "problem", f"{provider} needs the package {package}", fix)
    return [found, _key(services[kind], context)]


def _key(service: Service, context: Context) -> HealthCheck:
    """Say where the key comes from, and never what it is."""
    variables = tuple(service.variables)
    if not variables:
        told = "none is needed" if service.package == "openai" else "its own, as the SDK finds it"
        return HealthCheck("model key", "ok", told)
    try:
        key = find_key(service, context)
    except ConfigError as error:
        return HealthCheck("model key", "problem", str(error), "Repair the secrets, or set the variable.")
    if key is not None:
        place = "set in the environment" if key.source == "environment" else "kept by vade secrets"
        return HealthCheck("model key", "ok", f"{key.variable} is {place}")
    name = variables[0]
    fix = f"Set {name} (a server of your own takes any text), or run: vade secrets set {name} --models"
    return HealthCheck("model key", "problem", f"{' or '.join(variables)} is not set", fix)


def _called(provider: str, context: Context) -> Iterator[HealthCheck]:
    """Make one cheap call, and say what works: the reply, native tools, streaming, the context's length."""
    name = "model call"
    try:
        chosen = model_for(provider, load_config(context), context)
        if not isinstance(chosen, ServedModel):
            yield HealthCheck(name, "ok", f"{provider} calls nobody")
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
    said = f"{length:,} tokens" if length else "the server does not tell its length"
    yield HealthCheck("model context", "ok", said)


_PING = Tool(
    "ping",
    "Call this to show that tool calls work.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


def _tools(chosen: Model) -> HealthCheck:
    """Call the model once, with a tool if its server knows tools."""
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
            said = "the server takes tools, but the model did not call one"
            fix = 'Set model.params.protocol to "json" if runs end without doing anything.'
            return HealthCheck(name, "note", said, fix)
    chosen.reply([Message("system", "Answer in JSON."), Message("user", 'Answer {"ok": true}')], schema={})
    return HealthCheck(name, "note", "none: actions are JSON in the text")
