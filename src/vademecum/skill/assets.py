"""The files of a skill: which ones it offers besides its instructions, and one digest of them all."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from vademecum.errors import FileRefused, LoadRefused, PathRefused
from vademecum.files import sha256_of
from vademecum.nearest import meant, nearest_file
from vademecum.paths import check_relative, contained, leads_out, open_contained
from vademecum.skill.skill import Skill

# Whether the caller may know of a file, by its relative path.
Sees = Callable[[str], bool]

ASSET_DIRECTORIES = ("assets", "reference", "references", "scripts")
MAX_ASSETS = 1000
MAX_VISITED = 20_000
MAX_NAMED = 20
MAX_DIGESTED_FILES = 10_000
# What an interpreter leaves behind: never part of a skill, and never run as one.
COMPILED = "__pycache__"

PASSED_OVER = frozenset({"__pycache__", "node_modules", ".git", ".DS_Store"})
_OTHER_NAME = {"references": "reference", "reference": "references"}


def everything(relative: str) -> bool:  # noqa: ARG001 - whatever it is
    """Return true for every file: the caller may see all of them."""
    return True


def list_assets(
    skill: Skill, tops: tuple[str, ...] = ASSET_DIRECTORIES, *, sees: Sees = everything
) -> list[str]:
    """Return the relative paths of a skill's references, assets and scripts, sorted; at most 1,000.

    These are plain files inside the skill whose names are printable text, if the caller ``sees`` them.
    """
    try:
        present = os.listdir(skill.location)
    except OSError:
        return []
    found = (relative for top in tops if top in present for relative in files_below(skill.location, top))
    return sorted(filter(sees, found))[:MAX_ASSETS]


def asset_path(skill: Skill, relative_path: str, *, sees: Sees = everything) -> str:
    """Return the one spelling of a resource's path, so that a decision covers all spellings.

    Empty and ``.`` steps are dropped. ``reference/`` and ``references/`` are one directory: a file that only
    the other one has is found there.
    """
    steps = _steps(skill, relative_path)
    if len(steps) < 2 or steps[0] not in ASSET_DIRECTORIES:
        allowed = "references/, assets/ or scripts/"
        hint = meant(
            nearest_file(relative_path, list_assets(skill, sees=sees)), otherwise="name a file that is."
        )
        raise PathRefused(f"The path {relative_path[:200]!r} is not below {allowed}: {hint}", code="missing")
    typed = "/".join(steps)
    other = "/".join([_OTHER_NAME.get(steps[0], steps[0]), *steps[1:]])
    there = os.path.lexists(f"{skill.location}/{typed}") or not os.path.lexists(f"{skill.location}/{other}")
    return typed if there else other


def script_name(skill: Skill, script: str) -> str:
    """Return the one spelling of a script's path: below ``scripts/``, which may be left out."""
    steps = _steps(skill, script)
    return "/".join(steps if steps[:1] == ["scripts"] else ["scripts", *steps])


def _steps(skill: Skill, relative: str) -> list[str]:
    steps = [step for step in relative.split("/") if step not in {"", "."}]
    check_relative(skill.location, relative)
    return steps


def script_path(skill: Skill, script: str, *, sees: Sees = everything) -> Path:
    """Return the absolute path of a script below ``scripts/``."""
    path = contained(Path(skill.location), script_name(skill, script))
    if not os.path.isfile(path):
        raise no_file(skill, script, sees, what="script")
    return path


def no_file(skill: Skill, typed: str, sees: Sees, *, what: str = "file") -> LoadRefused:
    """Return the error for a file that is not there, or must look so; it names files that are."""
    known = list_assets(skill, ("scripts",) if what == "script" else ASSET_DIRECTORIES, sees=sees)
    there = f"there are {', '.join(map(repr, known[:MAX_NAMED]))}." if known else "it has none."
    hint = meant(nearest_file(typed, known), otherwise=there)
    return LoadRefused(f"Skill {skill.name!r} has no {what} {typed[:200]!r}: {hint}", code="missing")


def files_below(base: str, top: str) -> Iterator[str]:
    """Yield the plain files below a directory of a skill, and links to such inside it, within bounds."""
    if os.path.islink(f"{base}/{top}") and leads_out(base, f"{base}/{top}"):
        return
    left = MAX_VISITED
    for directory, names, files in os.walk(f"{base}/{top}"):
        names[:] = sorted(name for name in names if not is_passed_over(name))
        for name in sorted(files):
            left -= 1
            if left < 0:
                return
            relative = os.path.relpath(f"{directory}/{name}", base)
            if not is_passed_over(name) and _can_be_opened(base, relative):
                yield relative


def is_passed_over(name: str) -> bool:
    """Return whether a file or directory of that name is none that a skill offers."""
    return name in PASSED_OVER or name.endswith(".pyc") or not name.isprintable()


def _can_be_opened(base: str, relative: str) -> bool:
    """Return whether this is a plain file inside the skill, or a link that ends at one."""
    try:
        about = os.lstat(f"{base}/{relative}")
        if stat.S_ISLNK(about.st_mode):
            os.close(open_contained(base, relative))
    except (OSError, PathRefused, FileRefused):
        return False
    return stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)


def skill_digest(skill: Skill) -> str:
    """Return the digest of all files of a skill."""
    return directory_digest(skill.location)


def directory_digest(location: str, *, without: Collection[str] = ()) -> str:
    """SHA-256 over ``path NUL sha256(content) LF`` of every other file, sorted by the bytes of the path.

    Files that an interpreter compiled are left out. A link counts with its target, and what
    cannot be read with that fact, so that either changes it.
    """
    whole = hashlib.sha256()
    for relative, content in file_digests(location).items():
        if relative not in without:
            whole.update(os.fsencode(relative) + b"\0" + content.encode() + b"\n")
    return f"sha256:{whole.hexdigest()}"


def file_digests(location: str) -> dict[str, str]:
    """Return every file below a directory with the digest of its content, sorted by the bytes of the path."""
    names = sorted(_files(location), key=os.fsencode)
    return {relative: content_digest(f"{location}/{relative}") for relative in names}


def _files(base: str) -> Iterator[str]:
    count = 0
    for directory, names, files in os.walk(base):
        names[:] = [name for name in names if name != COMPILED]
        links = [name for name in names if os.path.islink(f"{directory}/{name}")]
        for name in (*files, *links):
            count += 1
            if count > MAX_DIGESTED_FILES:
                raise FileRefused(
                    f"{base} holds more than {MAX_DIGESTED_FILES:,} files.", code="too-many-files"
                )
            yield os.path.relpath(f"{directory}/{name}", base)


def content_digest(path: str) -> str:
    """Return the digest of a file; a link counts with its target, and what cannot be read with that fact."""
    if os.path.islink(path):
        return f"link {os.readlink(path)!r}"
    try:
        return sha256_of(path)
    except (OSError, FileRefused):
        return "unreadable"
