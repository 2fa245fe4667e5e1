"""The files of a skill: the ones it offers besides its instructions, and one digest of all of them."""

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
# Compiled files are never part of a skill, and never run.
COMPILED = "__pycache__"

PASSED_OVER = frozenset({"__pycache__", "node_modules", ".git", ".DS_Store"})
_OTHER_NAME = {"references": "reference", "reference": "references"}


def everything(relative: str) -> bool:  # noqa: ARG001 - the interface has it
    """Return true for every file: the caller may see all of them."""
    return True


def list_assets(
    skill: Skill, tops: tuple[str, ...] = ASSET_DIRECTORIES, *, sees: Sees = everything
) -> list[str]:
    """Return the relative paths of a skill's references, assets and scripts, sorted; at most 1,000.

    Only plain files inside the skill with printable names are returned, if the caller ``sees`` them.
    """
    try:
        present = os.listdir(skill.location)
    except OSError:
        return []
    found = (relative for top in tops if top in present for relative in files_below(skill.location, top))
    return sorted(filter(sees, found))[:MAX_ASSETS]


def asset_path(skill: Skill, relative_path: str, *, sees: Sees = everything) -> str:
    """Return the normalized path of a resource, so that a decision covers all spellings.

    Empty and ``.`` steps are dropped. ``reference/`` and ``references/`` are equivalent: a file that is only
    in the other one is found there.
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
    """Return the normalized path of a script, always below ``scripts/``, which callers can leave out."""
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
    """Return the error for a file that is missing, or must look missing; it names files that exist."""
    known = list_assets(skill, ("scripts",) if what == "script" else ASSET_DIRECTORIES, sees=sees)
    there = f"there are {', '.join(map(repr, known[:MAX_NAMED]))}." if known else "it has none."
    hint = meant(nearest_file(typed, known), otherwise=there)
    return LoadRefused(f"Skill {skill.name!r} has no {what} {typed[:200]!r}: {hint}", code="missing")


def files_below(base: str, top: str) -> Iterator[str]:
    """Yield the plain files below a directory of a skill, and links to files inside it, up to a limit."""
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
    """Return whether a skill never offers a file or directory of that name."""
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
    """Return the SHA-256 of ``path NUL sha256(content) LF`` of every file, sorted by the bytes of the path.

    Compiled files and those in ``without`` are left out. A link counts with its target, and an unreadable
    file as unreadable, so that a change of either changes the digest.
    """
    whole = hashlib.sha256()
    for relative, content in file_digests(location).items():
        if relative not in without:
            whole.update(os.fsencode(relative) + b"\0" + content.encode() + b"\n")
    return f"sha256:{whole.hexdigest()}"


def file_digests(location: str) -> dict[str, str]:
    """Return the digest of every file below a directory, sorted by the bytes of the path."""
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
                    f"{base} contains more than {MAX_DIGESTED_FILES:,} files.", code="too-many-files"
                )
            yield os.path.relpath(f"{directory}/{name}", base)


def content_digest(path: str) -> str:
    """Return the digest of a file's content, the target of a link, or the word ``unreadable``."""
    if os.path.islink(path):
        return f"link {os.readlink(path)!r}"
    try:
        return sha256_of(path)
    except (OSError, FileRefused):
        return "unreadable"
