"""Building the package as `make build` does, from a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
# What lies in a checkout and is none of it.
_NOT_OURS = shutil.ignore_patterns(
    ".git", ".venv*", "dist", "build", "__pycache__", ".*_cache", ".hypothesis"
)


def copy_tree(place: Path) -> Path:
    """A copy of this tree, without what tools and tests have left in it."""
    shutil.copytree(TOP, place, ignore=_NOT_OURS)
    return place


def build(tree: Path, place: Path, *, umask: int = -1) -> tuple[Path, Path]:
    """The sdist and the wheel of a tree."""
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(place)]
    subprocess.run(words, cwd=tree, env=env, umask=umask, check=True, capture_output=True)
    (sdist,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return sdist, wheel
