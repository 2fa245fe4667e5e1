"""The ways to confine a command: bubblewrap, Landlock, or none; and a test which of them work here.

Landlock and no confinement start the command through our supervisor. bubblewrap gives it its own namespaces,
in which hidden files do not exist. A sandbox is tested by running a command in it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from vademecum.config import SandboxName
from vademecum.errors import SandboxFailed, VademecumError
from vademecum.sandbox import supervise
from vademecum.sandbox.base import (
    BASE_PYTHON,
    NETWORK_FILES,
    PROXY_PORT,
    SYSTEM_DIRECTORIES,
    SYSTEM_FILES,
    ByProxy,
    Jail,
    Launch,
    Limits,
    Network,
    Sandbox,
    is_below,
    make_mount_points,
    nameless,
    next_step,
    own_python,
)
from vademecum.sandbox.process import Ended, Streams, run_command
from vademecum.sandbox.seccomp import filter_of

Real = Literal["bubblewrap", "landlock"]
# Opening for appending changes nothing; being able to do that with the last file means owning the machine.
_PROBE = """
if cat "$1" 2>/dev/null; then exit 7; fi
if (echo x >"$1") 2>/dev/null; then exit 8; fi
if (: >>/proc/sys/kernel/core_pattern) 2>/dev/null; then exit 9; fi
"""
_REACHED = (7, 8, 9)

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_PROXY_VARIABLES = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _PROXY),
    "NODE_USE_ENV_PROXY": "1",
}

MIN_LANDLOCK = 3  # before, files could be truncated anywhere

# Landlock's rights: list a directory; read and execute; everything except making devices.
_LIST, _READ, _WRITE = 0b1000, 0b1101, 0xFFFF & ~((1 << 6) | (1 << 11))

_PROC_FILES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
_PROC_SYS = ("kernel/osrelease", "kernel/ostype", "kernel/version", "kernel/random", "vm/overcommit_memory")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# The start of the interpreter takes most of the time: without `site`, and compiled modules come first.
_PROGRAM = """
import marshal, sys
sys.path.reverse()
with open(int(sys.argv[1]), "rb") as told:
    code, job = marshal.load(told)
program = {"__name__": "program"}
exec(code, program)
program["main"](job)
"""

# The time for binds grows with the square of their number: 25 ms for 100, a second for 1,000.
MAX_PARTS = 150
MAX_WORDS = 8000  # bwrap itself accepts at most 9,000
# bwrap's own option to die with its parent leaves a moment in which one half of it outlives the other.
# Therefore a guard in the same process group reads from our lifeline, and kills the group when it closes; so
# does the end of either half.
_GUARDED = """
exec {n}<&0 </dev/null
(read -r word <&{n}; kill -9 0) &
guard=$!
"$@" {n}<&- <{stdin}
kill $guard 2>/dev/null
wait $guard 2>/dev/null
kill -9 0
"""
_OPTIONS = ("--unshare-all", "--die-with-parent", "--hostname", "sandbox", "--cap-drop", "ALL")

# For Landlock: a path, the rights below it, and whether it can be a link.
_Rule = tuple[str, int, bool]
# A part of a directory with hidden paths: shown whole, on the way to a hidden path, or a link.
_Part = tuple[str, Literal["whole", "passed", "link"]]


class Unconfined:
    """Limits and a supervisor only, for users who choose it by name."""

    name = "none"
    hides = False

    def launch(self, argv: list[str], jail: Jail, *, stdin: int | None = None) -> Launch:
        """Prepare the supervisor, which reads its job from a file without a name."""
        if jail.hidden and not self.hides:
            raise SandboxFailed(f"{self.name} cannot hide files: copy what the command may read.")
        job = {"argv": argv, "directory": str(jail.directory), "environment": _environment_of(jail)}
        make_mount_points(jail, links=True)
        given, kept = _pipes()
        words, passed, doorway = _program(job | {"alone": True} | self._confinement(jail), jail, *given)
        return Launch(words, {}, (*given, *passed), stdin, *kept, doorway)

    def _confinement(self, jail: Jail) -> dict[str, object]:  # noqa: ARG002 - there is none
        return {"filter": None, "rules": []}


class Landlock(Unconfined):
    """The kernel's rules for files, with a filter on system calls for what they do not cover."""

    name = "landlock"
    hides = True

    def __init__(self, version: int | None = None) -> None:
        """Use the kernel's version, or an older ``version``."""
        found = supervise.landlock_version()
        self._version = found if version is None else min(version, found)
        if self._version < MIN_LANDLOCK:
            raise SandboxFailed(
                f"Landlock is not usable here: the kernel has {self._version}, {MIN_LANDLOCK} is needed."
            )

    def _confinement(self, jail: Jail) -> dict[str, object]:
        proc = [*(f"/proc/{name}" for name in _PROC_FILES), *(f"/proc/sys/{name}" for name in _PROC_SYS)]
        readable = [*_system_paths(jail.network), *proc, "/proc/self"]
        sockets = "proxy" if isinstance(jail.network, ByProxy) else jail.network
        program = filter_of(sockets, landlock=self._version)
        return {"filter": program, "rules": _rules_of(jail, readable, _DEVICES)}


def _rules_of(jail: Jail, readable: Iterable[str], writable: Iterable[str]) -> list[_Rule]:
    """Return Landlock's rules for a jail, and for further paths of the sandbox itself.

    Landlock cannot remove a right below a path. Therefore a directory on the way to a hidden path can only be
    listed, and everything beside that way gets its own rule.
    """
    hidden = _real_hidden(jail)
    found: list[_Rule] = []
    read = (*readable, *map(str, jail.readable), *(str(mount.source) for mount in jail.mounted))
    for paths, rights in ((read, _READ), (map(str, jail.writable), _WRITE)):
        for path in paths:
            parts = _parts_of(path, hidden)
            if parts is None:
                found.append((path, rights, True))
                continue
            at = {"whole": rights, "passed": _LIST}
            found += [(part, at[kind], False) for part, kind in parts if kind in at]
    return [*found, *((path, _WRITE, True) for path in writable)]


def _pipes() -> tuple[tuple[int, int, int], tuple[FileIO, FileIO, FileIO]]:
    """Make the pipes for status, lifeline and release; return the sandbox's ends and ours."""
    status, speak = os.pipe()
    lifeline, hold = os.pipe()
    wait, release = os.pipe()
    return (speak, lifeline, wait), (FileIO(status), FileIO(hold, "w"), FileIO(release, "w"))


def _program(
    job: dict[str, object], jail: Jail, *descriptors: int
) -> tuple[list[str], list[int], socket.socket | None]:
    """Return words that run our program with a job and these descriptors, and further ones to pass on.

    The last value is a socket that receives the listening one, if the jail has a proxy.
    """
    job, passed, outer = job | {"network": jail.network != "none", "port": PROXY_PORT}, [], None
    if isinstance(jail.network, ByProxy):
        outer, inner = socket.socketpair()
        passed = [inner.detach()]
    loader: Any = supervise.__loader__
    code = loader.get_code(supervise.__name__)
    told = nameless(marshal.dumps((code, job | {"doorway": passed[0] if passed else None})))
    words = [BASE_PYTHON, "-I", "-S", "-c", _PROGRAM, *map(str, (told, *descriptors))]
    return words, [told, *passed], outer


class Bubblewrap:
    """Namespaces: the command sees its own files, processes and network (if any), and nothing else."""

    name = "bubblewrap"
    hides = True

    def __init__(self) -> None:
        found = shutil.which("bwrap")
        if found is None:
            raise SandboxFailed("bubblewrap is not usable here: bwrap is not installed.")
        self._bwrap = found

    def launch(self, argv: list[str], jail: Jail, *, stdin: int | None = None) -> Launch:
        """Prepare bwrap with a filter on system calls; inside, it waits until its limits are set.

        For a proxy, for Landlock's rules and for very many words, our program runs inside and becomes the
        command. It opens its own libraries before it confines itself, so they need no rules.
        """
        sockets = "proxy" if isinstance(jail.network, ByProxy) else jail.network
        program = filter_of(sockets, landlock=None)
        ours = sockets == "proxy" or len(argv) > MAX_WORDS
        shown = replace(jail, readable=(*own_python().readable, *jail.readable)) if ours else jail
        binds, rules = _binds_of(shown), []
        if binds is None:  # then mounted directories are shown in place, with links at their names
            ours, rules = True, _rules(jail)
            readable = (*own_python().readable, *jail.readable, *(mount.source for mount in jail.mounted))
            binds = _binds_of(replace(jail, readable=readable, mounted=(), hidden=()))
        assert binds is not None
        make_mount_points(jail, links=bool(rules))
        (speak, lifeline, wait), kept = _pipes()
        passed = [speak, wait, *([] if stdin is None else [stdin])]
        doorway = None
        if ours:
            own = os.dup(speak)
            job = {"argv": argv, "filter": program, "rules": rules, "alone": False}
            words, more, doorway = _program(job, jail, own)
            passed += [own, *more]
        else:
            passed.append(nameless(program))
            words = ["--seccomp", str(passed[-1]), "--", *argv]
        words = [
            *_guard(passed, stdin),
            *(self._bwrap, *_OPTIONS),
            *(("--share-net",) if jail.network == "all" else ()),
            *("--json-status-fd", str(speak), "--block-fd", str(wait)),
            *("--proc", "/proc", "--dev", "/dev"),
            *binds,
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", str(jail.directory), *words),
        ]
        check = bool if rules else partial(_check_fifos, jail)
        return Launch(words, _environment_of(jail), tuple(passed), lifeline, *kept, doorway, check)


def _rules(jail: Jail) -> list[_Rule]:
    """Return Landlock's rules, which must hide files here."""
    if supervise.landlock_version() < MIN_LANDLOCK:
        raise SandboxFailed(
            f"bubblewrap alone can show no more than {MAX_PARTS} files and directories beside hidden ones: "
            "copy what the command may read."
        )
    # A rule for a directory also applies to what is shown below it, and these two are one directory.
    shared = ("/tmp", "/dev/shm")  # noqa: S108
    below = any(path.startswith(("/tmp/", "/dev/shm/")) for path in _real_hidden(jail))  # noqa: S108
    writable = ["/dev", *(() if jail.shared is None or below else shared)]
    return _rules_of(jail, [*_system_paths(jail.network), "/proc"], writable)


def _guard(passed: list[int], stdin: int | None) -> list[str]:
    """Return the words before bwrap's that start a guard beside it.

    A shell can name only descriptors of one digit, so the standard input is opened by its path.
    """
    free = next(number for number in range(3, 10) if number not in passed)
    source = "/dev/null" if stdin is None else f"/proc/self/fd/{stdin}"
    return ["/bin/sh", "-c", _GUARDED.format(n=free, stdin=source), "guard"]


def _binds_of(jail: Jail) -> list[str] | None:
    """Return the options, or ``None`` if there are too many files beside hidden ones to show each.

    A directory with hidden paths is shown as an empty, read-only one, into which everything that is not
    hidden is bound. Therefore a hidden path does not exist, whatever happens to it outside.
    """
    hidden = _real_hidden(jail)
    links = _links_of(jail)
    words, last, count = [word for path in links for word in ("--symlink", os.readlink(path), path)], [], 0
    if jail.shared is not None:
        words += ["--bind", str(jail.shared), "/tmp", "--bind", str(jail.shared), "/dev/shm"]  # noqa: S108
    # A path below another comes after it, on top.
    places = (shown for shown in _places(jail) if shown[2] not in links)
    for option, source, place in sorted(places, key=lambda shown: shown[2].count("/")):
        parts = _parts_of(source, hidden) if hidden else None
        if parts is None:
            words += [option, source, place]
            continue
        real = os.path.realpath(source)
        count += len(parts)
        for part, kind in parts if count <= MAX_PARTS else ():
            at = place + part[len(real) :]
            match kind:
                case "whole":
                    words += [option, part, at]
                case "link":
                    words += ["--symlink", os.readlink(part), at]
                case "passed" if part == real:
                    words += ["--tmpfs", at]
                    last += ["--remount-ro", at]
                case "passed":
                    words += ["--dir", at]
    return None if count > MAX_PARTS else [*words, *last]


def _links_of(jail: Jail) -> list[str]:
    """Return the paths to show as links: those of the system, and others that lead to what is shown too."""
    shown = (*SYSTEM_DIRECTORIES, *map(str, jail.readable))
    covered = () if jail.shared is None else ("/tmp", "/dev/shm")  # noqa: S108 - bound later, on top
    real = (path for path in jail.readable if path.is_symlink() and path.parent.resolve() == path.parent)
    links = dict.fromkeys(path for path in real if not is_below(str(path), covered))
    leading = (str(path) for path in links if is_below(str(next_step(path)), shown))
    return [*filter(os.path.islink, SYSTEM_DIRECTORIES), *leading]


def _places(jail: Jail) -> Iterator[tuple[str, str, str]]:
    """Yield what is shown: bwrap's option, a path of the machine, and its path for the command."""
    for system in _system_paths(jail.network):
        yield "--ro-bind-try", system, system
    for path in jail.readable:
        yield "--ro-bind", str(path), str(path)
    for path in jail.writable:
        yield "--bind", str(path), str(path)
    for mount in jail.mounted:
        yield "--ro-bind", str(mount.source), str(mount.name)
        source = os.path.realpath(mount.source)
        for path in jail.writable:
            real = Path(os.path.realpath(path))
            if real.is_relative_to(source):
                yield "--bind", str(path), str(mount.name / real.relative_to(source))


def _check_fifos(jail: Jail) -> None:
    """Refuse mounted directories with a FIFO: a command could write to it, although they are read-only."""
    hidden = _real_hidden(jail)
    todo = [os.path.realpath(mount.source) for mount in jail.mounted]
    while todo:
        # If we cannot read it, the command cannot either.
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as listing:
            for entry in listing:
                if entry.is_file(follow_symlinks=False) or entry.path in hidden:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
                    raise SandboxFailed(
                        f"{entry.path} is a FIFO in a directory to show: hide it, or copy the directory."
                    )


def _real_hidden(jail: Jail) -> frozenset[str]:
    return frozenset(map(os.path.realpath, jail.hidden))


def _parts_of(directory: str, hidden: frozenset[str]) -> list[_Part] | None:
    """Return the parts of a directory that are not hidden, or ``None`` if nothing in it is hidden.

    Their paths are real ones. Anything except files, directories and links, such as a FIFO, is left out.
    """
    real = os.path.realpath(directory)
    inside = [path for path in hidden if path == real or path.startswith(f"{real.rstrip('/')}/")]
    if not inside:
        return None
    if real in hidden:
        return []
    on_the_way = {str(parent) for path in inside for parent in Path(path).parents}
    found: list[_Part] = [(real, "passed")]
    todo = [real]
    while todo:
        for entry in os.scandir(todo.pop()):
            if entry.path in hidden:
                continue
            if entry.is_symlink():
                found.append((entry.path, "link"))
            elif entry.path in on_the_way and entry.is_dir(follow_symlinks=False):
                found.append((entry.path, "passed"))
                todo.append(entry.path)
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                found.append((entry.path, "whole"))
    return found


def _system_paths(network: Network) -> list[str]:
    return [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *(NETWORK_FILES if network != "none" else ())]


def _environment_of(jail: Jail) -> dict[str, str]:
    """Return the environment of a command, with the variables for its proxy."""
    return jail.environment | (_PROXY_VARIABLES if isinstance(jail.network, ByProxy) else {})


_KINDS: dict[Real, Callable[[], Sandbox]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of trying a sandbox; it works if ``problem`` is empty."""

    sandbox: Sandbox | None
    problem: str


@cache
def probe(name: Real) -> Probe:
    """Try a sandbox: a command must run in it, and must not reach a file that it was not given."""
    try:
        sandbox = _KINDS[name]()
        ended = _tried(sandbox)
    except (VademecumError, OSError) as error:
        return Probe(None, str(error))
    if ended.exit_code == 0:
        return Probe(sandbox, "")
    problem = f"{name} does not work: a first command ended with {ended.exit_code} ({ended.reason})."
    if ended.exit_code in _REACHED:
        problem = f"{name} does not keep a command from files it was not given."
    return Probe(None, problem)


@cache
def network_by_host_problem(name: Real) -> str:
    """Return why a working sandbox cannot limit the network by host; an empty text if it can."""
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
    """Run a command that exits with 0 if the sandbox confines it."""
    with tempfile.TemporaryDirectory(prefix="vade-probe-") as name:
        place = Path(name)
        work, canary = place / "work", place / "canary"
        work.mkdir()
        canary.write_text("secret")
        jail = Jail(work, {"PATH": "/usr/bin:/bin"}, (), (work,), network=network, limits=Limits(seconds=10))
        streams = Streams(place / "out", place / "err")
        return run_command(sandbox, ["/bin/sh", "-c", _PROBE, "sh", str(canary)], jail, streams=streams)


def choose_sandbox(wanted: SandboxName = "auto") -> Sandbox:
    """Return the requested sandbox, or the best that works; ``none`` only if requested by name."""
    if wanted == "none":
        return Unconfined()
    problems = []
    for name in _KINDS if wanted == "auto" else (wanted,):
        found = probe(name)
        if found.sandbox is not None:
            return found.sandbox
        problems.append(found.problem)
    advice = "install bubblewrap, or set execution.sandbox to 'none' (no sandbox) in ~/.agent/config.json"
    raise SandboxFailed(f"Scripts cannot be run safely here. {' '.join(problems)} To go on, {advice}.")
