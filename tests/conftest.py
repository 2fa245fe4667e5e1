from __future__ import annotations

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
