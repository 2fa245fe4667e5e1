"""bubblewrap: namespaces of the command's own, so that what it may not see is not there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from vademecum.errors import SandboxFailed
from vademecum.sandbox import seccomp
from vademecum.sandbox.base import (
    NETWORK_FILES,
    SYSTEM_DIRECTORIES,
    SYSTEM_FILES,
    Jail,
    Launch,
    nameless,
)
from vademecum.sandbox.interpreters import own_python

MAX_WORDS = 8000
# bwrap's own way to die with its parent leaves a moment in which one half of it outlives the other. So a
# guard beside it, in the same process group, reads from our lifeline and ends the group when that does; so
# does the end of either half.
_GUARDED = """
exec {n}<&0 </dev/null
(read -r word <&{n}; kill -9 0) &
guard=$!
"$@" {n}<&-
kill $guard 2>/dev/null
wait $guard 2>/dev/null
kill -9 0
"""
# Others, such as those of virtual machines, are not bound to a network of one's own.
_FAMILIES = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK)
_BECOME = (
    "import os, sys; words = open(int(sys.argv[1]), 'rb').read().split(b'\\0'); os.execv(words[0], words)"
)


class Bubblewrap:
    """The command sees its own files, processes and (no) network; the rest of the machine does not exist."""

    name = "bubblewrap"

    def __init__(self) -> None:
        found = shutil.which("bwrap")
        if found is None or not seccomp.supported():
            reason = "bwrap is not installed" if found is None else "this processor is not supported"
            raise SandboxFailed(f"bubblewrap is not usable here: {reason}.")
        self._bwrap = found

    def launch(self, argv: list[str], jail: Jail, *, doors: tuple[str, ...] = ()) -> Launch:  # noqa: ARG002
        """Prepare bwrap, which waits inside until its limits are set, with a filter on system calls."""
        passed: list[int] = []
        if len(argv) > MAX_WORDS:
            argv, jail, *passed = _shortened(argv, jail)
        status, speak = os.pipe()
        wait, release = os.pipe()
        lifeline, hold = os.pipe()
        program = nameless(seccomp.filter_program(refused=seccomp.ADMINISTRATION, families=_FAMILIES))
        words = [
            *(
                self._bwrap,
                "--unshare-all",
                "--die-with-parent",
                "--hostname",
                "sandbox",
                "--cap-drop",
                "ALL",
            ),
            *(("--share-net",) if jail.network else ()),
            *("--json-status-fd", str(speak), "--block-fd", str(wait), "--seccomp", str(program)),
            *("--proc", "/proc", "--dev", "/dev"),
            *_system(network=jail.network),
            *_binds(jail),
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", str(jail.directory), "--", *argv),
        ]
        passed = [speak, wait, program, *passed]
        return Launch(
            [*_guard(passed), *words], jail.environment, tuple(passed), status, hold, release, lifeline
        )


def _guard(passed: list[int]) -> list[str]:
    """The words before bwrap's that put a guard beside it; a shell can name only descriptors of one digit."""
    free = next(number for number in range(3, 10) if number not in passed)
    return ["/bin/sh", "-c", _GUARDED.format(n=free), "guard"]


def _shortened(argv: list[str], jail: Jail) -> tuple[list[str], Jail, int]:
    """A short command that becomes the long one: bwrap itself takes no more than 9,000 words."""
    python = own_python()
    words = nameless(b"\0".join(map(os.fsencode, argv)))
    short = [python.words[0], "-I", "-S", "-c", _BECOME, str(words)]
    return short, replace(jail, readable=(*jail.readable, *python.readable)), words


def _system(*, network: bool) -> list[str]:
    words: list[str] = []
    for directory in SYSTEM_DIRECTORIES:
        if os.path.islink(directory):
            words += ["--symlink", os.readlink(directory), directory]
        else:
            words += ["--ro-bind-try", directory, directory]
    for file in (*SYSTEM_FILES, *(NETWORK_FILES if network else ())):
        words += ["--ro-bind-try", file, file]
    return words


def _binds(jail: Jail) -> list[str]:
    """Shared places first, so that what lies below them is put on top."""
    words: list[str] = []
    if jail.shared is not None:
        words += ["--bind", str(jail.shared), "/tmp", "--bind", str(jail.shared), "/dev/shm"]  # noqa: S108
    for path in jail.readable:
        words += ["--ro-bind", str(path), str(path)]
    for path in jail.writable:
        words += ["--bind", str(path), str(path)]
    return words
