"""What ``vade doctor`` looks at: each check says how things are, and what to do about it."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Any, Literal

from vademecum.cli.output import counted
from vademecum.config import LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError
from vademecum.policy.engine import Policy
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


def rules(config: LoadedConfig) -> Check:
    """Whether every rule of the configuration can ever win."""
    dead = [f"{rule} never wins over {winner}" for rule, winner in Policy.of(config).unreachable()]
    count = len(config.user_rules) + len(config.project_rules)
    if dead:
        return Check("permissions", "note", "; ".join(dead), "Remove it, or move it behind the other.")
    return Check("permissions", "ok", f"{counted(count, 'rule')} besides the defaults")


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
