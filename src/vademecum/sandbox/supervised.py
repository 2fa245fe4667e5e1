"""Landlock, and no confinement at all: both start the command through a supervisor of ours."""

from __future__ import annotations

import marshal
import os
import socket
import sys
from collections.abc import Iterable
from functools import cache
from importlib.abc import InspectLoader
from types import CodeType

from vademecum.errors import SandboxFailed
from vademecum.sandbox import seccomp, supervise
from vademecum.sandbox.base import (
    PROXY_PORT,
    ByProxy,
    Jail,
    Launch,
    environment_of,
    make_mount_points,
    nameless,
    parts_of,
    resource_limits,
    system_paths,
)

MIN_LANDLOCK = 3  # before that, files could be emptied anywhere

# Landlock's rights: list a directory; read and execute; everything but making devices.
_LIST, _READ, _WRITE = 0b1000, 0b1101, 0xFFFF & ~((1 << 6) | (1 << 11))
# A path, the rights below it, and whether it may be a link.
Rule = tuple[str, int, bool]

_PROC_FILES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
_PROC_SYS = ("kernel/osrelease", "kernel/ostype", "kernel/version", "kernel/random", "vm/overcommit_memory")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# The start of the interpreter is most of the cost: no `site`, and compiled modules are looked for first.
_PROGRAM = """
import marshal, sys
sys.path.reverse()
with open(int(sys.argv[1]), "rb") as told:
    code, job = marshal.load(told)
program = {"__name__": "program"}
exec(code, program)
program["main"](job)
"""
# The interpreter behind a virtual environment starts a little faster, and runs none of its packages here.
_PYTHON: str = getattr(sys, "_base_executable", "") or sys.executable


class Unconfined:
    """Limits and a supervisor only, for users who choose it by name."""

    name = "none"
    hides = False

    def launch(
        self, argv: list[str], jail: Jail, *, doors: tuple[str, ...] = (), stdin: int | None = None
    ) -> Launch:
        """Prepare the supervisor, which is told what to do through a file without a name."""
        if jail.hidden and not self.hides:
            raise SandboxFailed(f"{self.name} cannot hide files: copy what the command may read.")
        make_mount_points(jail, links=True)
        status, speak = os.pipe()
        lifeline, hold = os.pipe()
        doorway, inner = doorway_for(jail)
        passed = [speak, lifeline, *([] if inner is None else [inner])]
        job = self._job(argv, jail) | {"doors": doors, "doorway": inner}
        told, words = program_words(job, speak, lifeline)
        return Launch(words, {}, (told, *passed), status, hold, stdin=stdin, doorway=doorway)

    def _job(self, argv: list[str], jail: Jail) -> dict[str, object]:
        return {
            "argv": argv,
            "directory": str(jail.directory),
            "environment": environment_of(jail),
            "limits": resource_limits(jail.limits),
            "network": jail.network != "none",
            "port": PROXY_PORT,
            "alone": True,
            "filter": None,
            "rules": [],
        }


class Landlock(Unconfined):
    """The kernel's own rules on files, with a filter on system calls for what they do not cover."""

    name = "landlock"
    hides = True

    def __init__(self, version: int | None = None) -> None:
        """Use what the kernel has, or do as an older kernel would need it."""
        found = landlock_found()
        self._version = found if version is None else min(version, found)
        if self._version < MIN_LANDLOCK or not seccomp.supported():
            raise SandboxFailed(
                f"Landlock is not usable here: the kernel has {self._version}, {MIN_LANDLOCK} is needed."
            )

    def _job(self, argv: list[str], jail: Jail) -> dict[str, object]:
        proc = [*(f"/proc/{name}" for name in _PROC_FILES), *(f"/proc/sys/{name}" for name in _PROC_SYS)]
        readable = [*system_paths(jail.network), *proc, "/proc/self"]
        return super()._job(argv, jail) | {
            "rules": rules_of(jail, readable, _DEVICES),
            "filter": seccomp.filter_of(jail.network, landlock=self._version),
        }


def landlock_found() -> int:
    """Return the version of Landlock that the kernel has; 0 for none."""
    return supervise.landlock_version() if sys.platform == "linux" else 0


def doorway_for(jail: Jail) -> tuple[int | None, int | None]:
    """Return both ends of the way on which a listening socket comes out, if the jail has a proxy."""
    if not isinstance(jail.network, ByProxy):
        return None, None
    outer, inner = socket.socketpair()
    return outer.detach(), inner.detach()


def rules_of(jail: Jail, readable: Iterable[str], writable: Iterable[str]) -> list[Rule]:
    """Return Landlock's rules for a jail, and for more paths of the sandbox's own.

    Landlock cannot take a right away below a path, so a directory on the way to a hidden path can only be
    listed, and everything beside that way is allowed by itself.
    """
    hidden = jail.real_hidden
    found: list[Rule] = []
    read = (*readable, *map(str, jail.readable), *(str(mount.source) for mount in jail.mounted))
    for paths, rights in ((read, _READ), (map(str, jail.writable), _WRITE)):
        for path in paths:
            parts = parts_of(path, hidden)
            found += [(path, rights, True)] if parts is None else []
            for part in parts or ():
                if part.kind != "link":
                    found.append((part.path, rights if part.kind == "whole" else _LIST, False))
    return [*found, *((path, _WRITE, True) for path in writable)]


def program_words(job: dict[str, object], *descriptors: int) -> tuple[int, list[str]]:
    """Return a descriptor to pass on, and words that run our program with a job and these descriptors."""
    told = nameless(marshal.dumps((_code(), job)))
    return told, [_PYTHON, "-I", "-S", "-c", _PROGRAM, *map(str, (told, *descriptors))]


@cache
def _code() -> CodeType:
    loader = supervise.__spec__.loader
    found = loader.get_code(supervise.__name__) if isinstance(loader, InspectLoader) else None
    if found is None:
        raise SandboxFailed("The code of the supervisor was not found: install vademecum as files.")
    return found
