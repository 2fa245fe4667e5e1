"""What a sandbox is given, and what it must guarantee."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# What a script may need of the system to run at all.
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.alias",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies",
)
NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/ca-certificates",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a script may use: time, memory and processes in all, disk, and its printed output."""

    seconds: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024
    processes: int = 64
    disk_bytes: int = 512 * 1024 * 1024
    file_bytes: int = 256 * 1024 * 1024
    open_files: int = 256


@dataclass(frozen=True, slots=True)
class Jail:
    """What is visible: ``readable`` and ``writable`` paths beside the system's own, and the network or not.

    ``shared`` is a directory to stand in for ``/tmp`` and ``/dev/shm``, where a sandbox can do that.
    """

    directory: Path
    environment: dict[str, str]
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    shared: Path | None = None
    network: bool = False
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start it: the words, the descriptors to hand on, and those to close once it was started.

    ``status`` is the end of a pipe from which the sandbox's own words come: whether the command was started,
    and its exit code. They never mix with the command's output. ``lifeline`` is held open as long as the
    command may live, so that everything ends when we do. ``release`` is closed to let the sandbox go on, once
    the limits of its first process are set. ``stdin`` is for the sandbox itself; a command gets none.
    """

    words: list[str]
    environment: dict[str, str]
    pass_on: tuple[int, ...]
    status: int
    lifeline: int
    release: int | None = None
    stdin: int | None = None


class Sandbox(Protocol):
    """Starts a command so that it reads only what it may, writes only where it may, and reaches nobody.

    The command and everything it started are gone when the started process is.
    """

    name: str

    def launch(self, argv: list[str], jail: Jail, *, doors: tuple[str, ...] = ()) -> Launch:
        """Prepare the start of ``argv`` in that jail; ``doors`` lead into control groups it is to be in."""
        ...


def resource_limits(limits: Limits) -> list[tuple[int, int]]:
    """What each process of a command may use, by the numbers that the system has for it."""
    found = [
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]
    with contextlib.suppress(OSError, IndexError, ValueError):
        # The limit counts everything the user runs; there is never more than all that runs here.
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        found.append((resource.RLIMIT_NPROC, running + limits.processes))
    return [(number, _possible(number, most)) for number, most in found]


def _possible(number: int, most: int) -> int:
    """Not more than we are allowed ourselves: that limit cannot be raised."""
    hard = resource.getrlimit(number)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def nameless(content: bytes) -> int:
    """A descriptor from which this content can be read, of a file that has no name."""
    descriptor = os.memfd_create("vademecum", 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
