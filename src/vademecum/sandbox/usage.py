"""Measure and cap what a command and its processes use: processes, memory, disk."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from vademecum.errors import SandboxFailed
from vademecum.sandbox.base import Jail
from vademecum.sandbox.supervise import descendants

MAX_ENTRIES = 100_000
MAX_EARLIER_ENTRIES = 1_000_000
MIN_FREE_BYTES = 64 * 1024 * 1024
OWN_PROCESSES = 5  # of the sandbox itself

_NICE = 10

# A control group also caps the number of processes of root, who is exempt from ``RLIMIT_NPROC``.
_MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "vademecum-"
_NO_GROUP = Path("/nonexistent")
_ATTEMPTS, _ATTEMPT_SECONDS = 200, 0.002


class JobUsage:
    """The limits of one jail, set at the beginning and checked until the end.

    Existing content of writable paths does not count. Root gets a control group with a cap on processes;
    other users, and systems without such groups, do not.
    """

    def __init__(self, jail: Jail) -> None:
        self._jail = jail
        self._places = [*jail.writable, *([] if jail.shared is None else [jail.shared])]
        left = [MAX_EARLIER_ENTRIES]
        try:
            self._earlier = self._written(left)
        except _NotWatchable as error:
            raise SandboxFailed(
                f"A directory to write to has more than {MAX_EARLIER_ENTRIES:,} files or cannot be read: "
                "name another one. Nothing ran."
            ) from error
        self._entries = MAX_ENTRIES + MAX_EARLIER_ENTRIES - left[0]
        self._most = jail.limits.processes + OWN_PROCESSES
        self._group = _new_group(self._most) if os.geteuid() == 0 else _NO_GROUP

    def begin(self, pid: int) -> None:
        """Set the limits of a process, which its children inherit."""
        limits = self._jail.limits
        found = [
            (resource.RLIMIT_DATA, limits.memory_bytes),
            (resource.RLIMIT_FSIZE, limits.file_bytes),
            (resource.RLIMIT_NOFILE, limits.open_files),
            (resource.RLIMIT_CORE, 0),
        ]
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The limit counts all processes of the user, so the number of all processes here is added.
            running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
            found.append((resource.RLIMIT_NPROC, running + limits.processes))
        for number, most in found:
            own = resource.getrlimit(number)[1]  # we cannot raise it
            value = most if own == resource.RLIM_INFINITY else min(most, own)
            resource.prlimit(pid, number, (value, value))
        os.setpriority(os.PRIO_PROCESS, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICE))
        if self._group != _NO_GROUP:
            (self._group / "cgroup.procs").write_text(str(pid))

    def exceeded(self, pid: int) -> Literal["memory", "processes", "disk"] | None:
        """Return the limit that the processes below ``pid`` exceed now."""
        processes = descendants(pid, self._most + 1)
        if len(processes) > self._most:
            return "processes"
        memory, deleted = _held(processes)
        if memory > self._jail.limits.memory_bytes:
            return "memory"
        try:
            disk = os.statvfs(self._jail.directory)
            written = self._written([self._entries])
        except FileNotFoundError:
            return None  # the sandbox will report that it could not start there
        except _NotWatchable:
            return "disk"
        if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
            return "disk"
        return "disk" if deleted + written - self._earlier > self._jail.limits.disk_bytes else None

    def was_full(self) -> bool:
        """Return whether the cap prevented the start of a process."""
        with contextlib.suppress(OSError, ValueError):
            words = (self._group / "pids.events").read_text().split()
            return int(words[words.index("max") + 1]) > 0
        return False

    def shut(self) -> None:
        """Prevent the start of new processes inside."""
        with contextlib.suppress(OSError):
            (self._group / "pids.max").write_text("0")

    def remove(self) -> None:
        """End the remaining processes and remove the group, for which the kernel can need a moment."""
        self.shut()
        with contextlib.suppress(OSError):
            for process in (self._group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(OSError):
                os.rmdir(self._group)
            if not self._group.exists():
                return
            time.sleep(_ATTEMPT_SECONDS)

    def _written(self, left: list[int]) -> int:
        """Return the bytes in all places; nested places count more than once."""
        return sum(_size_of(str(place), left) for place in self._places)


class _NotWatchable(Exception):
    """There are too many files to count, or a directory cannot be entered."""


def _size_of(path: str, left: list[int], parent: int | None = None) -> int:
    """Return the bytes of a file, or of a directory and everything below it, at any depth."""
    used, own = 0, parent is None
    try:
        found = os.lstat(path, dir_fd=parent)
        used, own = found.st_blocks * 512, own or found.st_uid == os.geteuid()
        if stat.S_ISDIR(found.st_mode):
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                with os.scandir(opened) as listing:
                    for entry in listing:
                        left[0] -= 1
                        if left[0] < 0:
                            raise _NotWatchable
                        used += _size_of(entry.name, left, opened)
            finally:
                os.close(opened)
    except (FileNotFoundError, NotADirectoryError):
        return used  # it was removed meanwhile
    except (OSError, RecursionError) as error:
        if own or isinstance(error, RecursionError):  # a command can make one unreadable
            raise _NotWatchable from error
    return used


def _held(processes: list[int]) -> tuple[int, int]:
    """Return the memory that processes use, and the size of their open files without a name."""
    memory, deleted, sockets = 0, dict[tuple[int, int], int](), set[int]()
    for place in (f"/proc/{process}" for process in processes):
        with contextlib.suppress(OSError):  # the process may have ended
            with open(f"{place}/statm") as pages:
                memory += int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for name in os.listdir(f"{place}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(f"{place}/fd/{name}")
                    if stat.S_ISSOCK(found.st_mode):
                        sockets.add(found.st_ino)
                    elif found.st_nlink == 0:
                        deleted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return memory + len(sockets) * _socket_bytes(), sum(deleted.values())


@cache
def _socket_bytes() -> int:
    """Return the largest content of a socket, which does not count as memory of a process."""
    try:
        return int(Path("/proc/sys/net/core/wmem_default").read_text())
    except (OSError, ValueError):
        return 212_992


def _new_group(processes: int) -> Path:
    for parent in _parents():
        path = parent / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            for old in parent.glob(f"{_PREFIX}*"):  # of a killed process of ours
                if not os.path.exists(f"/proc/{old.name.removeprefix(_PREFIX).partition('-')[0]}"):
                    old.rmdir()
        with contextlib.suppress(OSError):
            path.mkdir()
            with contextlib.suppress(OSError):
                (path / "pids.max").write_text(str(processes))
                return path
            path.rmdir()
    return _NO_GROUP


def _parents() -> Iterator[Path]:
    """Yield where to make a group with a cap on processes: our own group, and its parents."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            if controllers == "pids":
                yield _MOUNT / "pids" / own.lstrip("/")
            elif controllers == "" and (_MOUNT / "cgroup.controllers").exists():
                place = _MOUNT / own.lstrip("/")
                yield from (place, *(parent for parent in place.parents if parent.is_relative_to(_MOUNT)))
