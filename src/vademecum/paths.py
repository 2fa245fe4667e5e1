"""Join paths from outside to directories of ours. No other code does this."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from vademecum.errors import FileRefused, PathRefused

MAX_LINKS = 40
MAX_PATH_CHARS = 4096

_DRIVE = re.compile(r"[A-Za-z]:")


def contained(base: Path, relative: str) -> Path:
    """Join ``relative`` to ``base``, or refuse it if it is not a plain path below ``base``.

    It refuses ``..``, absolute paths, drive letters, backslashes, NUL, and links that lead out.

    >>> contained(Path("/nonexistent/skill"), "references/a.md").name
    'a.md'
    >>> contained(Path("/nonexistent/skill"), "../a.md")
    Traceback (most recent call last):
    ...
    vademecum.errors.PathRefused: The path '../a.md' goes up with '..': name a file below /nonexistent/skill.
    """
    check_relative(base, relative)
    joined = base / relative
    if leads_out(base, joined):
        raise _leads_out_of(base, relative)
    return joined


def check_relative(base: str | Path, relative: str) -> None:
    """Refuse a text that cannot be a path below a directory, without looking at the disk."""
    reason = _objection(relative)
    if reason is not None:
        raise PathRefused(f"The path {relative[:200]!r} {reason}: name a file below {base}.")


def open_contained(base: str | Path, relative: str) -> int:
    """Open a plain file below ``base`` for reading and return its descriptor.

    Each step is opened relative to the directory before it and never through a link, so a file swapped
    meanwhile cannot lead out. Links are resolved here, and followed if they stay inside.
    """
    return _open_below(base, relative, stat.S_ISREG, "a plain file", "not-a-file")


def read_contained(base: str | Path, relative: str, size: int) -> bytes:
    """Read at most ``size`` bytes of a plain file below ``base``."""
    descriptor = open_contained(base, relative)
    try:
        # A buffer of the whole cap would cost more than reading the file.
        return os.read(descriptor, min(size, os.fstat(descriptor).st_size + 1))
    finally:
        os.close(descriptor)


def open_contained_directory(base: str | Path, relative: str) -> int:
    """Open a directory below ``base`` (``.`` is ``base`` itself) as `open_contained` opens a file."""
    return _open_below(base, relative, stat.S_ISDIR, "a directory", "not-a-directory")


def _open_below(base: str | Path, relative: str, wanted: Callable[[int], bool], kind: str, code: str) -> int:
    check_relative(base, relative)
    chain = [os.open(base, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        descriptor = _descend(chain, relative, base)
    finally:
        for opened in chain:
            os.close(opened)
    if wanted(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileRefused(f"{relative!r} is not {kind}: name one below {base}.", code=code)


def _descend(chain: list[int], relative: str, base: str | Path) -> int:
    """Walk down from the last directory of ``chain``, which grows and shrinks on the way."""
    steps = relative.split("/")[::-1]
    links = 0
    while steps:
        step = steps.pop()
        if step in {"", "."}:
            continue
        if step == "..":  # only a link can contain one
            if len(chain) == 1:
                raise _leads_out_of(base, relative)
            os.close(chain.pop())
            continue
        try:
            descriptor = os.open(step, _STEP, dir_fd=chain[-1])
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.EMLINK}:
                raise
            target = os.readlink(step, dir_fd=chain[-1])
            links += 1
            if target.startswith("/") or links > MAX_LINKS:
                raise _leads_out_of(base, relative) from error
            steps += target.split("/")[::-1]
            continue
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            if any(rest not in {"", "."} for rest in steps):
                os.close(descriptor)
                raise FileRefused(
                    f"{relative!r} leads through a file: name one below {base}.", code="not-a-file"
                )
            return descriptor
        chain.append(descriptor)
    return chain.pop() if len(chain) > 1 else os.dup(chain[0])


# O_NONBLOCK: a FIFO is refused without waiting.
_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def _leads_out_of(base: str | Path, relative: str) -> PathRefused:
    return PathRefused(f"The path {relative!r} follows a link that leads out: name a file below {base}.")


def _objection(relative: str) -> str | None:
    """Return why a text cannot be a path below a directory, or ``None``."""
    if not relative or relative.isspace():
        return "is empty"
    if "\0" in relative:
        return "contains a NUL character"
    if len(relative) > MAX_PATH_CHARS or any("\ud800" <= char <= "\udfff" for char in relative):
        return "is not a usable path"
    if "\\" in relative:
        return "contains a backslash"
    if relative.startswith("/") or _DRIVE.match(relative):
        return "is absolute"
    if ".." in relative.split("/"):
        return "goes up with '..'"
    return None


def leads_out(base: str | Path, joined: str | Path) -> bool:
    """Return whether a path below ``base`` ends outside of it once its links are followed."""
    real_base = os.path.realpath(base)
    real = os.path.realpath(joined)
    return real != real_base and not real.startswith(real_base.rstrip("/") + "/")
