"""What ``vade doctor`` looks at: each check says how things are, and what to do about it."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from vademecum.cli.output import counted
from vademecum.config import LoadedConfig, SandboxName, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SandboxFailed
from vademecum.policy.engine import Policy, grants_file
from vademecum.policy.trust import Trust
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.version import VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "note", "problem"]
    message: str
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The check as ``vade doctor`` prints it."""
        return {"name": self.name, "status": self.status, "message": self.message, "fix": self.fix}


def python() -> Check:
    """Which vademecum runs on which Python."""
    running = f"vademecum {VERSION} on Python {platform.python_version()} ({sys.platform})"
    return Check("python", "ok", running)


def configuration(context: Context) -> Check:
    """Whether the configuration files can be read."""
    try:
        files = load_config(context).files
    except ConfigError as error:
        return Check("configuration", "problem", str(error))
    return Check("configuration", "ok", ", ".join(map(str, files)) or "no file, the defaults hold")


def rules(config: LoadedConfig, context: Context) -> Check:
    """Whether every rule of the configuration can ever win."""
    dead = [f"{rule} never wins over {winner}" for rule, winner in Policy.of(config).unreachable()]
    count = len(config.user_rules) + len(config.project_rules)
    waiting = config.loosening
    if waiting and not Trust(grants_file(context)).holds(cast("Path", config.project_file)):
        text = f"{counted(len(waiting), 'rule')} of the project would allow something and does not count"
        return Check("permissions", "note", text, "Look at the file, then: vade trust")
    if dead:
        return Check("permissions", "note", "; ".join(dead), "Remove it, or move it behind the other.")
    return Check("permissions", "ok", f"{counted(count, 'rule')} besides the defaults")


def sandbox(wanted: SandboxName) -> Check:
    """Which sandbox scripts run in, found out by running something in it."""
    from vademecum.tools.sandbox.choose import choose_sandbox, probe

    if wanted == "none":
        fix = "Remove execution.sandbox from ~/.agent/config.json."
        return Check("sandbox", "note", "none, as the configuration says: scripts can do what you can", fix)
    tried = [probe(name) for name in ("bubblewrap", "landlock")]
    works = [found.name for found in tried if found.sandbox is not None]
    problems = " ".join(found.problem for found in tried if found.problem)
    try:
        chosen = choose_sandbox(wanted).name
    except SandboxFailed:
        return Check(
            "sandbox", "note", f"none works, so scripts are refused. {problems}", "Install bubblewrap."
        )
    return Check("sandbox", "ok", f"{chosen} ({' and '.join(works)} tried and working) {problems}".rstrip())


def roots(report: Report) -> Check:
    """Whether every root that exists can be searched."""
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
        return Check("roots", "problem", f"{message}; not usable: {paths}", "Make it a readable directory.")
    return Check("roots", "ok", message)


def cache(index: SkillIndex) -> Check:
    """Whether the cache serves."""
    problems = index.report.diagnostics
    if problems:
        return Check("cache", "note", "; ".join(problem.message for problem in problems))
    report = index.report
    if index.options.cache is None:
        return Check("cache", "note", "there is no home directory, so every start reads every document")
    taken = f"{report.found - report.read:,} of {counted(report.found, 'document')}"
    return Check("cache", "ok", f"{taken} taken from {index.options.cache}")
