"""A script of a skill → a private copy that would run, and what a person should know before it does."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import FileRefused, ToolRefused
from vademecum.files import open_plain
from vademecum.paths import open_contained
from vademecum.policy.grants import Approved
from vademecum.sandbox.base import Interpreter, home_of, own_python
from vademecum.skill.assets import Sees, everything, script_path
from vademecum.skill.digest import COMPILED, MAX_DIGESTED_FILES, directory_digest, file_digests
from vademecum.skill.skill import Skill
from vademecum.tools.calls import RunScript
from vademecum.tools.job import shown_words
from vademecum.tools.packages.requirements import Requirements, requirements_of
from vademecum.tools.workspace import copy_opened

MAX_SCRIPT_BYTES = 1024 * 1024
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
MAX_SHEBANG_BYTES = 512
MAX_SHOWN_LINES = 20
MAX_LISTED_FILES = 50

# The words that start a script of a kind, unless its first line says more.
_BY_SUFFIX = {
    ".py": ("python3",),
    ".sh": ("sh",),
    ".bash": ("bash",),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("node",)),
}
_PYTHON = frozenset({"python", "python2", "python3"})


def take_snapshot(skill: Skill, directory: Path, hidden: Collection[str] = ()) -> Path:
    """Copy a skill as it is now below a directory, without the files that are hidden from its scripts."""
    place = directory / skill.path.name
    place.mkdir(parents=True)
    left, files = MAX_SNAPSHOT_BYTES, 0
    for source, names, members in os.walk(skill.location):
        inside = os.path.relpath(source, skill.location)
        names[:] = [entry for entry in names if entry != COMPILED]  # nobody approved what is in there
        for entry in (*names, *members):
            relative = os.path.normpath(f"{inside}/{entry}")
            if relative in hidden:
                continue
            files += 1
            left -= _copy_entry(f"{source}/{entry}", place / relative)
            if left < 0 or files > MAX_DIGESTED_FILES:
                raise ToolRefused(
                    f"Skill {skill.name!r} is too large to run: at most {MAX_DIGESTED_FILES:,} files and "
                    f"{MAX_SNAPSHOT_BYTES:,} bytes.",
                    code="too-large",
                )
    return place


def _copy_entry(source: str, target: Path) -> int:
    """Copy a link, a directory (empty) or a plain file; anything else is left out. Returns its size."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(source))
    elif stat.S_ISDIR(mode):
        target.mkdir()
    else:
        try:
            opened = open_plain(source)
        except (OSError, FileRefused):
            return 0
        return copy_opened(opened, target, most=MAX_SNAPSHOT_BYTES)
    return 0


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script in a snapshot of its skill, and how it will be started.

    ``resource`` is the name that rules about this script match; ``digest`` is that of the snapshot, which is
    what will run, whatever happens to the skill meanwhile.
    """

    call: RunScript
    skill: Skill
    relative: str
    resource: str
    snapshot: Path
    digest: str
    interpreter: Interpreter
    text: str
    packages: Requirements

    @property
    def file(self) -> Path:
        """The script in the snapshot."""
        return self.snapshot / self.relative

    @property
    def files(self) -> dict[str, str]:
        """The digests of all files that the script comes with."""
        return file_digests(str(self.snapshot))


def plan_script(
    call: RunScript, skill: Skill, snapshot: Path, *, path: str, sees: Sees = everything
) -> ScriptPlan:
    """Find out how a script would be run, without running anything."""
    relative = os.path.relpath(script_path(skill, call.relative_path, sees=sees), skill.location)
    with os.fdopen(open_contained(snapshot, relative), "rb") as file:
        head = file.read(MAX_SCRIPT_BYTES)
    text = head.decode("utf-8", "replace")
    if b"\0" in head:
        text = f"[not text: {len(head):,} bytes, sha256 {hashlib.sha256(head).hexdigest()}]"
    packages = requirements_of(text, snapshot, relative) if relative.endswith(".py") else Requirements()
    return ScriptPlan(
        call,
        skill,
        relative,
        f"{skill.name}/{relative}",
        snapshot,
        directory_digest(str(snapshot)),
        _interpreter_of(snapshot / relative, head, path),
        text,
        Requirements() if packages.are_installed() else packages,
    )


def _interpreter_of(script: Path, head: bytes, path: str) -> Interpreter:
    """Return how to start a script that begins with ``head``; programs are looked for in ``path``."""
    words: Sequence[str] = _BY_SUFFIX.get(script.suffix, ())
    if head.startswith(b"#!") and script.suffix != ".py":
        words = _shebang(head)
        if not words:
            raise ToolRefused(f"The first line of {script.name!r} names no interpreter.", code="interpreter")
    if words:
        # Only by its name, and only where programs are: a skill must not bring its own interpreter.
        name = Path(words[0]).name
        if name in _PYTHON:
            return own_python(*words[1:])
        program = shutil.which(name, path=path)
        if program is None:
            raise ToolRefused(
                f"{script.name!r} needs {name!r}, which is not installed here.", code="interpreter"
            )
        return Interpreter((program, *words[1:]), home_of(program))
    if not head.startswith(b"\x7fELF"):
        raise ToolRefused(
            f"It cannot be told how to run {script.name!r}: give it a first line with '#!', or one of "
            f"{', '.join(_BY_SUFFIX)}.",
            code="interpreter",
        )
    if not script.stat().st_mode & stat.S_IXUSR:
        raise ToolRefused(f"{script.name!r} is a program without its execute bit.", code="interpreter")
    return Interpreter(())


def _shebang(head: bytes) -> list[str]:
    """Return the words of the first line, whose end may be a Windows one; none if it cannot be read."""
    line = head[2:MAX_SHEBANG_BYTES].partition(b"\n")[0].decode("utf-8", "replace").strip()
    try:
        words = [] if "\0" in line else shlex.split(line)
    except ValueError:
        return []
    if words and Path(words[0]).name == "env":
        return words[2:] if words[1:2] == ["-S"] else words[1:]
    return words


def about_script(plan: ScriptPlan, facts: list[str], *, approved: Approved | None) -> str:
    """Return what a person should see before a yes: the command, what it gets, the script or its changes."""
    lines = [f"run {shown_words([plan.resource, *plan.call.args])}", *facts]
    if approved is None:
        beginning = plan.text.splitlines()
        more = len(beginning) - MAX_SHOWN_LINES
        rest = [f"… and {more:,} more lines"] if more > 0 else []
        return "\n".join([*lines, "the script begins:", *beginning[:MAX_SHOWN_LINES], *rest])
    files = plan.files
    changed = sorted(
        name for name in {*files, *approved.files} if files.get(name) != approved.files.get(name)
    )
    if not changed:
        return "\n".join([*lines, "nothing of the skill has changed since it was last approved"])
    from vademecum.tools.writing import difference  # noqa: PLC0415 - for scripts that changed alone

    lines.append(f"changed since it was last approved: {', '.join(changed[:MAX_LISTED_FILES])}")
    return "\n".join([*lines, difference(approved.text, plan.text, plan.relative)])
