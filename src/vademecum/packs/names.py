"""Names inside an archive: each is checked before anything is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from vademecum.errors import PackRefused

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_STEPS = 32

_DRIVE = re.compile(r"[A-Za-z]:")
# Nearly all names: seen to be good at a glance.
_PLAIN = re.compile(r"[A-Za-z0-9_-](?:[\w-]|[./][\w-])*/?\Z", re.ASCII)
_MAYBE_RESERVED = re.compile(r"(?:\A|/)(?:con|prn|aux|nul|com|lpt)", re.IGNORECASE)
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?\Z", re.IGNORECASE)


def check_name(name: str) -> str:
    """The one spelling of an entry's path, or a refusal that names it.

    >>> check_name("skill/scripts/x.py")
    'skill/scripts/x.py'
    >>> check_name("../x")
    Traceback (most recent call last):
    ...
    vademecum.errors.PackRefused: The archive's entry '../x' goes up with '..': nothing was installed.
    """
    reason = objection(name)
    if reason is not None:
        raise refused(name, reason)
    return name.rstrip("/")


def check_together(files: Iterable[str], directories: Iterable[str]) -> None:
    """Refuse names that some file system takes for one, and a file where a directory must be."""
    seen: dict[str, str] = {}
    for name in files:
        key = _folded(name)
        if key in seen:
            same = "is there twice" if seen[key] == name else f"is the same as {seen[key]!r} on some systems"
            raise refused(name, same)
        seen[key] = name
    parents = {_folded(name) for name in directories}
    for name in seen.values():
        steps = name.split("/")
        parents.update(_folded("/".join(steps[:n])) for n in range(1, len(steps)))
    for key, name in seen.items():
        if key in parents:
            raise refused(name, "is a file where a directory must be")
    spellings: dict[str, str] = {}
    for name in (*seen.values(), *directories):
        steps = name.split("/")
        for n in range(1, len(steps)):
            directory = "/".join(steps[:n])
            if spellings.setdefault(_folded(directory), directory) != directory:
                raise refused(directory, f"is the same as {spellings[_folded(directory)]!r} on some systems")


def refused(name: str, reason: str) -> PackRefused:
    """The refusal of one entry."""
    return PackRefused(f"The archive's entry {name[:200]!r} {reason}: nothing was installed.")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def objection(name: str) -> str | None:
    """Why a path cannot be that of a file in a pack, if it cannot."""
    if name.count("/") > MAX_STEPS:
        return f"lies more than {MAX_STEPS} directories deep"
    if len(name) < MAX_NAME_BYTES and _PLAIN.match(name) and not _MAYBE_RESERVED.search(name):
        return None
    if not name or name == "/":
        return "has no name"
    if "\\" in name:
        return "holds a backslash"
    if name.startswith("/") or _DRIVE.match(name):
        return "is absolute"
    if any(unicodedata.category(char) in {"Cc", "Cs", "Cf", "Zl", "Zp"} for char in name):
        return "holds a control or hidden character"
    if len(name.encode()) > MAX_PATH_BYTES:
        return f"has a path of more than {MAX_PATH_BYTES} bytes"
    for step in name.rstrip("/").split("/"):
        if step == "..":
            return "goes up with '..'"
        if step in {"", "."}:
            return "has an empty step"
        if len(step.encode()) > MAX_NAME_BYTES:
            return f"has a name of more than {MAX_NAME_BYTES} bytes"
        if step != step.rstrip(" .") or ":" in step or _RESERVED.match(step):
            return "has a name that not every system can keep"
    return None
