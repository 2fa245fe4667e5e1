"""List the files of a skill's directory, compute their digest, and compare them with others."""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from vademecum.errors import FileRefused, PackRefused
from vademecum.files import read_capped

MAX_FILES = 10_000
MAX_SKILL_BYTES = 512 * 1024 * 1024
MAX_COMPARED_BYTES = 1024 * 1024
MAX_DIFF_LINES = 400

SIGNATURE, OMS_SIGNATURE = "skill.sig", "skill.oms.sig"
MAX_SIGNATURE_BYTES = 8 * 1024 * 1024

# Files that interpreters and desktops create; they do not count as edits.
_CACHES = frozenset({"__pycache__", ".DS_Store"})
_JUNK = _CACHES | {"node_modules"}
# Git runs commands from a repository's configuration, and `.git` can be a file that points to one.
_GIT = frozenset({".git", "git~1"})
# O_NOFOLLOW: a link is refused; O_NONBLOCK: a FIFO is not waited for.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SkillFile(Struct, frozen=True, order=True):
    """One file of a skill: its path, digest and size, and whether it can be executed.

    Files are sorted by their paths, whose characters sort as their bytes in UTF-8 do.
    """

    path: str
    sha256: str
    size: int
    executable: bool = False


def is_junk(path: str) -> bool:
    """Return whether a path in a skill is left out of packs.

    >>> [is_junk(path) for path in ("evals/a.json", "scripts/evals/a", "scripts/__pycache__/x.pyc")]
    [True, False, True]
    """
    steps = path.split("/")
    return (
        not _JUNK.isdisjoint(steps)
        or any(step.casefold() in _GIT for step in steps)
        or (steps[0] == "evals" and len(steps) > 1)
        or path.endswith(".pyc")
    )


def is_cache(path: str) -> bool:
    """Return whether an interpreter or a desktop creates files like this one.

    >>> is_cache("scripts/__pycache__/x.pyc"), is_cache("evals/evals.json")
    (True, False)
    """
    return not _CACHES.isdisjoint(path.split("/"))


def files_of(directory: Path, *, every: bool = False) -> tuple[SkillFile, ...]:
    """Return the files of a skill that are packed, or every file, sorted by the bytes of their paths.

    Refuse links, devices and names that are not text: they cannot be copied unchanged.
    """
    base = str(directory)
    paths = (path for path, _ in walk(base, passed_over=lambda path: not every and is_junk(path)))
    found = [_described(base, path) for path in paths]
    if len(found) > MAX_FILES or sum(file.size for file in found) > MAX_SKILL_BYTES:
        most = f"{MAX_FILES:,} files and {MAX_SKILL_BYTES:,} bytes"
        raise PackRefused(f"{directory} is too large for a skill: at most {most}.")
    return tuple(sorted(found))


def differences_of(then: Iterable[SkillFile], now: Iterable[SkillFile]) -> dict[str, tuple[str, ...]]:
    """Return the paths that were added, changed and removed.

    >>> differences_of([SkillFile("a", "1", 1)], [SkillFile("a", "2", 1), SkillFile("b", "3", 1)])
    {'added': ('b',), 'changed': ('a',), 'removed': ()}
    """
    old, new = ({file.path: file for file in files} for files in (then, now))
    changed = (path for path in old.keys() & new.keys() if old[path] != new[path])
    found = {"added": new.keys() - old.keys(), "changed": changed, "removed": old.keys() - new.keys()}
    return {kind: tuple(sorted(paths)) for kind, paths in found.items()}


def diff_of(old: Path, new: Path) -> list[str]:
    """Return a unified diff of every file; binary and very long files are only named."""
    before, after = ({file.path: file for file in files_of(place, every=True)} for place in (old, new))
    lines: list[str] = []
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was and now and was != now and path in {SIGNATURE, OMS_SIGNATURE}:
            lines.append(f"{path} differs: it was signed again")
        elif (was and was.sha256) != (now and now.sha256):
            lines += _file_diff(path, old if was else None, new if now else None)
        if was and now and was.executable != now.executable:
            lines.append(f"{path} {'became' if now.executable else 'is no longer'} executable")
        if len(lines) > MAX_DIFF_LINES:
            return [*lines[:MAX_DIFF_LINES], "… and more"]
    return lines


def _file_diff(path: str, old: Path | None, new: Path | None) -> list[str]:
    before, after = (_lines(place / path) if place else [] for place in (old, new))
    verb = "differs" if old and new else "was added" if new else "was removed"
    if before is None or after is None or not (before or after):
        return [f"{path} {verb}, and is not text or too long"]
    names = [f"{side}/{path}" if place else "/dev/null" for side, place in (("a", old), ("b", new))]
    differing = list(difflib.unified_diff(before, after, names[0], names[1], lineterm="", n=2))
    return differing or [f"{path} differs in its line endings"]


def _lines(file: Path) -> list[str] | None:
    try:
        return read_capped(file, cap=MAX_COMPARED_BYTES).decode().splitlines()
    except (FileRefused, UnicodeDecodeError):
        return None


def digest_of(files: Iterable[SkillFile]) -> str:
    """Return the digest of a whole skill, as other tools compute it; executable bits are not part of it.

    >>> digest_of([SkillFile("SKILL.md", "ab", 2)])[:19]
    'sha256:0f0567d026db'
    """
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(f"{file.path}\0{file.sha256}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def walk(
    base: str, place: str = "", *, passed_over: Callable[[str], bool]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every entry below a directory except directories, with its path; links are not followed.

    ``passed_over`` sees the path of a directory with a slash at its end.
    """
    with os.scandir(f"{base}/{place}") as listing:
        entries = list(listing)
    for entry in entries:
        path = f"{place}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not passed_over(f"{path}/"):
                yield from walk(base, f"{path}/", passed_over=passed_over)
        elif not passed_over(path):
            yield path, entry


def _described(base: str, relative: str) -> SkillFile:
    try:
        relative.encode()
        descriptor = os.open(f"{base}/{relative}", _FLAGS)
    except UnicodeEncodeError as error:
        raise PackRefused(f"{relative!r} in {base} has a name that is not text: rename it.") from error
    except OSError as error:
        link = "is a link: put the file itself in its place"
        reason = link if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
        raise PackRefused(f"{relative!r} in {base} {reason}.") from error
    with os.fdopen(descriptor, "rb", buffering=0) as opened:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PackRefused(f"{relative!r} in {base} is not a plain file: remove it.")
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return SkillFile(relative, digest, about.st_size, bool(about.st_mode & stat.S_IXUSR))
