"""A command in a sandbox → how it ended. Output goes straight to files; nothing of it outlives its time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vademecum.errors import SandboxFailed, ToolRefused
from vademecum.sandbox.base import Jail, Launch, Sandbox, resource_limits
from vademecum.sandbox.cgroup import ControlGroup, new_group
from vademecum.sandbox.tree import descendants, memory_of

# Why a command ended: by itself, because nobody wants it any more, or because it went beyond a limit.
Reason = Literal["exited", "cancelled", "time", "memory", "processes", "disk"]

MAX_STATUS_BYTES = 64 * 1024
MAX_COMPLAINT_BYTES = 2000
MAX_ENTRIES = 100_000
MAX_WORD_BYTES = 128 * 1024 - 1
MIN_FREE_BYTES = 64 * 1024 * 1024

_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 10.0
_NICE = 10
_WORD_OVERHEAD = 9
_OWN_PROCESSES = 5  # those of the sandbox itself


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; it has no exit code when it was stopped."""

    reason: Reason
    exit_code: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Streams:
    """The files that take what a command prints."""

    out: Path
    err: Path


def run_command(  # noqa: PLR0913 - what a command depends on
    sandbox: Sandbox,
    argv: list[str],
    jail: Jail,
    *,
    streams: Streams,
    cancelled: Callable[[], bool] = bool,
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Run a command to its end, or to the end of its limits; afterwards nothing that it started is left.

    ``cancelled`` is asked now and then whether anybody still wants it.
    """
    _check_length(argv, jail)
    started = clock()
    with _grouped(jail) as group, _started(sandbox, argv, jail, streams, group) as running:
        running.admit(jail)
        reason = running.watch(jail, started=started, cancelled=cancelled, clock=clock)
        running.end(forced=reason != "exited")
        code = running.exit_code() if reason == "exited" else None
        if reason == "exited" and code is None and running.was_started():
            raise SandboxFailed(f"{sandbox.name} was lost while the command ran: what it did is not known.")
        if reason == "exited" and code is None:
            raise _not_started(sandbox, running.complaint(), streams)
        if code and group is not None and group.was_full():
            reason = "processes"
    return Ended(reason, code, clock() - started)


class _Running:
    """One started sandbox."""

    def __init__(self, process: subprocess.Popen[bytes], launch: Launch, group: ControlGroup | None) -> None:
        self._process = process
        self._group = group
        self._release = launch.release
        self._status = launch.status
        self._lifeline: int | None = launch.lifeline
        self._said = b""
        os.set_blocking(self._status, False)

    def admit(self, jail: Jail) -> None:
        """Set the limits of the first process inside, where it waits for that, and let it begin."""
        if self._release is None:
            return
        with _watched(self._process.pid, self._status) as poll:
            while (inside := self._word("child-pid")) is None and self._process.poll() is None:
                poll.poll(1000)
        # It may be gone by now, which its status will say.
        with contextlib.suppress(ProcessLookupError):
            if inside is not None:
                os.setpriority(os.PRIO_PROCESS, inside, _NICE)
                for number, most in resource_limits(jail.limits):
                    resource.prlimit(inside, number, (most, most))
                if self._group is not None:
                    Path(self._group.door).write_text(str(inside))
        self._let_go()

    def _let_go(self) -> None:
        if self._release is not None:
            os.close(self._release)
            self._release = None

    def watch(
        self, jail: Jail, *, started: float, cancelled: Callable[[], bool], clock: Callable[[], float]
    ) -> Reason:
        """Wait for the end, and look now and then whether it keeps to its limits."""
        if self._process.poll() is not None:
            return "exited"
        with _watched(self._process.pid) as poll:
            pause = _LOOK_SECONDS
            while True:
                left = started + jail.limits.seconds - clock()
                if poll.poll(max(0.0, min(pause, left)) * 1000):
                    return "exited"
                if left <= 0:
                    return "time"
                if cancelled():
                    return "cancelled"
                looked = clock()
                beyond = _beyond(self._process.pid, jail)
                if beyond is not None:
                    return beyond
                # Looking must never cost more than a tenth of the time.
                pause = max(_LOOK_SECONDS, 10 * (clock() - looked))

    def end(self, *, forced: bool) -> None:
        """Make sure that it is gone, with everything that it started."""
        if self._group is not None and forced:
            self._group.shut()
        inside = self._word("child-pid")
        if forced and inside is not None and self._process.poll() is None:
            # The first process inside takes all others with it, and is waited for by the sandbox.
            with contextlib.suppress(ProcessLookupError):
                os.kill(inside, signal.SIGKILL)
            self._await_end()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if not self._await_end():
            self._process.kill()
            self._process.wait()

    def _await_end(self) -> bool:
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def exit_code(self) -> int | None:
        """The command's own exit code; none when it was never started."""
        found = self._word("exit-code")
        return found if isinstance(found, int) else None

    def was_started(self) -> bool:
        """Whether the command began, for a sandbox that says so."""
        return bool(self._word("started"))

    def complaint(self) -> str:
        """What the sandbox says went wrong, if it says so apart from the command's output."""
        return str(self._word("error") or "")

    def close(self) -> None:
        """Let go of everything."""
        self.end(forced=True)
        self._let_go()
        os.close(self._status)

    def _word(self, key: str) -> Any:
        """The last value that the sandbox gave for a key."""
        with contextlib.suppress(BlockingIOError):
            while len(self._said) < MAX_STATUS_BYTES and (piece := os.read(self._status, 4096)):
                self._said += piece
        found = None
        for line in self._said.splitlines():
            with contextlib.suppress(ValueError):
                found = json.loads(line).get(key, found)
        return found


def _check_length(argv: list[str], jail: Jail) -> None:
    """Refuse what the system would refuse, before anything is set up for it."""
    words = [os.fsencode(word) for word in (*argv, *jail.environment, *jail.environment.values())]
    total = sum(len(word) + _WORD_OVERHEAD for word in words)
    if total > os.sysconf("SC_ARG_MAX") * 3 // 4 or max(map(len, words)) > MAX_WORD_BYTES:
        raise ToolRefused("The arguments are longer than the system takes: pass fewer or shorter ones.")


@contextlib.contextmanager
def _grouped(jail: Jail) -> Iterator[ControlGroup | None]:
    """A control group for the command, where there can be one, until it is over."""
    group = new_group(jail.limits.processes + _OWN_PROCESSES) if os.geteuid() == 0 else None
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


@contextlib.contextmanager
def _started(
    sandbox: Sandbox, argv: list[str], jail: Jail, streams: Streams, group: ControlGroup | None
) -> Iterator[_Running]:
    launch = sandbox.launch(argv, jail, doors=() if group is None else (group.door,))
    try:
        with open(streams.out, "wb") as out, open(streams.err, "wb") as err:
            process = subprocess.Popen(  # noqa: S603 - that is the purpose
                launch.words,
                env=launch.environment,
                cwd="/",
                stdin=subprocess.DEVNULL if launch.stdin is None else launch.stdin,
                stdout=out,
                stderr=err,
                pass_fds=launch.pass_on,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        for descriptor in (launch.status, launch.lifeline, launch.release):
            if descriptor is not None:
                os.close(descriptor)
        raise SandboxFailed(f"{sandbox.name} could not be started ({error}): nothing ran.") from error
    finally:
        for descriptor in (*launch.pass_on, *([] if launch.stdin is None else [launch.stdin])):
            os.close(descriptor)
    running = _Running(process, launch, group)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def _watched(pid: int, *descriptors: int) -> Iterator[select.poll]:
    """Waits for the end of a process, or for something to read from the descriptors."""
    process = os.pidfd_open(pid)
    try:
        poll = select.poll()
        for descriptor in (process, *descriptors):
            poll.register(descriptor, select.POLLIN)
        yield poll
    finally:
        os.close(process)


def _beyond(pid: int, jail: Jail) -> Reason | None:
    """Which limit is exceeded now, if any."""
    most = jail.limits.processes + _OWN_PROCESSES
    processes = list(itertools.islice(descendants(pid), most + 1))
    if len(processes) > most:
        return "processes"
    if sum(map(memory_of, processes)) > jail.limits.memory_bytes:
        return "memory"
    if _disk_exceeded(jail, processes):
        return "disk"
    return None


def _disk_exceeded(jail: Jail, processes: list[int]) -> bool:
    """Whether it wrote too much, or the disk is nearly full, whoever filled it."""
    try:
        free = os.statvfs(jail.directory)
    except FileNotFoundError:
        return False  # the sandbox will say that it could not start there
    if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
        return True
    places = [*jail.writable, *([] if jail.shared is None else [jail.shared])]
    used = sum(_deleted_but_open(processes))
    try:
        for place in places:
            if place.is_dir():
                descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                used += _size_below(descriptor, [MAX_ENTRIES])
                os.close(descriptor)
    except (PermissionError, RecursionError):
        return True  # what cannot be looked at cannot be within bounds
    return used > jail.limits.disk_bytes


def _size_below(directory: int, left: list[int]) -> int:
    """The bytes of all files below an open directory, however deep; too many files are too much."""
    used = 0
    with os.scandir(directory) as listing:
        for entry in listing:
            left[0] -= 1
            if left[0] < 0:
                raise PermissionError
            try:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    below = os.open(
                        entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory
                    )
                    try:
                        used += _size_below(below, left)
                    finally:
                        os.close(below)
            except (FileNotFoundError, NotADirectoryError):
                continue
    return used


def _deleted_but_open(processes: list[int]) -> Iterator[int]:
    """The sizes of files that have no name any more but are still held open, each once."""
    seen: set[tuple[int, int]] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):
                found = os.stat(f"/proc/{process}/fd/{name}")
                key = (found.st_dev, found.st_ino)
                if found.st_nlink == 0 and key not in seen:
                    seen.add(key)
                    yield found.st_blocks * 512


def _not_started(sandbox: Sandbox, complaint: str, streams: Streams) -> SandboxFailed:
    """What the sandbox itself printed is its complaint, and must not pass for the command's output."""
    printed = streams.err.read_bytes()[-MAX_COMPLAINT_BYTES:].decode("utf-8", "replace").strip()
    streams.err.write_bytes(b"")
    reason = complaint or printed or "it said nothing"
    return SandboxFailed(f"{sandbox.name} could not start the command ({reason}): nothing ran.")
