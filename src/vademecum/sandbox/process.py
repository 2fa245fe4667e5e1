"""Run a command in a sandbox and return how it ended; no process of it is left afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

from vademecum.errors import SandboxFailed, ToolRefused
from vademecum.sandbox.base import ByProxy, Jail, Sandbox, nameless, remove_mount_points
from vademecum.sandbox.usage import JobUsage

Stream = Literal["out", "err"]
OnOutput = Callable[[Stream, bytes], None]
# Why a command ended: on its own, because the caller cancelled it, or because it exceeded a limit.
Reason = Literal["exited", "cancelled", "time", "memory", "processes", "disk", "output"]

MAX_STATUS_BYTES = 64 * 1024
MAX_COMPLAINT_BYTES = 2000
MAX_STDIN_BYTES = 64 * 1024 * 1024
MAX_WORD_BYTES = 128 * 1024 - 1
CATCH_UP_SECONDS = 1.0

_CHUNK_BYTES, _SHOWN_BYTES = 1024 * 1024, 64 * 1024
_LOOK_SECONDS = 0.05
_GATHER_SECONDS = 0.02  # output within this time is passed on together
_PATIENCE_SECONDS = 10.0
_WORD_OVERHEAD = 9


@dataclass(frozen=True, slots=True)
class Streams:
    """The files that receive what a command prints to its standard output and its standard error."""

    out: Path
    err: Path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; a stopped command has no exit code."""

    reason: Reason
    exit_code: int | None
    seconds: float


def run_command(  # noqa: PLR0913 - what a command depends on
    sandbox: Sandbox,
    argv: list[str],
    jail: Jail,
    *,
    streams: Streams,
    stdin: bytes | int | None = None,
    on_output: OnOutput | None = None,
    cancelled: Callable[[], bool] = bool,
) -> Ended:
    """Run a command to its end, or stop it at its limits; afterwards no process of it is left.

    Its output is appended to the files of ``streams`` while it runs. A separate thread passes it to
    ``on_output``, as the stream (``"out"`` or ``"err"``) and the bytes. The command never waits for
    ``on_output``, which has a second to catch up when the command has ended.

    ``stdin`` is the standard input: at most ``MAX_STDIN_BYTES``, or a descriptor to read from;
    ``None`` is ``/dev/null``.
    ``cancelled`` is called at least every quarter of a second; when it returns true, the command is stopped.

    Raise ``ToolRefused`` if the arguments or the standard input are too long, and ``SandboxFailed`` if the
    sandbox could not start the command.
    """
    words = [os.fsencode(word) for word in (*argv, *jail.environment, *jail.environment.values())]
    total = sum(len(word) + _WORD_OVERHEAD for word in words)
    if total > os.sysconf("SC_ARG_MAX") * 3 // 4 or max(map(len, words)) > MAX_WORD_BYTES:
        raise ToolRefused("The arguments are longer than the system takes: pass fewer or shorter ones.")
    if isinstance(stdin, bytes) and len(stdin) > MAX_STDIN_BYTES:
        raise ToolRefused(
            f"The standard input is longer than {MAX_STDIN_BYTES:,} bytes: pass a file instead."
        )
    usage = JobUsage(jail)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(remove_mount_points, jail)
        stack.callback(usage.remove)
        pump = stack.enter_context(contextlib.closing(_Pump(streams, jail.limits.output_bytes)))
        if on_output is not None:
            stack.enter_context(_listening(streams, on_output))
        running = _Running(sandbox, argv, jail, pump=pump, stdin=stdin, usage=usage)
        stack.callback(running.close)
        reason = running.watch(deadline=started + jail.limits.seconds, cancelled=cancelled)
        running.end(forced=reason != "exited")
        while pump.stopped is None and pump.pass_on():
            pass  # do not wait for a process that still has a pipe open
        seconds = time.monotonic() - started
        if reason != "exited":
            return Ended(reason, None, seconds)
        code, complaint = running.said("exit-code"), running.said("error")
        if code is None and running.said("started"):
            raise SandboxFailed(f"{sandbox.name} was lost while the command ran: its effects are unknown.")
        if code is None or complaint:
            # The sandbox's own error must not look like the command's output.
            printed = streams.err.read_bytes()[-MAX_COMPLAINT_BYTES:].decode("utf-8", "replace").strip()
            streams.err.write_bytes(b"")
            why = complaint or printed or "it said nothing"
            raise SandboxFailed(f"{sandbox.name} could not start the command ({why}): nothing ran.")
        if pump.stopped is not None:
            return Ended(pump.stopped, None, seconds)
        full = code and usage.was_full()
        return Ended("processes" if full else "exited", code, seconds)


class _Pump:
    """Two pipes, whose content is appended to files up to a cap.

    ``writers`` are the ends for the command, which cannot change its earlier output: it has the pipes, not
    the files. ``poll`` has the other ends while they are open. ``stopped`` says why no more is read: the cap,
    or a file that cannot be written.
    """

    def __init__(self, streams: Streams, cap: int) -> None:
        self._left, self.poll = cap, select.poll()
        self.stopped: Literal["output", "disk"] | None = None
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._files: dict[int, BinaryIO] = {}
        self.writers: list[FileIO] = []
        for path in (streams.out, streams.err):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            with contextlib.suppress(OSError):  # more than the user's limit
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
            self.writers.append(FileIO(writer, "w"))
            self._files[reader] = open(path, "wb", buffering=0)  # noqa: SIM115 - closed with the pump
            self.poll.register(reader, select.POLLIN)

    def pass_on(self) -> bool:
        """Append the content of the pipes to the files, without waiting; return whether there was any."""
        moved = False
        for reader in list(self._files):
            try:
                size = os.readv(reader, [self._buffer])
            except BlockingIOError:
                continue
            if size == 0:
                self._close(reader)
                continue
            moved = True
            kept = min(size, self._left)
            self._left -= kept
            if kept < size:
                self.stopped = "output"
            data = self._buffer[:kept]
            try:
                while data:
                    data = data[self._files[reader].write(data) :]
            except OSError:
                self.stopped = "disk"
        return moved

    def close(self) -> None:
        """Close everything."""
        for writer in self.writers:
            writer.close()
        for reader in list(self._files):
            self._close(reader)

    def _close(self, reader: int) -> None:
        self.poll.unregister(reader)
        self._files.pop(reader).close()
        os.close(reader)


@contextlib.contextmanager
def _listening(streams: Streams, on_output: OnOutput) -> Iterator[None]:
    """Pass the output to a listener, complete and in order for each stream.

    A separate thread reads it from the files, so a slow listener delays neither the command nor its limits.
    At the end, it has a second to catch up, then it gets no more.
    """
    complete, abandoned = threading.Event(), threading.Event()

    def tell() -> None:
        with open(streams.out, "rb", buffering=0) as out, open(streams.err, "rb", buffering=0) as err:
            files: tuple[tuple[Stream, BinaryIO], ...] = (("out", out), ("err", err))
            is_last = False
            while not is_last:
                is_last = complete.wait(_GATHER_SECONDS)
                for stream, file in files:
                    while chunk := file.read(_SHOWN_BYTES):
                        if abandoned.is_set():
                            return
                        on_output(stream, chunk)

    thread = threading.Thread(target=tell, name="vademecum-output", daemon=True)
    thread.start()
    try:
        yield
    finally:
        complete.set()
        thread.join(CATCH_UP_SECONDS)
        abandoned.set()


class _Running:
    """One started sandbox, which owns the ends of its launch that stay open here."""

    def __init__(  # noqa: PLR0913 - what a command depends on
        self,
        sandbox: Sandbox,
        argv: list[str],
        jail: Jail,
        *,
        pump: _Pump,
        stdin: bytes | int | None,
        usage: JobUsage,
    ) -> None:
        """Start the sandbox; all descriptors that it gets are closed here."""
        self._pump, self._usage, self._jail, self._words = pump, usage, jail, b""
        given = os.dup(stdin) if isinstance(stdin, int) else None if stdin is None else nameless(stdin)
        passed = [given]
        try:
            self._launch = launch = sandbox.launch(argv, jail, stdin=given)
            passed = [launch.stdin, *launch.pass_on]
            with contextlib.ExitStack() as on_failure:
                on_failure.callback(launch.close)
                self._process = subprocess.Popen(  # noqa: S603 - that is the purpose
                    launch.words,
                    env=launch.environment,
                    cwd="/",
                    stdin=subprocess.DEVNULL if launch.stdin is None else launch.stdin,
                    stdout=pump.writers[0],
                    stderr=pump.writers[1],
                    pass_fds=launch.pass_on,
                    start_new_session=True,
                )
                on_failure.pop_all()
        except (OSError, ValueError) as error:
            raise SandboxFailed(f"{sandbox.name} could not be started ({error}): nothing ran.") from error
        finally:
            for writer in pump.writers:
                writer.close()
            for passed_on in passed:
                if passed_on is not None:
                    os.close(passed_on)
        os.set_blocking(launch.status.fileno(), False)

    def watch(self, *, deadline: float, cancelled: Callable[[], bool]) -> Reason:
        """Start the command and wait for its end; meanwhile pass its output on, and check its limits."""
        launch, poll = self._launch, self._pump.poll
        launch.check()
        ask = look = time.monotonic() + _LOOK_SECONDS
        with open(os.pidfd_open(self._process.pid), "rb", buffering=0) as process:
            for end in (process, launch.status, launch.doorway):
                if end is not None:
                    poll.register(end, select.POLLIN)
            while True:
                left = deadline - time.monotonic()
                ready = dict(poll.poll(max(0.0, min(_LOOK_SECONDS, left)) * 1000))
                self._pump.pass_on()
                self._attend(ready)
                if self._pump.stopped is not None:
                    return self._pump.stopped
                if process.fileno() in ready:
                    return "exited"
                if left <= 0:
                    return "time"
                if (now := time.monotonic()) < ask:
                    continue
                ask = now + _LOOK_SECONDS
                if cancelled():
                    return "cancelled"
                if now < look:
                    continue
                exceeded = self._usage.exceeded(self._process.pid)
                if exceeded is not None:
                    return exceeded
                # Checking must take at most a tenth of the time.
                look = now + max(_LOOK_SECONDS, 10 * (time.monotonic() - now))

    def _attend(self, ready: Container[int]) -> None:
        """Release the first process, and give the proxy the socket that listens inside."""
        status, release, doorway = self._launch.status, self._launch.release, self._launch.doorway
        if status.fileno() in ready and (inside := self.said("child-pid")) is not None:
            self._pump.poll.unregister(status)
            # It may have ended already, which its status will say.
            try:
                with contextlib.suppress(ProcessLookupError, BrokenPipeError):
                    self._usage.begin(inside)
                    release.write(b"x")
            except OSError as error:
                text = f"The limits of the command cannot be set ({error.strerror}): nothing ran."
                raise SandboxFailed(text) from error
            release.close()
        if doorway is not None and doorway.fileno() in ready:
            assert isinstance(self._jail.network, ByProxy)
            self._pump.poll.unregister(doorway)
            with doorway:
                _, descriptors, _, _ = socket.recv_fds(doorway, 1, 1)
            for descriptor in descriptors:  # none if it is gone already
                self._jail.network.serve(socket.socket(fileno=descriptor))

    def end(self, *, forced: bool) -> None:
        """Make sure that it has ended, with all its children."""
        if forced:
            self._usage.shut()
        inside = self.said("child-pid")
        if forced and inside is not None and self._process.poll() is None:
            # The end of the first process ends all others, and the sandbox waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(inside, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_SECONDS)
        self._launch.lifeline.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it if it still runs, and close everything."""
        if self._process.returncode is None:
            self.end(forced=True)
        self._launch.close()

    def said(self, key: Literal["child-pid", "started", "error", "exit-code"]) -> Any:
        """Return the last value that the sandbox reported for a key, if any."""
        while len(self._words) < MAX_STATUS_BYTES and (piece := self._launch.status.read(4096)):
            self._words += piece
        found = None
        for line in self._words.splitlines():
            with contextlib.suppress(ValueError):
                found = json.loads(line).get(key, found)
        return found
