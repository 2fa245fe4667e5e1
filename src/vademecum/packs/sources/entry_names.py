"""Check the names of files in a source, alone and against each other, and find skills among them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from vademecum.errors import PackRefused
from vademecum.skill.skill import MANIFEST as SKILL_FILE

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_STEPS = 32
MAX_DIRECTORIES = 20_000

# macOS adds this to a zip; it is not a skill.
_ADDED_BY_SYSTEMS = frozenset({"__MACOSX"})
_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[\d¹²³]) *(?:\..*)?\Z", re.IGNORECASE)


class NameCheck:
    """Check the names of one source one by one, so that a bad source is refused early."""

    def __init__(self) -> None:
        # By the form in which systems compare paths: the spelling, and whether it is a file.
        self._known: dict[str, tuple[str, bool]] = {}
        self._directories = 0

    def file(self, name: str) -> str:
        """Check and return the name of a file."""
        if check_name(name) != name:
            raise refused(name, "is a file with the name of a directory")
        self._enter(name, is_file=True)
        return name

    def directory(self, name: str) -> str:
        """Check and return the name of a directory, without a slash at its end."""
        plain = check_name(name)
        self._enter(plain, is_file=False)
        return plain

    def _enter(self, path: str, *, is_file: bool) -> None:
        while path:
            key = path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()
            if key in self._known:
                known, was_file = self._known[key]
                if known != path:
                    raise refused(path, f"is {known!r} on some systems")
                if is_file or was_file:
                    both = is_file and was_file
                    raise refused(path, "occurs twice" if both else "is a file where a directory must be")
                return  # and so are its parents
            self._known[key] = path, is_file
            self._directories += not is_file
            if self._directories > MAX_DIRECTORIES:
                raise refused(path, f"is one of more than {MAX_DIRECTORIES:,} directories")
            path, is_file = path.rpartition("/")[0], False


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
    """Return the error for one entry."""
    return PackRefused(f"The entry {name[:200]!r} {reason}: nothing was installed.")


def objection(name: str) -> str | None:
    """Return why a path cannot be that of a file in a pack, or None."""
    if name.count("/") > MAX_STEPS:
        return f"is more than {MAX_STEPS} directories deep"
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


def document_in(names: Iterable[str]) -> str | None:
    """Return the name among these that is the document of a skill, in a spelling that the index accepts.

    >>> document_in(["readme.md", "skill.md"]), document_in(["skill.md", "SKILL.md"])
    ('skill.md', 'SKILL.md')
    """
    return min((name for name in names if name.upper() == SKILL_FILE.upper()), default=None)


def skill_places(paths: Iterable[str]) -> list[str]:
    """Return the directories that are skills, "" for the whole, none below another.

    Hidden directories count only if there is nothing else: they are mostly copies.

    >>> skill_places(["skills/a/SKILL.md", "skills/a/references/x/SKILL.md", ".claude/skills/a/SKILL.md"])
    ['skills/a']
    >>> skill_places(["SKILL.md", "sub/SKILL.md"])
    ['']
    """
    found = {path.rpartition("/")[0] for path in paths if document_in([path.rpartition("/")[2]])}
    tops: set[str] = set()
    for place in sorted(found, key=lambda place: place.count("/") if place else -1):
        if place_of(place, tops) is None:
            tops.add(place)
    visible = [place for place in tops if not _is_hidden(place)]
    return sorted(visible or tops)


def place_of(path: str, places: set[str]) -> str | None:
    """Return the one of these directories that is or contains a path; "" contains everything.

    >>> place_of("a/b/c", {"a/b"}), place_of("a/bc", {"a/b"})
    ('a/b', None)
    """
    while path:
        if path in places:
            return path
        path = path.rpartition("/")[0]
    return "" if "" in places else None


def left_out(directories: Iterable[str], places: Sequence[str]) -> list[str]:
    """Return the outermost of these directories without a skill; leave out hidden ones."""
    known = set(places)
    around = {step for place in places for step in steps_to(place)} | {""}
    outermost = {
        next((step for step in steps_to(path) if step not in around), "")
        for path in directories
        if path and place_of(path, known) is None
    }
    return sorted(path for path in outermost - _ADDED_BY_SYSTEMS if path and not _is_hidden(path))


def steps_to(path: str) -> list[str]:
    """Return a relative path and the directories around it, the outermost first.

    >>> steps_to(".claude/skills")
    ['.claude', '.claude/skills']
    """
    steps = path.split("/")
    return ["/".join(steps[: number + 1]) for number in range(len(steps))]


def _is_hidden(place: str) -> bool:
    return any(step.startswith(".") for step in place.split("/"))
