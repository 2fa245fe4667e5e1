"""A jail → what the kernel is told: Landlock rules on files, and a filter on system calls."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vademecum.errors import SandboxFailed
from vademecum.sandbox import seccomp
from vademecum.sandbox.base import NETWORK_FILES, SYSTEM_DIRECTORIES, SYSTEM_FILES, ByProxy, Jail, Network

# Landlock's rights: list a directory; read and execute; everything but making devices.
LIST, READ, WRITE = 0b1000, 0b1101, 0xFFFF & ~((1 << 6) | (1 << 11))
SIGNALS_SCOPED = 6

# A path, the rights below it, and whether it may be a link.
Rule = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a directory with hidden paths: shown whole, passed on the way to a hidden path, or a link."""

    path: str
    kind: Literal["whole", "passed", "link"]


def system_paths(network: Network) -> list[str]:
    """Return the paths of the system that a command may need."""
    return [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *(NETWORK_FILES if network != "none" else ())]


def rules_of(jail: Jail, readable: Iterable[str], writable: Iterable[str]) -> list[Rule]:
    """Return Landlock's rules for a jail, and for more paths of the sandbox's own.

    Landlock cannot take a right away below a path, so a directory on the way to a hidden path can only be
    listed, and everything beside that way is allowed by itself.
    """
    hidden = real_paths(jail.hidden)
    found: list[Rule] = []
    read = (*readable, *map(str, jail.readable), *(str(mount.source) for mount in jail.mounted))
    for paths, rights in ((read, READ), (map(str, jail.writable), WRITE)):
        for path in paths:
            parts = parts_of(path, hidden)
            found += [(path, rights, True)] if parts is None else []
            for part in parts or ():
                if part.kind != "link":
                    found.append((part.path, rights if part.kind == "whole" else LIST, False))
    return [*found, *((path, WRITE, True) for path in writable)]


def real_paths(paths: Iterable[Path]) -> frozenset[str]:
    """Return the real paths of some paths."""
    return frozenset(os.path.realpath(path) for path in paths)


def parts_of(directory: str, hidden: frozenset[str]) -> list[Part] | None:
    """Return the parts of a directory that are not hidden, or ``None`` if nothing in it is hidden.

    Their paths are real ones. What is not a file, directory or link, such as a FIFO, is left out.
    """
    real = os.path.realpath(directory)
    inside = [path for path in hidden if path == real or path.startswith(f"{real.rstrip('/')}/")]
    if not inside:
        return None
    if real in hidden:
        return []
    on_the_way = {str(parent) for path in inside for parent in Path(path).parents}
    found, todo = [Part(real, "passed")], [real]
    while todo:
        for entry in os.scandir(todo.pop()):
            if entry.path in hidden:
                continue
            if entry.is_symlink():
                found.append(Part(entry.path, "link"))
            elif entry.path in on_the_way and entry.is_dir(follow_symlinks=False):
                found.append(Part(entry.path, "passed"))
                todo.append(entry.path)
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                found.append(Part(entry.path, "whole"))
    return found


def filter_of(network: Network, *, landlock: int | None) -> bytes:
    """Return the filter for a command.

    ``landlock`` is the version of Landlock if that is all that confines it; ``None`` is for namespaces.
    """
    refused = seccomp.ADMINISTRATION | seccomp.SHARED_MEMORY
    if isinstance(network, ByProxy):
        refused, checks = refused | seccomp.SERVING, seccomp.TCP_ONLY
    else:
        checks = seccomp.NO_SOCKETS if network == "none" else seccomp.INTERNET
    if landlock is None:
        return seccomp.filter_program(refused=refused, checks=checks)
    checks += seccomp.SCHEDULING
    if landlock < SIGNALS_SCOPED:
        refused, checks = refused | seccomp.SIGNALS, checks + seccomp.OWNERSHIP
    return seccomp.filter_program(
        refused=refused | seccomp.WATCHING,
        pretended=seccomp.METADATA,
        lacking=seccomp.ATTRIBUTES,
        checks=checks,
    )


def make_mount_points(jail: Jail, *, links: bool) -> None:
    """Make a link or an empty directory at the name of each mount."""
    for mount in jail.mounted:
        if mount.name == mount.source:
            continue
        if not mount.name.is_relative_to(jail.directory) or mount.name == jail.directory:
            raise SandboxFailed(f"{mount.name} is not below the working directory: nothing ran.")
        mount.name.parent.mkdir(parents=True, exist_ok=True)
        if links:
            mount.name.symlink_to(os.path.realpath(mount.source))
        else:
            mount.name.mkdir()


def remove_mount_points(jail: Jail) -> None:
    """Remove what was made for the mounts; what a command put there instead stays."""
    for mount in jail.mounted:
        if mount.name == mount.source:
            continue
        try:
            if stat.S_ISLNK(mount.name.lstat().st_mode):
                mount.name.unlink()
            else:
                mount.name.rmdir()
        except OSError:
            continue
