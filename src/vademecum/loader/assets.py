"""The files that a skill offers besides its instructions: their names, not their content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vademecum.errors import LoadRefused, PathRefused
from vademecum.paths import contained, leads_out
from vademecum.skill.skill import Skill

ASSET_DIRECTORIES = ("references", "reference", "assets", "scripts")
MAX_ASSETS = 1000

_PASSED_OVER = frozenset({"__pycache__", "node_modules", ".git", ".DS_Store"})


def list_assets(skill: Skill) -> list[str]:
    """The relative paths of a skill's references, assets and scripts, sorted; at most 1,000."""
    found: list[str] = []
    for top in sorted(ASSET_DIRECTORIES):
        for name in _files_below(skill.path, top):
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


def _files_below(base: Path, top: str) -> Iterator[str]:
    for directory, names, files in os.walk(base / top):
        names[:] = sorted(name for name in names if name not in _PASSED_OVER)
        for name in sorted(files):
            path = Path(directory, name)
            if name in _PASSED_OVER or name.endswith(".pyc"):
                continue
            if path.is_symlink() and (leads_out(base, path) or not path.exists()):
                continue
            yield path.relative_to(base).as_posix()
