"""A control group that caps the number of processes, where the kernel and our rights allow one.

For most users ``RLIMIT_NPROC`` is enough. Root is exempt from that limit, but not from this one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "vademecum-"
_ATTEMPTS, _ATTEMPT_SECONDS = 200, 0.002


class ControlGroup:
    """One group, made for one command."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def door(self) -> str:
        """The file that a process writes its number to, to be inside."""
        return str(self._path / "cgroup.procs")

    def was_full(self) -> bool:
        """Return whether the cap stopped a process from being started."""
        with contextlib.suppress(OSError, ValueError):
            words = (self._path / "pids.events").read_text().split()
            return int(words[words.index("max") + 1]) > 0
        return False

    def shut(self) -> None:
        """Let nothing new be started inside."""
        with contextlib.suppress(OSError):
            (self._path / "pids.max").write_text("0")

    def remove(self) -> None:
        """End whatever may still be inside and remove the group; the kernel may need a moment for it."""
        self.shut()
        with contextlib.suppress(OSError):
            for process in (self._path / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
        for _ in range(_ATTEMPTS):
            try:
                os.rmdir(self._path)
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(_ATTEMPT_SECONDS)
            else:
                return


def new_group(processes: int) -> ControlGroup | None:
    """A new group for so many processes, or none where there can be none."""
    for parent in _parents():
        _sweep(parent)
        path = parent / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            (path / "pids.max").write_text(str(processes))
        except OSError:
            os.rmdir(path)
            continue
        return ControlGroup(path)
    return None


def _sweep(parent: Path) -> None:
    """Remove the groups that a process of ours left behind when it was killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            maker = name.removeprefix(_PREFIX).partition("-")[0]
            if name.startswith(_PREFIX) and not os.path.exists(f"/proc/{maker}"):
                with contextlib.suppress(OSError):
                    os.rmdir(parent / name)


def _parents() -> Iterator[Path]:
    """Where a group with a cap on processes could be made: our own group, and those around it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers == "pids":
            yield _MOUNT / "pids" / own.lstrip("/")
        elif controllers == "" and (_MOUNT / "cgroup.controllers").exists():
            place = _MOUNT / own.lstrip("/")
            yield from (place, *(parent for parent in place.parents if parent.is_relative_to(_MOUNT)))
