from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolkit keeps its record in the working directory, and reads the rules of the home."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
