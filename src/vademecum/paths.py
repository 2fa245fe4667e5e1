"""The only code that joins a path from outside to a directory of ours."""

from __future__ import annotations

import os
import re
from pathlib import Path

from vademecum.errors import PathRefused

_DRIVE = re.compile(r"[A-Za-z]:")


def contained(base: Path, relative: str) -> Path:
    """Join ``relative`` to ``base``, or refuse it when it is not a plain path below ``base``.

    Refused are ``..``, absolute paths, drive letters, backslashes, NUL, and links that lead out.

    >>> contained(Path("/nonexistent/skill"), "references/a.md").name
    'a.md'
    >>> contained(Path("/nonexistent/skill"), "../a.md")
    Traceback (most recent call last):
    ...
    vademecum.errors.PathRefused: The path '../a.md' goes up with '..': name a file below /nonexistent/skill.
    """
    reason = _objection(relative)
    if reason is None:
        joined = base / relative
        if leads_out(base, joined):
            reason = "follows a link that leads out"
    if reason is not None:
        raise PathRefused(f"The path {relative!r} {reason}: name a file below {base}.")
    return joined


def _objection(relative: str) -> str | None:
    """Why this text cannot name something below a directory, whatever is on the disk."""
    if not relative or relative.isspace():
        return "is empty"
    if "\0" in relative:
        return "holds a NUL character"
    if "\\" in relative:
        return "holds a backslash"
    if relative.startswith("/") or _DRIVE.match(relative):
        return "is absolute"
    if ".." in relative.split("/"):
        return "goes up with '..'"
    return None


def leads_out(base: Path, joined: Path) -> bool:
    """Whether a path below ``base`` ends outside of it once its links are followed."""
    real_base = os.path.realpath(base)
    real = os.path.realpath(joined)
    return real != real_base and not real.startswith(real_base.rstrip("/") + "/")
