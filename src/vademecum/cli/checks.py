"""What ``vade doctor`` looks at: each check says how things are, and what to do about it."""

from __future__ import annotations

import platform
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from vademecum.cli.output import counted
from vademecum.config import LoadedConfig, SandboxName, SecuritySettings, load_config
from vademecum.context import Context
from vademecum.errors import ConfigError, SandboxFailed
from vademecum.packs.keys import KEY_DIRECTORY, TRUSTED_DIRECTORY, trusted_files, trusted_in
from vademecum.policy.engine import Policy
from vademecum.policy.grants import Trust, grants_file
from vademecum.registry.index import SkillIndex
from vademecum.registry.report import Report
from vademecum.version import VERSION

OLDEST_PYTHON = (3, 11)


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
    version = platform.python_version()
    running = f"vademecum {VERSION} on Python {version} ({sys.platform})"
    if tuple(map(int, version.split(".")[:2])) < OLDEST_PYTHON:
        fix = f"Install it for Python {'.'.join(map(str, OLDEST_PYTHON))} or newer."
        return Check("python", "problem", f"{running}, which is not supported", fix)
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
    from vademecum.sandbox.choose import choose_sandbox, probe

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


def keys(security: SecuritySettings, context: Context) -> Check:
    """Whether every trusted key can be read, and whether the user's own are for the user alone."""
    home = context.home / ".agent"
    trusted, wrong = _trusted(home / TRUSTED_DIRECTORY)
    own = sorted((home / KEY_DIRECTORY).glob("*.pem"))
    open_to_all = [key for key in own if _mode(key) & 0o077]
    if open_to_all:
        readable = ", ".join(f"{key} is open to others (mode {_mode(key):o})" for key in open_to_all)
        fix = f"Run: chmod 600 {shlex.join(map(str, open_to_all))}"
        return Check("keys", "problem", "; ".join([readable, *wrong]), fix)
    if wrong:
        return Check("keys", "problem", f"nothing can be installed: {' '.join(wrong)}")
    message = f"{counted(trusted, 'trusted key')}, {counted(len(own), 'key')} to sign with"
    if security.require_signatures and not trusted:
        scopes = " and ".join(security.require_signatures)
        fix = f"Put the .pub files of those you trust into {home / TRUSTED_DIRECTORY}."
        return Check("keys", "note", f"{message}, but the {scopes} scope takes only signed skills", fix)
    return Check("keys", "ok", message)


def _trusted(directory: Path) -> tuple[int, list[str]]:
    """How many files with trusted keys there are, and what is wrong with the others."""
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
