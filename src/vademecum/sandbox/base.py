"""The input of a sandbox, and the guarantees that each sandbox gives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal, Protocol

from vademecum.errors import SandboxFailed
from vademecum.paths import MAX_LINKS

# The interpreter behind a virtual environment; it runs none of its packages, and starts a little faster.
BASE_PYTHON: str = getattr(sys, "_base_executable", "") or sys.executable
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The files of the system that a script needs to run, and those that it needs for a network.
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def _in_etc(names: str) -> tuple[str, ...]:
    return tuple(f"/etc/{name}" for name in names.split())


SYSTEM_FILES = _in_etc(
    """
    ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime timezone locale.alias fonts magic mime.types
    ssl/openssl.cnf pki/tls/openssl.cnf crypto-policies
    """
)
NETWORK_FILES = _in_etc(
    """
    resolv.conf hosts nsswitch.conf host.conf gai.conf services protocols
    ssl/certs ssl/cert.pem pki/tls/certs pki/ca-trust ca-certificates
    """
)

PROXY_PORT = 3128
_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The words before a script's path, and the directories they must see."""

    words: tuple[str, ...]
    readable: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a command: time, memory, processes, disk, the size of one file, and printed output.

    A command that prints more than ``output_bytes``, standard output and error together, is stopped.
    """

    seconds: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024
    processes: int = 64
    disk_bytes: int = 512 * 1024 * 1024
    file_bytes: int = 256 * 1024 * 1024
    output_bytes: int = 256 * 1024 * 1024
    open_files: int = 256


@dataclass(frozen=True, slots=True)
class Mount:
    """The directory ``source``, shown read-only at ``name``: below the working directory, or its own path."""

    source: Path
    name: Path


@dataclass(frozen=True, slots=True)
class ByProxy:
    """A network in which only a proxy can be reached, over TCP.

    The command gets its own network. ``serve`` is called once, in the thread that runs the command, with a
    socket that listens inside that network; it must return at once, and owns the socket. The usual
    environment variables tell the command where the proxy is.
    """

    serve: Callable[[socket.socket], None]


Network = Literal["none", "all"] | ByProxy


@dataclass(frozen=True, slots=True)
class Jail:
    """The files and network that a command can see, change and reach.

    - ``directory`` is the working directory.
    - ``readable`` paths are shown in place, beside the system's own. They should be directories that no other
      process writes to, such as copies: a FIFO in them could connect to the outside.
    - ``writable`` paths are shown in place, and below the name of a mount that contains them. Existing files
      in them do not count against the disk limit.
    - ``mounted`` directories are shown read-only under another name. Sockets in them cannot be used. A FIFO
      in them cannot be written to, or the start is refused: hide it.
    - ``hidden`` are real paths of files and directories below other paths that the command cannot read or
      change. Their names and sizes may stay visible. They stay hidden if they are replaced while the command
      runs. Beside a hidden path, files that appear later cannot be read, and nothing can be created or
      removed, even in a writable directory. A hard link is another path: pass all of them. A path given below
      a hidden directory is shown. Check ``Sandbox.hides`` first.
    - ``shared`` is a directory to use as ``/tmp`` and ``/dev/shm``, if the sandbox supports that.
    - ``network`` is ``"none"``, ``"all"`` (everything that this machine reaches), or a ``ByProxy``.
    """

    directory: Path
    environment: dict[str, str]
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    mounted: tuple[Mount, ...] = ()
    hidden: tuple[Path, ...] = ()
    shared: Path | None = None
    network: Network = "none"
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a sandbox: its arguments, the descriptors that it gets, and the ends that we keep.

    ``pass_on`` and ``stdin`` (its standard input; ``None`` is ``/dev/null``) are closed here after the start.
    The sandbox reports on ``status``: its first process, whether the command was started, and its exit code.
    This never mixes with the command's output. ``lifeline`` stays open as long as the command may live, so
    that everything ends when we do. ``release`` is closed to let the sandbox continue, once the limits of its
    first process are set. ``doorway`` receives the listening socket of a ``ByProxy``.
    ``check`` is called while the sandbox starts; if it raises, nothing runs.
    """

    words: list[str]
    environment: dict[str, str]
    pass_on: tuple[int, ...]
    stdin: int | None
    status: FileIO
    lifeline: FileIO
    release: FileIO
    doorway: socket.socket | None
    check: Callable[[], object] = bool

    def close(self) -> None:
        """Close the ends that we keep."""
        for end in (self.status, self.lifeline, self.release, self.doorway):
            if end is not None:
                end.close()


class Sandbox(Protocol):
    """Starts a command that can read, write and connect only as its jail allows.

    The command and all its children end with the started process. ``hides`` says whether ``Jail.hidden`` can
    be used; if not, copy what the command may read.
    """

    name: str
    hides: bool

    def launch(self, argv: list[str], jail: Jail, *, stdin: int | None = None) -> Launch:
        """Prepare the start of ``argv`` in that jail.

        ``stdin`` is a descriptor for the command's standard input; the launch takes it over.
        """
        ...


def own_python(*words: str) -> Interpreter:
    """Return the running interpreter; it writes nothing beside the script, and ignores the user site."""
    prefixes = [each for each in dict.fromkeys((sys.prefix, sys.base_prefix)) if not each.startswith("/usr")]
    places = [Path(each, part) for each in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    shown = (*SYSTEM_DIRECTORIES, *map(str, places))
    places += [step for step in _steps_to(sys.executable) if not is_below(str(step), shown)]
    return Interpreter((sys.executable, "-B", "-s", *words), tuple(filter(Path.exists, places)))


def _steps_to(program: str) -> list[Path]:
    """Return a program's path and, if it is a link, each path on the way to its file."""
    steps = [Path(program)]
    while steps[-1].is_symlink() and len(steps) <= MAX_LINKS:
        steps.append(next_step(steps[-1]))
    return [step for step in steps if step.is_file()]


def next_step(link: Path) -> Path:
    """Return where a link leads: its directory by its real path, its name as it is."""
    target = Path(os.path.realpath(link.parent), link.readlink())
    return Path(os.path.realpath(target.parent), target.name)


def is_below(path: str, directories: Iterable[str]) -> bool:
    """Return whether a path is one of the directories or below one."""
    return any(path == each or path.startswith(f"{each}/") for each in directories)


def home_of(program: str) -> tuple[Path, ...]:
    """Return the paths that a program outside the system's directories needs: itself and its neighbours."""
    real = Path(os.path.realpath(program))
    if str(real).startswith(("/usr/", "/bin/", "/sbin/")):
        return ()
    prefix = real.parent.parent
    lib = Path(os.path.realpath(prefix / "lib"))
    beside = [lib] if lib.is_relative_to(prefix) and len(prefix.parts) > 2 else []
    return tuple(filter(Path.exists, dict.fromkeys((*_steps_to(program), real, *beside))))


def search_path(env_path: str) -> str:
    """Return the search path for programs: the system's, then the user's, without relative ones."""
    return ":".join([SYSTEM_PATH, *(place for place in env_path.split(":") if place.startswith("/"))])


def _moved(jail: Jail) -> list[Mount]:
    return [mount for mount in jail.mounted if mount.name != mount.source]


def make_mount_points(jail: Jail, *, links: bool) -> None:
    """Make a link or an empty directory at the name of each mount."""
    for mount in _moved(jail):
        if not mount.name.is_relative_to(jail.directory) or mount.name == jail.directory:
            raise SandboxFailed(f"{mount.name} is not below the working directory: nothing ran.")
        mount.name.parent.mkdir(parents=True, exist_ok=True)
        if links:
            mount.name.symlink_to(os.path.realpath(mount.source))
        else:
            mount.name.mkdir()


def remove_mount_points(jail: Jail) -> None:
    """Remove the mount points, except where the command put something else."""
    for mount in _moved(jail):
        with contextlib.suppress(OSError):
            if mount.name.is_symlink():
                mount.name.unlink()
            else:
                mount.name.rmdir()


def nameless(content: bytes) -> int:
    """Return a descriptor to read content from: an immutable file without a name."""
    descriptor = os.memfd_create("vademecum", os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    return descriptor
