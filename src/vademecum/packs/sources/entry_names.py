"""Names of files in a source, checked one by one and against each other."""

from __future__ import annotations

import re
import unicodedata

from vademecum.errors import PackRefused

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_STEPS = 32
MAX_DIRECTORIES = 20_000
MAX_ALL_NAMES = 16 * 1024 * 1024

_DRIVE = re.compile(r"[A-Za-z]:")
# Nearly all names match this and need no closer look.
_PLAIN = re.compile(r"[A-Za-z0-9_-](?:[\w-]|[./][\w-])*/?\Z", re.ASCII)
_MAYBE_RESERVED = re.compile(r"(?:\A|/)(?:con|prn|aux|nul|com|lpt)", re.IGNORECASE)
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[\d¹²³]) *(?:\..*)?\Z", re.IGNORECASE)


class NameCheck:
    """Check the names of one source as they come, so that a bad source is refused early."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._directories: dict[str, str] = {}
        self._left = MAX_ALL_NAMES

    def file(self, name: str) -> str:
        """Check and return the name of a file."""
        if check_name(name) != name:
            raise refused(name, "is a file with the name of a directory")
        key = _folded(name)
        if key in self._files:
            other = self._files[key]
            raise refused(name, "occurs twice" if other == name else f"is {other!r} on some systems")
        if key in self._directories:
            raise refused(name, "is a file where a directory must be")
        self._files[key] = name
        self._left -= len(name)
        if self._left < 0:
            raise refused(name, f"makes the names longer than {MAX_ALL_NAMES:,} characters")
        self._enter(name.rpartition("/")[0])
        return name

    def directory(self, name: str) -> str:
        """Check and return the name of a directory, without a slash at its end."""
        plain = check_name(name)
        self._enter(plain)
        return plain

    def _enter(self, directory: str) -> None:
        while directory:
            key = _folded(directory)
            known = self._directories.get(key)
            if known == directory:
                return  # and so are those around it
            if known is not None:
                raise refused(directory, f"is {known!r} on some systems")
            if key in self._files:
                raise refused(self._files[key], "is a file where a directory must be")
            self._directories[key] = directory
            if len(self._directories) > MAX_DIRECTORIES:
                raise refused(directory, f"is one of more than {MAX_DIRECTORIES:,} directories")
            directory = directory.rpartition("/")[0]


def check_name(name: str) -> str:
    """Return an entry's path without a slash at its end, or refuse it.

    >>> check_name("skill/scripts/x.py")
    'skill/scripts/x.py'
    >>> check_name("../x")
    Traceback (most recent call last):
    ...
    vademecum.errors.PackRefused: The entry '../x' goes up with '..': nothing was installed.
    """
    reason = objection(name)
    if reason is not None:
        raise refused(name, reason)
    return name.rstrip("/")


def refused(name: str, reason: str) -> PackRefused:
    """Return the refusal of one entry."""
    return PackRefused(f"The entry {name[:200]!r} {reason}: nothing was installed.")


def _folded(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def objection(name: str) -> str | None:
    """Return why a path cannot be that of a file in a pack, or None."""
    if name.count("/") > MAX_STEPS:
        return f"is more than {MAX_STEPS} directories deep"
    if len(name) < MAX_NAME_BYTES and _PLAIN.match(name) and not _MAYBE_RESERVED.search(name):
        return None
    if not name or name == "/":
        return "has no name"
    if "\\" in name:
        return "contains a backslash"
    if name.startswith("/") or _DRIVE.match(name):
        return "is absolute"
    if any(unicodedata.category(char) in {"Cc", "Cs", "Cf", "Zl", "Zp"} for char in name):
        return "contains a control or hidden character"
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
            return "has a name that not every system can store"
    return None
