"""The command without the start of an interpreter: a process that imported it forks for each call.

A call is still a process of its own, with its own working directory, environment and streams; only what Python needs
to begin is done once. The tests in `tests/e2e` start the installed command itself.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from importlib import import_module

import vademecum

# Commands import what they use when they use it; here all of it is imported once, except what needs an extra.
_NOT_IMPORTED = re.compile(r"\.(integrations|builtin|__main__|on_ray|vector|batch|\w+_sdk)\b")
_LIBRARIES = [
    "yaml",
    "pydantic",
    "rich.table",
    "rich.console",
    "tantivy",
    "httpx",
    "cryptography.x509",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "re2",
]
MAX_REQUEST_BYTES = 1024 * 1024


class Forks:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self._way, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from tests.forks import serve; serve({other.fileno()})"],
            pass_fds=[other.fileno()],
        )
        other.close()

    def run(self, words: list[str], *, cwd: str, env: dict[str, str], timeout: float) -> tuple[int, str, str]:
        """Run one command line: its exit code, and what it printed on both streams."""
        request = json.dumps({"words": words, "cwd": cwd, "env": env}).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self._way, [request], descriptors)
            child = int(self._way.recv(64))
            self._way.settimeout(timeout)
            try:
                code = int(self._way.recv(64))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._way.settimeout(None)
                self._way.recv(64)  # how it ended, which the next call must not take for its own
                raise
            finally:
                self._way.settimeout(None)
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()


@cache
def forks() -> Forks:
    """One for each process that runs tests."""
    return Forks()


def serve(descriptor: int) -> None:
    """Fork for every request, until nobody asks any more."""
    way = socket.socket(fileno=descriptor)
    own = [found.name for found in pkgutil.walk_packages(vademecum.__path__, "vademecum.")]
    for library in (*(name for name in own if not _NOT_IMPORTED.search(name)), *_LIBRARIES):
        with contextlib.suppress(ImportError):
            import_module(library)
    gc.collect()
    gc.freeze()  # what is shared stays shared
    while True:
        request, descriptors, _, _ = socket.recv_fds(way, MAX_REQUEST_BYTES, 3)
        if not request:
            return
        child = os.fork()
        if child == 0:
            way.close()
            _become(json.loads(request), descriptors)
        for one in descriptors:
            os.close(one)
        way.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        way.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, object], descriptors: list[int]) -> None:
    """Be the command: its streams, its place, its environment, its words."""
    from vademecum.cli.main import run

    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb"), encoding="utf-8", line_buffering=True)
    words, cwd, env = request["words"], request["cwd"], request["env"]
    assert isinstance(words, list)
    assert isinstance(env, dict)
    os.chdir(str(cwd))
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["vade", *words]
    code = run(words)
    # As at the end of any process, without taking all of it apart, which takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
