"""Check the installation for ``vade doctor``: each check returns a status and how to fix a problem."""

from __future__ import annotations

import platform
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from vademecum.cli.indexing import without_effect
from vademecum.cli.output import counted
from vademecum.config import LoadedConfig, SandboxName, SecuritySettings, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SandboxFailed, ToolRefused
from vademecum.packs.signing.signing_keys import KEY_DIRECTORY, TRUSTED_DIRECTORY, trusted_files, trusted_in
from vademecum.policy.engine import Policy
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.tools.packages import Usage
from vademecum.tools.uv import find_uv
from vademecum.version import VERSION

if TYPE_CHECKING:
    from vademecum.sandbox.choose import Real

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
    """Check that every rule of the configuration can win."""
    dead = [f"{rule} never wins over {winner}" for rule, winner in Policy.of(config).unreachable()]
    count = len(config.user_rules) + len(config.project_rules)
    if dead:
        return HealthCheck("permissions", "note", "; ".join(dead), "Remove it, or move it behind the other.")
    return HealthCheck("permissions", "ok", f"{counted(count, 'rule')} besides the defaults")


def sandbox(wanted: SandboxName) -> HealthCheck:
    """Run something in each sandbox, and return the one that scripts run in."""
    from vademecum.sandbox.choose import choose_sandbox, network_by_host_problem, probe

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


def packages(usage: Usage, context: Context) -> HealthCheck:
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
