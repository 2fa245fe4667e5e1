"""bubblewrap: namespaces of the command's own, so that what it may not see is not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vademecum.errors import SandboxFailed
from vademecum.sandbox import seccomp
from vademecum.sandbox.base import (
    PROXY_PORT,
    SYSTEM_DIRECTORIES,
    ByProxy,
    Jail,
    Launch,
    environment_of,
    nameless,
)
from vademecum.sandbox.interpreters import own_python
from vademecum.sandbox.rules import (
    Rule,
    filter_of,
    make_mount_points,
    parts_of,
    real_paths,
    rules_of,
    system_paths,
)

# It needs a time for binds that grows with the square of their number: 25 ms for 100, a second for 1,000.
MAX_PARTS = 150
MAX_WORDS = 8000  # bwrap itself takes no more than 9,000
# bwrap's own way to die with its parent leaves a moment in which one half of it outlives the other. So a
# guard beside it, in the same process group, reads from our lifeline and ends the group when that does; so
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


@dataclass(frozen=True, slots=True)
class _Inside:
    """The command that bwrap starts, the descriptors to pass on, and the way out for a listening socket."""

    words: list[str]
    passed: list[int]
    doorway: int | None = None


class Bubblewrap:
    """The command sees its own files, processes and (no) network; the rest of the machine does not exist."""

    name = "bubblewrap"
    hides = True

    def __init__(self) -> None:
        found = shutil.which("bwrap")
        if found is None or not seccomp.supported():
            reason = "bwrap is not installed" if found is None else "this processor is not supported"
            raise SandboxFailed(f"bubblewrap is not usable here: {reason}.")
        self._bwrap = found

    def launch(
        self,
        argv: list[str],
        jail: Jail,
        *,
        doors: tuple[str, ...] = (),  # noqa: ARG002
        stdin: int | None = None,
    ) -> Launch:
        """Prepare bwrap, which waits inside until its limits are set, with a filter on system calls."""
        binds, rules = _files(jail, needs_program=_needs_program(argv, jail))
        make_mount_points(jail, links=bool(rules))
        status, speak = os.pipe()
        wait, release = os.pipe()
        lifeline, hold = os.pipe()
        inside = _inside(argv, jail, rules, speak)
        words = [
            *(self._bwrap, *_OPTIONS),
            *(("--share-net",) if jail.network == "all" else ()),
            *("--json-status-fd", str(speak), "--block-fd", str(wait)),
            *("--proc", "/proc", "--dev", "/dev"),
            *binds,
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", str(jail.directory), *inside.words),
        ]
        passed = [speak, wait, *([] if stdin is None else [stdin]), *inside.passed]
        return Launch(
            [*_guard(passed, stdin), *words],
            environment_of(jail),
            tuple(passed),
            status,
            hold,
            release,
            lifeline,
            inside.doorway,
            partial(_check_fifos, jail) if jail.mounted and not rules else None,
        )


def _files(jail: Jail, *, needs_program: bool) -> tuple[list[str], list[Rule]]:
    """Return bwrap's options to show files, and Landlock's rules if these must hide files.

    Then mounted directories are shown where they are, with a link at their names.
    """
    python = own_python().readable
    found = _binds_of(replace(jail, readable=(*python, *jail.readable)) if needs_program else jail)
    if found is not None:
        return found, []
    from vademecum.sandbox.supervised import MIN_LANDLOCK, landlock_found  # noqa: PLC0415 - for these alone

    if landlock_found() < MIN_LANDLOCK:
        raise SandboxFailed(
            f"bubblewrap alone can show no more than {MAX_PARTS} files and directories beside hidden ones: "
            "copy what the command may read."
        )
    # A rule for a directory is also one for what is shown below it, and these two are one directory.
    shared = ("/tmp", "/dev/shm")  # noqa: S108
    hidden = tuple(f"{place}/" for place in shared)
    below = any(path.startswith(hidden) for path in real_paths(jail.hidden))
    rules = rules_of(
        jail,
        [*system_paths(jail.network), "/proc"],
        ["/dev", *(() if jail.shared is None or below else shared)],
    )
    readable = (*python, *jail.readable, *(mount.source for mount in jail.mounted))
    whole = _binds_of(replace(jail, readable=readable, mounted=(), hidden=()))
    assert whole is not None
    return whole, rules


def _needs_program(argv: list[str], jail: Jail) -> bool:
    """Return whether a program of ours must start the command: for a proxy, and for very many words."""
    return isinstance(jail.network, ByProxy) or len(argv) > MAX_WORDS


def _inside(argv: list[str], jail: Jail, rules: list[Rule], status: int) -> _Inside:
    """Return the command itself, or a program of ours that becomes the command, if there is more to do.

    That program opens its own libraries before it confines itself, so they need no rules.
    """
    program = filter_of(jail.network, landlock=None)
    if not rules and not _needs_program(argv, jail):
        descriptor = nameless(program)
        return _Inside(["--seccomp", str(descriptor), "--", *argv], [descriptor])
    from vademecum.sandbox import confine  # noqa: PLC0415 - for these alone
    from vademecum.sandbox.supervised import doorway_for, program_words  # noqa: PLC0415

    doorway, inner = doorway_for(jail)
    speak = os.dup(status)
    job = {
        "argv": argv,
        "network": jail.network != "none",
        "doorway": inner,
        "port": PROXY_PORT,
        "alone": False,
        "filter": program,
        "rules": rules,
    }
    told, words = program_words((confine,), job)
    passed = [told, speak, *([] if inner is None else [inner])]
    return _Inside(["--", *words, str(speak)], passed, doorway)


def _guard(passed: list[int], stdin: int | None) -> list[str]:
    """Return the words before bwrap's that put a guard beside it.

    A shell can name only descriptors of one digit, so the standard input is opened by its path.
    """
    free = next(number for number in range(3, 10) if number not in passed)
    source = "/dev/null" if stdin is None else f"/proc/self/fd/{stdin}"
    return ["/bin/sh", "-c", _GUARDED.format(n=free, stdin=source), "guard"]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A path of the machine, and where the command finds it."""

    source: str
    at: str
    option: str


def _binds_of(jail: Jail) -> list[str] | None:
    """Return the options; ``None`` if too many files lie beside hidden ones to show each by itself.

    A directory with hidden paths is shown as an empty one that cannot be written to, in which everything is
    put that is not hidden. So a hidden path does not exist, whatever happens to it outside.
    """
    hidden = real_paths(jail.hidden)
    words, last, count = [*_links(), *_shared(jail)], [], 0
    # What lies below another path comes after it, on top.
    for shown in sorted(_places(jail), key=lambda shown: shown.at.count("/")):
        parts = parts_of(shown.source, hidden)
        if parts is None:
            words += [shown.option, shown.source, shown.at]
            continue
        real = os.path.realpath(shown.source)
        count += len(parts)
        for part in parts if count <= MAX_PARTS else ():
            at = shown.at + part.path[len(real) :]
            match part.kind:
                case "whole":
                    words += [shown.option, part.path, at]
                case "link":
                    words += ["--symlink", os.readlink(part.path), at]
                case "passed" if part.path == real:
                    words += ["--tmpfs", at]
                    last += ["--remount-ro", at]
                case "passed":
                    words += ["--dir", at]
    return None if count > MAX_PARTS else [*words, *last]


def _check_fifos(jail: Jail) -> None:
    """Refuse mounted directories with a FIFO, to which a command could write although they are read-only."""
    hidden = real_paths(jail.hidden)
    todo = [os.path.realpath(mount.source) for mount in jail.mounted]
    while todo:
        try:
            with os.scandir(todo.pop()) as listing:
                for entry in listing:
                    if entry.is_file(follow_symlinks=False) or entry.path in hidden:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    elif entry.stat(follow_symlinks=False).st_mode & 0o170000 == 0o010000:
                        raise SandboxFailed(
                            f"{entry.path} is a FIFO in a directory to show: hide it, or copy the directory."
                        )
        except OSError:
            continue  # what we cannot read, the command cannot read either


def _places(jail: Jail) -> Iterator[_Shown]:
    """Return what is shown where."""
    for system in system_paths(jail.network):
        if system not in SYSTEM_DIRECTORIES or not os.path.islink(system):
            yield _Shown(system, system, "--ro-bind-try")
    for path in jail.readable:
        yield _Shown(str(path), str(path), "--ro-bind")
    for path in jail.writable:
        yield _Shown(str(path), str(path), "--bind")
    for mount in jail.mounted:
        yield _Shown(str(mount.source), str(mount.name), "--ro-bind")
        source = os.path.realpath(mount.source)
        for path in jail.writable:
            real = Path(os.path.realpath(path))
            if real.is_relative_to(source):
                yield _Shown(str(path), str(mount.name / real.relative_to(source)), "--bind")


def _links() -> list[str]:
    links = (path for path in SYSTEM_DIRECTORIES if os.path.islink(path))
    return [word for path in links for word in ("--symlink", os.readlink(path), path)]


def _shared(jail: Jail) -> list[str]:
    if jail.shared is None:
        return []
    return ["--bind", str(jail.shared), "/tmp", "--bind", str(jail.shared), "/dev/shm"]  # noqa: S108
