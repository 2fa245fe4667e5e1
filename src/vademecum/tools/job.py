"""Run a script or command with its inputs and limits, and describe the result.

A skill's script runs from a private copy, and a person sees what it is before it runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vademecum.config import ExecutionSettings
from vademecum.errors import FileRefused, ToolRefused
from vademecum.files import copy_opened, open_plain, sha256_of
from vademecum.paths import open_contained
from vademecum.policy.grants import Approved
from vademecum.sandbox.base import (
    SYSTEM_PATH,
    Interpreter,
    Jail,
    Limits,
    Network,
    Sandbox,
    home_of,
    own_python,
)
from vademecum.sandbox.process import Ended, OnOutput, Streams, run_command
from vademecum.skill.assets import (
    COMPILED,
    MAX_DIGESTED_FILES,
    Sees,
    directory_digest,
    file_digests,
    script_path,
)
from vademecum.skill.skill import Skill
from vademecum.skill.text import counted, escaped, visible, without_hidden
from vademecum.tools.calls import Observation, RunScript
from vademecum.tools.exchange import Furnished, Input, Output, shown_below
from vademecum.tools.packages import BLOCK_OPENS, REQUIREMENT_FILES

MAX_SHOWN_WORDS, MAX_WORD_CHARS, MAX_SHOWN_CHARS = 50, 200, 1500
MAX_HEAD_CHARS, MAX_TAIL_CHARS = 12_000, 4_000
MAX_LISTED_OUTPUTS, MAX_LISTED_FILES = 50, 50
MAX_SCRIPT_BYTES = 1024 * 1024
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
MAX_SHEBANG_BYTES = 512
MAX_SHOWN_LINES = 20

_MB = 1024 * 1024
_STOPPED = {
    "cancelled": "the caller cancelled it",
    "time": "it took more than its time (execution.seconds)",
    "memory": "it used too much memory (execution.memory_mb)",
    "processes": "it started too many processes (execution.processes)",
    "disk": "it wrote too much (execution.disk_mb), or left too little space on the disk",
    "output": "it printed too much",
}
# The command that starts a kind of script, unless its first line names another.
_BY_SUFFIX = {
    ".py": ("python3",),
    ".sh": ("sh",),
    ".bash": ("bash",),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("node",)),
}
_PYTHON = frozenset({"python", "python2", "python3"})


class Room:
    """The directories of one call, below its record. Only the printed output and the outputs are kept."""

    def __init__(self, place: Path) -> None:
        passing = [place / name for name in ("work", "home", "tmp", "shared", "skill")]
        self.work, self.home, self.temporary, self.shared, self.skill = self._passing = passing
        self.outputs = place / "outputs"
        self.streams = Streams(place / "stdout", place / "stderr")

    def __enter__(self) -> Self:
        for directory in self._passing:
            directory.mkdir(parents=True)
        return self

    def __exit__(self, *error: object) -> None:
        for directory in self._passing:
            _remove(directory)


def limits_of(settings: ExecutionSettings) -> Limits:
    """Return the limits that the configuration sets."""
    return Limits(
        seconds=settings.seconds,
        memory_bytes=settings.memory_mb * _MB,
        processes=settings.processes,
        disk_bytes=settings.disk_mb * _MB,
        file_bytes=max(1, settings.disk_mb // 2) * _MB,
        output_bytes=max(1, settings.disk_mb // 2) * _MB,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One start of a program: its name in texts, its arguments, and everything it gets."""

    title: str
    argv: tuple[str, ...]
    directory: Path
    readable: tuple[Path, ...]
    environment: Mapping[str, str]
    furnished: Furnished
    writable: tuple[Path, ...] = ()
    network: Network = "none"
    stdin: bytes | int | None = None
    limits: Limits = Limits()


def run_job(
    job: Job, room: Room, sandbox: Sandbox, *, on_output: OnOutput, cancelled: Callable[[], bool]
) -> Ended:
    """Run a program in the sandbox to its end."""
    own = {"HOME": str(room.home), "TMPDIR": str(room.temporary), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    jail = Jail(
        directory=job.directory,
        # Python prints lines at once; git does not fail if it cannot read the system's configuration.
        environment={**job.environment, **own, "PYTHONUNBUFFERED": "1", "GIT_CONFIG_NOSYSTEM": "1"},
        readable=tuple(dict.fromkeys(job.readable)),
        writable=(room.work, room.home, room.temporary, *job.writable),
        mounted=job.furnished.mounted,
        hidden=job.furnished.hidden,
        shared=room.shared,
        network=job.network,
        limits=job.limits,
    )
    return run_command(
        sandbox,
        list(job.argv),
        jail,
        streams=room.streams,
        stdin=job.stdin,
        on_output=on_output,
        cancelled=cancelled,
    )


def observe(  # noqa: PLR0913 - all facts about a finished process
    tool: str,
    job: Job,
    room: Room,
    ended: Ended,
    outputs: Sequence[Output],
    *,
    beyond: int,
    facts: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Observation:
    """Describe how a program ended, what it printed, and what it left; ``beyond`` files were not kept."""
    how = f"was stopped after {ended.seconds:.2f} s: {_STOPPED.get(ended.reason)}."
    if ended.reason == "exited":
        how = f"ended with exit code {ended.exit_code} after {ended.seconds:.2f} s."
    lines = [f"{job.title} {how}"]
    out, err = room.streams.out, room.streams.err
    for name, file in (("printed", out), ("complained", err)):
        if file.stat().st_size:
            lines += [f"It {name}:", shown_file(file)]
    if len(lines) == 1:
        lines.append("It printed nothing.")
    for output in outputs[:MAX_LISTED_OUTPUTS]:
        secret = ", which contains a secret and cannot be read" if output.secret else ""
        lines.append(f"It left {visible(output.reference)} ({counted(output.bytes, 'byte')}{secret}).")
    if len(outputs) > MAX_LISTED_OUTPUTS:
        lines.append(f"It left {len(outputs) - MAX_LISTED_OUTPUTS:,} more files.")
    if beyond:
        lines.append(f"{beyond:,} more files were left but not kept: the limit is {len(outputs):,}.")
    lines += notes
    left_out = job.furnished.left_out
    about = {
        "exit_code": ended.exit_code,
        "reason": ended.reason,
        "stdout_bytes": out.stat().st_size,
        "stdout_sha256": sha256_of(out),
        "stderr_bytes": err.stat().st_size,
        "stderr_sha256": sha256_of(err),
        "outputs": [output.to_json() for output in outputs],
        **({"left_out": left_out} if left_out else {}),
        **({"not_kept": beyond} if beyond else {}),
        **facts,
    }
    code = "" if ended.reason == "exited" else f"stopped-{ended.reason}"
    files = (str(out), str(err))
    return Observation(tool, "\n".join(lines), code, about, files, outputs=tuple(outputs))


def shown_words(words: Sequence[str], between: str = " ") -> str:
    """Return words on one line of bounded length, so that none can look like a line of ours."""
    shown, left = [], MAX_SHOWN_CHARS
    for word in words[:MAX_SHOWN_WORDS]:
        plain = escaped(word)
        plain = shlex.quote(plain if len(plain) <= MAX_WORD_CHARS else f"{plain[:MAX_WORD_CHARS]}…")
        left -= len(plain)
        if left < 0:
            break
        shown.append(plain)
    more = len(words) - len(shown)
    return between.join(shown) + (f" … and {more:,} more" if more else "")


def shown_inputs(inputs: Sequence[Input]) -> str:
    """Return the inputs on one line, for the person who approves."""
    names = [
        each.located.name if each.kind == "file" else f"{each.located.name.rstrip('/')}/" for each in inputs
    ]
    hidden = sum(len(given.hidden) for given in inputs)
    return shown_words(names, ", ") + (f" ({hidden:,} entries left out by rules)" if hidden else "")


def shown_file(file: Path) -> str:
    """Return the beginning and the end of the printed output."""
    size = file.stat().st_size
    with open(file, "rb") as data:
        head = data.read(MAX_HEAD_CHARS + MAX_TAIL_CHARS)
        if size <= MAX_HEAD_CHARS + MAX_TAIL_CHARS:
            return _clean(head)
        data.seek(size - MAX_TAIL_CHARS)
        tail = data.read(MAX_TAIL_CHARS)
    left_out = size - MAX_HEAD_CHARS - MAX_TAIL_CHARS
    middle = f"\n[… {left_out:,} bytes left out, kept in {file} …]\n"
    return _clean(head[:MAX_HEAD_CHARS]) + middle + _clean(tail)


def _clean(data: bytes) -> str:
    return without_hidden(data.decode("utf-8", "replace"))[0].rstrip("\n")


def _remove(directory: Path) -> None:
    """Remove everything that a program left, even if it withdrew permissions."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():  # it is too deep, or has no permissions
        for words in (["chmod", "-R", "u+rwx", "--"], ["rm", "-rf", "--"]):
            subprocess.run([*words, str(directory)], check=False, stderr=subprocess.DEVNULL)  # noqa: S603


def take_snapshot(skill: Skill, directory: Path, hidden: Collection[str] = ()) -> Path:
    """Copy the current files of a skill below a directory, without those hidden from its scripts."""
    place = directory / os.path.basename(skill.location)
    place.mkdir(parents=True)
    left, files = MAX_SNAPSHOT_BYTES, 0
    for name, mode in shown_below(skill.location, hidden):
        if COMPILED in name.split("/"):  # nobody approved compiled files
            continue
        files += 1
        if stat.S_ISLNK(mode):
            (place / name).symlink_to(os.readlink(f"{skill.location}/{name}"))
        elif stat.S_ISDIR(mode):
            (place / name).mkdir()
        elif stat.S_ISREG(mode):
            with contextlib.suppress(PermissionError, FileNotFoundError, FileRefused):
                left -= copy_opened(open_plain(f"{skill.location}/{name}"), place / name, most=left)
        if left < 0 or files > MAX_DIGESTED_FILES:
            raise ToolRefused(
                f"Skill {skill.name!r} is too large to run: at most {MAX_DIGESTED_FILES:,} files and "
                f"{MAX_SNAPSHOT_BYTES:,} bytes.",
                code="too-large",
            )
    return place


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script in a snapshot of its skill, and how to start it.

    ``resource`` is the name that rules match. ``digest`` is the digest of the snapshot; the snapshot runs,
    even if the skill changes meanwhile. ``packages`` are the packages to install for it.
    """

    call: RunScript
    skill: Skill
    relative: str
    resource: str
    snapshot: Path
    file: Path
    digest: str
    interpreter: Interpreter
    text: str
    packages: tuple[str, ...]

    @property
    def files(self) -> dict[str, str]:
        """The digests of all files in the snapshot."""
        return file_digests(str(self.snapshot))


def plan_script(call: RunScript, skill: Skill, snapshot: Path, *, path: str, sees: Sees) -> ScriptPlan:
    """Find out how to run a script, without running anything."""
    relative = os.path.relpath(script_path(skill, call.relative_path, sees=sees), skill.location)
    with os.fdopen(open_contained(snapshot, relative), "rb") as file:
        head = file.read(MAX_SCRIPT_BYTES)
    text = head.decode("utf-8", "replace")
    if b"\0" in head:
        text = f"[not text: {len(head):,} bytes, sha256 {hashlib.sha256(head).hexdigest()}]"
    script = snapshot / relative
    return ScriptPlan(
        call,
        skill,
        relative,
        f"{skill.name}/{relative}",
        snapshot,
        script,
        directory_digest(str(snapshot)),
        _interpreter_of(script, head, path),
        text,
        _packages_for(text, snapshot, relative),
    )


def _packages_for(text: str, snapshot: Path, relative: str) -> tuple[str, ...]:
    """Return the packages that a script requires, unless the running interpreter has all of them."""
    in_file = any(os.path.lexists(snapshot / name) for name in REQUIREMENT_FILES)
    if not relative.endswith(".py") or not (in_file or BLOCK_OPENS in text):
        return ()
    from vademecum.tools.packages import requirements  # noqa: PLC0415 - 10 ms, for these scripts alone

    wanted = requirements.requirements_of(text, snapshot, relative)
    return () if all(map(requirements.is_installed, wanted)) else wanted


def _interpreter_of(script: Path, head: bytes, path: str) -> Interpreter:
    """Return how to start a script that begins with ``head``; search ``path`` for programs."""
    words: Sequence[str] = _BY_SUFFIX.get(script.suffix, ())
    if head.startswith(b"#!") and script.suffix != ".py":
        words = _shebang(head)
        if not words:
            raise ToolRefused(f"The first line of {script.name!r} names no interpreter.", code="interpreter")
    if words:
        # Only by its name, and only on the search path: a skill must not bring its own interpreter.
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
            f"It is unclear how to run {script.name!r}: give it a first line with '#!', or one of "
            f"{', '.join(_BY_SUFFIX)}.",
            code="interpreter",
        )
    if not script.stat().st_mode & stat.S_IXUSR:
        raise ToolRefused(f"{script.name!r} is a program without its execute bit.", code="interpreter")
    return Interpreter(())


def _shebang(head: bytes) -> list[str]:
    """Return the words of the first line, which can have a Windows line end; none if it cannot be decoded."""
    line = head[2:MAX_SHEBANG_BYTES].partition(b"\n")[0].decode("utf-8", "replace").strip()
    try:
        words = [] if "\0" in line else shlex.split(line)
    except ValueError:
        return []
    if words and Path(words[0]).name == "env":
        return words[2:] if words[1:2] == ["-S"] else words[1:]
    return words


def about_script(plan: ScriptPlan, facts: list[str], *, approved: Approved | None) -> str:
    """Return the text for the person who approves: the command, its inputs, the script or its changes."""
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
