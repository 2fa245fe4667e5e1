"""Find out which sandbox works here, by running something in it."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from vademecum.config import SandboxName
from vademecum.errors import SandboxFailed, VademecumError
from vademecum.sandbox.base import ByProxy, Jail, Limits, Network, Sandbox
from vademecum.sandbox.confinement import Bubblewrap, Landlock, Unconfined
from vademecum.sandbox.process import Ended, Streams, run_command

Real = Literal["bubblewrap", "landlock"]
# Opening for appending changes nothing; whoever may do that to the last file owns the machine.
_PROBE = """
if cat "$1" 2>/dev/null; then exit 7; fi
if (echo x >"$1") 2>/dev/null; then exit 8; fi
if (: >>/proc/sys/kernel/core_pattern) 2>/dev/null; then exit 9; fi
"""
_REACHED = (7, 8, 9)

_KINDS: dict[Real, Callable[[], Sandbox]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of trying a sandbox; it works if ``problem`` is empty."""

    name: Real
    sandbox: Sandbox | None
    problem: str


@cache
def probe(name: Real) -> Probe:
    """Try a sandbox: a command must run in it, and must not get at a file it was not given."""
    try:
        sandbox = _KINDS[name]()
        ended = _tried(sandbox)
    except (VademecumError, OSError) as error:
        return Probe(name, None, str(error))
    if ended.exit_code == 0:
        return Probe(name, sandbox, "")
    problem = f"{name} does not work: a first command ended with {ended.exit_code} ({ended.reason})."
    if ended.exit_code in _REACHED:
        problem = f"{name} does not keep a command from files it was not given."
    return Probe(name, None, problem)


@cache
def network_by_host_problem(name: Real) -> str:
    """Return why a sandbox that works cannot give a command a network by host; nothing if it can."""
    found = probe(name)
    if found.sandbox is None:
        return found.problem
    served: list[socket.socket] = []
    try:
        _tried(found.sandbox, ByProxy(served.append))
    except VademecumError as error:
        return str(error)
    for listener in served:
        listener.close()
    return "" if served else f"{name} handed out no listening socket."


def _tried(sandbox: Sandbox, network: Network = "none") -> Ended:
    """Run a command that ends with 0 if the sandbox keeps it from what it must not do."""
    with tempfile.TemporaryDirectory(prefix="vade-probe-") as name:
        place = Path(name)
        work, canary = place / "work", place / "canary"
        work.mkdir()
        canary.write_text("secret")
        jail = Jail(work, {"PATH": "/usr/bin:/bin"}, (), (work,), network=network, limits=Limits(seconds=10))
        streams = Streams(place / "out", place / "err")
        return run_command(sandbox, ["/bin/sh", "-c", _PROBE, "sh", str(canary)], jail, streams=streams)


def choose_sandbox(wanted: SandboxName = "auto") -> Sandbox:
    """Return the sandbox that was asked for, or the best that works; ``none`` only if asked for by name."""
    if wanted == "none":
        return Unconfined()
    problems = []
    for name in _KINDS if wanted == "auto" else (wanted,):
        found = probe(name)
        if found.sandbox is not None:
            return found.sandbox
        problems.append(found.problem)
    advice = "install bubblewrap, or set execution.sandbox to 'none' in ~/.agent/config.json to do without"
    raise SandboxFailed(f"Scripts cannot be run safely here. {' '.join(problems)} To go on, {advice}.")
