from __future__ import annotations

from pathlib import Path

import pytest

from tests.evals.support import Lab
from tests.support import Place


@pytest.fixture
def lab(place: Place, tmp_path: Path) -> Lab:
    """Evaluations with the built-in skills and those of an empty project."""
    return Lab(place, tmp_path / "out")
