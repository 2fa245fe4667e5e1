from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.evals.support import Lab
from tests.support import Place


@pytest.fixture
def lab(place: Place, tmp_path: Path) -> Lab:
    """Evaluations with the built-in skills and those of an empty project."""
    return Lab(place, tmp_path / "out")


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the rooms of runs are made, for whoever wants to see that none is left."""
    place = tmp_path / "rooms"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place
