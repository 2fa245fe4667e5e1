"""Output of a command: from pipes into files while it runs, with a cap, and to a listener."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

Stream = Literal["out", "err"]
OnOutput = Callable[[Stream, bytes], None]

CHUNK_BYTES = 1024 * 1024
SHOWN_BYTES = 64 * 1024
CATCH_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Streams:
    """The files that receive what a command prints to its standard output and its standard error."""

    out: Path
    err: Path


class Pump:
    """Two pipes and the files that their content is appended to.

    ``writers`` are the ends for the command. The command cannot change what it printed: it has the pipes,
    not the files. ``stopped`` says why no more is taken: the cap, or a file that cannot be written.

    The listener runs in a thread of its own and reads from the files, so that a slow one delays neither the
    command nor its limits; what it is given is complete and in order for each stream.
    """

    def __init__(self, streams: Streams, cap: int, on_output: OnOutput | None) -> None:
        self._left = cap
        self.stopped: Literal["output", "disk"] | None = None
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._files: dict[int, BinaryIO] = {}
        self.writers: list[int] = []
        for path in (streams.out, streams.err):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            with contextlib.suppress(OSError):  # more than a user may have
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
            self.writers.append(writer)
            self._files[reader] = open(path, "wb", buffering=0)  # noqa: SIM115 - closed with the pump
        self._follower = None if on_output is None else _Follower(streams, on_output)

    def register(self, poll: select.poll) -> None:
        """Have ``poll`` return when there is something to pass on."""
        for reader in self._files:
            poll.register(reader, select.POLLIN)

    def close_writers(self) -> None:
        """Close the ends that were for the command, once it has them."""
        while self.writers:
            os.close(self.writers.pop())

    def pass_on(self, poll: select.poll | None = None) -> bool:
        """Append what is in the pipes to the files, without waiting; return whether there was anything.

        Pipes at their end are taken out of ``poll``.
        """
        moved = False
        for reader in list(self._files):
            try:
                size = os.readv(reader, [self._buffer])
            except BlockingIOError:
                continue
            if size == 0:
                self._close(reader, poll)
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
        if moved and self._follower is not None:
            self._follower.wake()
        return moved

    def _close(self, reader: int, poll: select.poll | None) -> None:
        if poll is not None:
            poll.unregister(reader)
        self._files.pop(reader).close()
        os.close(reader)

    def finish(self) -> None:
        """Take what is left in the pipes; a process that still has a pipe open is not waited for."""
        while self.stopped is None and self.pass_on():
            pass
        if self._follower is not None:
            self._follower.finish(CATCH_UP_SECONDS)
            self._follower = None

    def close(self) -> None:
        """Close everything; a listener that has not caught up gets no more."""
        self.close_writers()
        for reader in list(self._files):
            self._close(reader, None)
        if self._follower is not None:
            self._follower.finish(0)


class _Follower:
    """A thread that reads two growing files and tells a listener."""

    def __init__(self, streams: Streams, on_output: OnOutput) -> None:
        self._on_output = on_output
        self._files: tuple[tuple[Stream, BinaryIO], ...] = (
            ("out", open(streams.out, "rb", buffering=0)),  # noqa: SIM115 - closed by the thread
            ("err", open(streams.err, "rb", buffering=0)),  # noqa: SIM115
        )
        self._grown = threading.Event()
        self._complete = self._abandoned = False
        self._thread = threading.Thread(target=self._follow, name="vademecum-output", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that a file has grown."""
        self._grown.set()

    def finish(self, seconds: float) -> None:
        """Wait until the listener has everything, or for so many seconds."""
        self._complete = True
        self._grown.set()
        self._thread.join(seconds)
        self._abandoned = True

    def _follow(self) -> None:
        try:
            complete = False
            while not complete:
                self._grown.wait()
                self._grown.clear()
                complete = self._complete
                for stream, file in self._files:
                    while chunk := file.read(SHOWN_BYTES):
                        if self._abandoned:
                            return
                        self._on_output(stream, chunk)
        finally:
            for _, file in self._files:
                file.close()
