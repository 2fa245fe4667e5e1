"""A program with its inputs and limits → what came of it; scripts and commands run the same way."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vademecum.config import ExecutionSettings
from vademecum.files import sha256_of
from vademecum.sandbox.base import SYSTEM_PATH, Jail, Limits, Network, Sandbox
from vademecum.sandbox.process import Ended, OnOutput, Streams, run_command
from vademecum.skill.text import escaped, visible, without_hidden
from vademecum.tools.calls import Observation
from vademecum.tools.inputs import Furnished, Input
from vademecum.tools.outputs import Output

MAX_SHOWN_WORDS, MAX_WORD_CHARS, MAX_SHOWN_CHARS = 50, 200, 1500
MAX_HEAD_CHARS, MAX_TAIL_CHARS = 12_000, 4_000
MAX_LISTED_OUTPUTS = 50

_MB = 1024 * 1024
_STOPPED = {
    "cancelled": "the caller cancelled it",
    "time": "it took more than its time (execution.seconds)",
    "memory": "it used too much memory (execution.memory_mb)",
    "processes": "it started too many processes (execution.processes)",
    "disk": "it wrote too much (execution.disk_mb)",
    "output": "it printed too much",
}


class Room:
    """The directories of one call, below its record. Only the printed output and the outputs stay."""

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
    """One start of a program: what it is called in texts, its words, and everything it gets."""

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
    job: Job,
    room: Room,
    sandbox: Sandbox,
    *,
    on_output: OnOutput | None = None,
    cancelled: Callable[[], bool] = bool,
) -> Ended:
    """Run a program in the sandbox to its end."""
    own = {"HOME": str(room.home), "TMPDIR": str(room.temporary), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    jail = Jail(
        directory=job.directory,
        # Lines appear when they are printed; git does not stop at a file of the system that it cannot read.
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


def observe(  # noqa: PLR0913 - everything that is known of a process that is over
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
    """Say what came of it: how it ended, what it printed, what it left; ``beyond`` files were not kept."""
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
        lines.append(f"It left {visible(output.reference)} ({output.bytes:,} bytes{secret}).")
    if len(outputs) > MAX_LISTED_OUTPUTS:
        lines.append(f"It left {len(outputs) - MAX_LISTED_OUTPUTS:,} more files.")
    if beyond:
        lines.append(f"{beyond:,} files more were left and not kept: at most {len(outputs):,} are.")
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
        **facts,
    }
    code = "" if ended.reason == "exited" else f"stopped-{ended.reason}"
    files = (str(out), str(err))
    return Observation(tool, "\n".join(lines), code, about, files, outputs=tuple(outputs))


def shown_words(words: Sequence[str], between: str = " ") -> str:
    """Return words on one line of bounded length, in which none can look like another line of ours."""
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
    """Return the inputs in one line, as a person sees them before a yes."""
    names = [
        each.located.name if each.kind == "file" else f"{each.located.name.rstrip('/')}/" for each in inputs
    ]
    hidden = sum(len(given.hidden) for given in inputs)
    return shown_words(names, ", ") + (f" ({hidden:,} entries left out by rules)" if hidden else "")


def shown_file(file: Path) -> str:
    """Return the beginning and the end of what was printed."""
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
    """Remove what a program left, however it tried to keep it."""

    def opened(function: Callable[[str], None], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            function(path)

    with contextlib.suppress(RecursionError, OSError):
        shutil.rmtree(directory, onerror=opened)
    if directory.exists():
        subprocess.run(["rm", "-rf", "--", str(directory)], check=False, stderr=subprocess.DEVNULL)  # noqa: S603, S607
