from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty repository and an empty home."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return Place(tmp_path / "project", tmp_path / "home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty root."""
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def open_root() -> Iterator[Path]:
    """An empty root that any user of the machine may enter, which pytest's own directories do not allow."""
    directory = Path(tempfile.mkdtemp(prefix="vade-open-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    for place in directory.rglob("*"):
        if place.is_dir():
            place.chmod(0o755)
    shutil.rmtree(directory)
