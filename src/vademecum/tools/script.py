"""A script of a skill → what would run, and what a person should know before it does."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from vademecum.files import read_up_to
from vademecum.paths import open_contained
from vademecum.policy.grants import Approved
from vademecum.sandbox.interpreters import Interpreter, interpreter_of
from vademecum.skill.assets import Sees, everything, script_path
from vademecum.skill.digest import file_digests
from vademecum.skill.skill import Skill
from vademecum.tools.calls import RunScript
from vademecum.tools.job import shown_words
from vademecum.tools.packages.requirements import Requirements, requirements_of
from vademecum.tools.snapshot import Snapshot
from vademecum.tools.writing import difference

MAX_SCRIPT_BYTES = 1024 * 1024
MAX_SHOWN_LINES = 20
MAX_LISTED_FILES = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """A script in its snapshot, and how it will be started."""

    call: RunScript
    skill: Skill
    relative: str
    # The name that rules about this script match.
    resource: str
    snapshot: Snapshot
    # The script in the snapshot.
    file: Path
    interpreter: Interpreter
    text: str
    packages: Requirements

    @property
    def files(self) -> dict[str, str]:
        """The digests of all files that the script comes with."""
        return file_digests(str(self.snapshot.path))


def plan_script(
    call: RunScript, skill: Skill, snapshot: Snapshot, *, path: str, sees: Sees = everything
) -> Plan:
    """Find out how a script would be run, without running anything."""
    relative = os.path.relpath(script_path(skill, call.relative_path, sees=sees), skill.location)
    descriptor = open_contained(snapshot.path, relative)
    try:
        head = read_up_to(descriptor, MAX_SCRIPT_BYTES)
    finally:
        os.close(descriptor)
    file = snapshot.path / relative
    interpreter = interpreter_of(file, path=path)
    text = head.decode("utf-8", "replace") if b"\0" not in head else _binary(head)
    wanted = requirements_of(text, snapshot.path, relative) if relative.endswith(".py") else Requirements()
    packages = Requirements() if wanted.are_installed() else wanted
    resource = f"{skill.name}/{relative}"
    return Plan(call, skill, relative, resource, snapshot, file, interpreter, text, packages)


def about_script(plan: Plan, facts: list[str], *, approved: Approved | None) -> str:
    """Return what a person should see before a yes: the command, what it gets, the script or its changes."""
    lines = [f"run {shown_words([plan.resource, *plan.call.args])}", *facts]
    if approved is None:
        return "\n".join([*lines, "the script begins:", *_first_lines(plan.text)])
    files = plan.files
    changed = sorted(
        name for name in {*files, *approved.files} if files.get(name) != approved.files.get(name)
    )
    if not changed:
        return "\n".join([*lines, "nothing of the skill has changed since it was last approved"])
    lines.append(f"changed since it was last approved: {', '.join(changed[:MAX_LISTED_FILES])}")
    return "\n".join([*lines, difference(approved.text, plan.text, plan.relative)])


def _binary(data: bytes) -> str:
    return f"[not text: {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}]"


def _first_lines(text: str) -> list[str]:
    lines = text.splitlines()
    more = len(lines) - MAX_SHOWN_LINES
    return [*lines[:MAX_SHOWN_LINES], *([f"… and {more:,} more lines"] if more > 0 else [])]
