"""A program with its inputs and limits → what came of it; scripts and commands run the same way."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

from vademecum.config import ExecutionSettings
from vademecum.errors import PathRefused
from vademecum.files import sha256_of
from vademecum.paths import check_relative
from vademecum.sandbox.base import Jail, Limits, Mount, Network, Sandbox
from vademecum.sandbox.interpreters import SYSTEM_PATH
from vademecum.sandbox.process import Ended, OnOutput, Streams, run_command
from vademecum.skill.text import escaped, visible, without_hidden
from vademecum.tools.calls import Observation
from vademecum.tools.inputs import (
    MAX_COPIED_FILES,
    MAX_INPUT_BYTES,
    Input,
    Stamp,
    copy_into,
    free_name,
    parts_of,
)
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
        self.place = place
        self.work, self.home, self.temporary, self.shared = (
            place / name for name in ("work", "home", "tmp", "shared")
        )
        self.outputs = place / "outputs"
        self.streams = Streams(place / "stdout", place / "stderr")

    def __enter__(self) -> Self:
        for directory in (self.work, self.home, self.temporary, self.shared):
            directory.mkdir(parents=True)
        return self

    def __exit__(self, *error: object) -> None:
        for directory in (self.work, self.home, self.temporary, self.shared):
            _remove(directory)


@dataclass(frozen=True, slots=True)
class Furnished:
    """The part of the project that a program sees, and its arguments with the names used there."""

    words: tuple[str, ...]
    mounted: tuple[Mount, ...] = ()
    hidden: tuple[Path, ...] = ()
    copies: dict[str, Stamp] = field(default_factory=dict)
    left_out: int = 0


def furnish(room: Room, inputs: Sequence[Input], words: Sequence[str], sandbox: Sandbox) -> Furnished:
    """Put the inputs where the program finds them: copies of files, directories in place."""
    left, names = [MAX_INPUT_BYTES], {}
    copies: dict[str, Stamp] = {}
    mounted, hidden = [], []
    placed: dict[Path, str] = {}
    for given in inputs:
        real = Path(os.path.realpath(given.located.path))
        if given.kind != "directory" or not sandbox.hides or _is_better_copied(given, sandbox):
            if real not in placed:
                placed[real] = free_name(room.work, given.name)
                copies |= copy_into(room.work, given, placed[real], left)
            names[given.typed] = placed[real] or "."
            continue
        hidden += [real / name for name in given.hidden]
        if given.name and not given.typed.startswith("/") and ".." not in given.typed.split("/"):
            mounted.append(Mount(real, room.work / given.name))
            # Otherwise it may be a link, into which programs such as find go only with a slash behind it.
            at_its_name = sandbox.name == "bubblewrap" and not given.hidden
            names[given.typed] = given.typed if at_its_name else f"{given.typed.rstrip('/')}/"
        else:
            mounted.append(Mount(real, real))
            names[given.typed] = str(real)
    _make_parents(room.work, words, [mount.name for mount in mounted])
    return Furnished(
        renamed(words, names),
        tuple(mounted),
        tuple(hidden),
        copies,
        sum(len(given.hidden) for given in inputs),
    )


def _is_better_copied(given: Input, sandbox: Sandbox) -> bool:
    """Return whether a copy leaves out what is hidden, while a sandbox only keeps it from being read."""
    if not given.hidden or sandbox.name == "bubblewrap":
        return False
    files = (name for _, _, names in os.walk(given.located.path) for name in names)
    return sum(1 for _ in islice(files, MAX_COPIED_FILES + 1)) <= MAX_COPIED_FILES


def renamed(words: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with what they name, whole or after ``name=``, under other names."""
    return tuple(
        next((f"{head}{names[part]}" for head, part in parts_of(word) if part in names), word)
        for word in words
    )


def _make_parents(work: Path, words: Sequence[str], shown: Sequence[Path]) -> None:
    """Make the directories of files that a script is told to write, such as ``out`` for ``out/chart.png``."""
    for word in words[:MAX_SHOWN_WORDS]:
        for _, part in parts_of(word):
            with contextlib.suppress(PathRefused, OSError):
                check_relative(work, part)
                parent = (work / part).parent
                if "://" not in part and not any(parent.is_relative_to(each) for each in shown):
                    parent.mkdir(parents=True, exist_ok=True)


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


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that is over: how it ended, and what it left; ``beyond`` is the number of files not kept."""

    job: Job
    ended: Ended
    room: Room
    outputs: Sequence[Output] = ()
    beyond: int = 0


def observe(tool: str, ran: Ran, facts: Mapping[str, Any], notes: Sequence[str] = ()) -> Observation:
    """Say what came of it: how it ended, what it printed, what it left."""
    title, ended = ran.job.title, ran.ended
    if ended.reason == "exited":
        lines = [f"{title} ended with exit code {ended.exit_code} after {ended.seconds:.2f} s."]
    else:
        lines = [f"{title} was stopped after {ended.seconds:.2f} s: {_STOPPED[ended.reason]}."]
    out, err = ran.room.streams.out, ran.room.streams.err
    for name, file in (("printed", out), ("complained", err)):
        if file.stat().st_size:
            lines += [f"It {name}:", shown_file(file)]
    if not out.stat().st_size and not err.stat().st_size:
        lines.append("It printed nothing.")
    lines += [*_left(ran.outputs, ran.beyond), *notes]
    left_out = ran.job.furnished.left_out
    about = {
        "exit_code": ended.exit_code,
        "reason": ended.reason,
        "stdout_bytes": out.stat().st_size,
        "stdout_sha256": sha256_of(out),
        "stderr_bytes": err.stat().st_size,
        "stderr_sha256": sha256_of(err),
        "outputs": [output.to_json() for output in ran.outputs],
        **({"left_out": left_out} if left_out else {}),
        **facts,
    }
    code = "" if ended.reason == "exited" else f"stopped-{ended.reason}"
    files = (str(out), str(err))
    return Observation(tool, "\n".join(lines), code, about, files, outputs=tuple(ran.outputs))


def _left(made: Sequence[Output], beyond: int) -> Iterator[str]:
    """Say which files it left, and by which names later calls can use them."""
    for output in made[:MAX_LISTED_OUTPUTS]:
        secret = ", which contains a secret and cannot be read" if output.secret else ""
        yield f"It left {visible(output.reference)} ({output.bytes:,} bytes{secret})."
    if len(made) > MAX_LISTED_OUTPUTS:
        yield f"It left {len(made) - MAX_LISTED_OUTPUTS:,} more files."
    if beyond:
        yield f"{beyond:,} files more were left and not kept: at most {len(made):,} are."


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
        given.located.name if given.kind == "file" else f"{given.located.name.rstrip('/')}/"
        for given in inputs
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
