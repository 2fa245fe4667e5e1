"""Landlock, and no confinement at all: both start the command through a supervisor of ours."""

from __future__ import annotations

import marshal
import os
import sys
from functools import cache
from importlib.abc import InspectLoader
from types import CodeType, ModuleType

from vademecum.errors import SandboxFailed
from vademecum.sandbox import seccomp, supervise, tree
from vademecum.sandbox.base import (
    NETWORK_FILES,
    SYSTEM_DIRECTORIES,
    SYSTEM_FILES,
    Jail,
    Launch,
    nameless,
    resource_limits,
)

MIN_LANDLOCK = 3  # before that, files could be emptied anywhere
SIGNALS_SCOPED = 6

_PROC_FILES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
_PROC_SYS = ("kernel/osrelease", "kernel/ostype", "kernel/version", "kernel/random", "vm/overcommit_memory")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The start of the interpreter is most of the cost: no `site`, and compiled modules are looked for first.
_PROGRAM = """
import marshal, sys
sys.path.reverse()
with open(int(sys.argv[1]), "rb") as told:
    parts, job = marshal.load(told)
for name, code in parts:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(job)
"""
# The interpreter behind a virtual environment starts a little faster, and runs none of its packages here.
_PYTHON: str = getattr(sys, "_base_executable", "") or sys.executable


class Unconfined:
    """Only limits and a supervisor: for those who ask for it by name."""

    name = "none"
    confined = False

    def launch(self, argv: list[str], jail: Jail, *, doors: tuple[str, ...] = ()) -> Launch:
        """Prepare the supervisor, which is told what to do through a file without a name."""
        told = nameless(marshal.dumps((_supervisor(), self._job(argv, jail) | {"doors": doors})))
        status, speak = os.pipe()
        lifeline, hold = os.pipe()
        words = [_PYTHON, "-I", "-S", "-c", _PROGRAM, str(told), str(speak), str(lifeline)]
        return Launch(words, {}, (told, speak, lifeline), status, hold)

    def _job(self, argv: list[str], jail: Jail) -> dict[str, object]:
        return {
            "argv": argv,
            "directory": str(jail.directory),
            "environment": jail.environment,
            "confined": self.confined,
            "network": jail.network,
            "limits": resource_limits(jail.limits),
        }


class Landlock(Unconfined):
    """The kernel's own rules on files, with a filter on system calls for what they do not cover."""

    name = "landlock"
    confined = True

    def __init__(self, version: int | None = None) -> None:
        """Take what the kernel has, or do as an older kernel would need it."""
        found = supervise.landlock_version() if sys.platform == "linux" else 0
        self._version = found if version is None else min(version, found)
        if self._version < MIN_LANDLOCK or not seccomp.supported():
            raise SandboxFailed(
                f"Landlock is not usable here: the kernel has {self._version}, {MIN_LANDLOCK} is needed."
            )

    def _job(self, argv: list[str], jail: Jail) -> dict[str, object]:
        system = [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *(NETWORK_FILES if jail.network else ())]
        proc = [*(f"/proc/{name}" for name in _PROC_FILES), *(f"/proc/sys/{name}" for name in _PROC_SYS)]
        families = (seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK) if jail.network else ()
        signals = seccomp.SIGNALS if self._version < SIGNALS_SCOPED else {}
        refused = seccomp.ADMINISTRATION | seccomp.SHARED_MEMORY | signals
        program = seccomp.filter_program(refused=refused, pretended=seccomp.METADATA, families=families)
        return super()._job(argv, jail) | {
            "readable": [*system, *proc, *map(str, jail.readable)],
            "writable": [*_DEVICES, *map(str, jail.writable)],
            "filter": program,
        }


@cache
def _supervisor() -> list[tuple[str, CodeType]]:
    """The supervisor's modules, compiled, in the order in which they need each other."""
    return [(module.__name__, _code(module)) for module in (tree, supervise)]


def _code(module: ModuleType) -> CodeType:
    loader = module.__spec__.loader if module.__spec__ else None
    found = loader.get_code(module.__name__) if isinstance(loader, InspectLoader) else None
    if found is None:
        raise SandboxFailed(f"The code of {module.__name__} is not to be had: install vademecum as files.")
    return found
