"""The files that a skill offers besides its instructions: their names, not their content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from vademecum.errors import LoadRefused, PathRefused
from vademecum.paths import contained, leads_out
from vademecum.skill.skill import Skill

ASSET_DIRECTORIES = ("assets", "reference", "references", "scripts")
MAX_ASSETS = 1000

_PASSED_OVER = frozenset({"__pycache__", "node_modules", ".git", ".DS_Store"})


def list_assets(skill: Skill) -> list[str]:
    """The relative paths of a skill's references, assets and scripts, sorted; at most 1,000."""
    found: list[str] = []
    try:
        present = os.listdir(skill.location)
    except OSError:
        return found
    for top in ASSET_DIRECTORIES:
        if top not in present:
            continue
        for name in _files_below(skill.location, top):
            found.append(name)
            if len(found) == MAX_ASSETS:
                return found
    return found


def script_path(skill: Skill, script: str) -> Path:
    """The absolute path of a script below ``scripts/``; the name may be given with or without it."""
    relative = script if script.startswith("scripts/") else f"scripts/{script}"
    try:
        path = contained(skill.path, relative)
    except PathRefused as error:
        raise LoadRefused(f"{error} Scripts lie below scripts/.", code="path-refused") from error
    if not path.is_file():
        scripts = [name for name in list_assets(skill) if name.startswith("scripts/")]
        there = f"there are {', '.join(scripts[:20])}" if scripts else "it has no scripts"
        raise LoadRefused(f"Skill {skill.name!r} has no script {script!r}: {there}.", code="missing")
    return path


def _files_below(base: str, top: str) -> Iterator[str]:
    """The files below one directory, in order; a link counts when it ends inside the skill."""
    try:
        with os.scandir(f"{base}/{top}") as listing:
            entries = sorted(listing, key=attrgetter("name"))
    except OSError:
        return
    for entry in entries:
        if entry.name in _PASSED_OVER or entry.name.endswith(".pyc"):
            continue
        relative = f"{top}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(base, relative)
        elif not entry.is_symlink() or (os.path.isfile(entry.path) and not leads_out(base, entry.path)):
            yield relative
