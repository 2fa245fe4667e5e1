"""The versions of Python that the package is for, and an interpreter of each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
VERSIONS = re.findall(
    r"Programming Language :: Python :: (3\.\d+)", (TOP / "pyproject.toml").read_text("utf-8")
)


def interpreter(version: str) -> str:
    """A Python of that version, from here, the PATH or pyenv; without one the test is skipped, in CI it fails."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    for candidate in (sys.executable, shutil.which(f"python{version}"), *map(str, found)):
        if candidate is not None and _version(candidate) == version:
            return candidate
    missing = f"There is no Python {version}, neither on the PATH nor in {pyenv}"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def _version(python: str) -> str:
    """What an interpreter says it is; nothing where it is a shim that leads nowhere, or cannot make environments."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()
