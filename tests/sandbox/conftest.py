from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.support import Cell
from vademecum.sandbox.available import Real


@pytest.fixture
def cell(tmp_path: Path, sandbox: Real) -> Cell:
    return Cell(tmp_path, sandbox)
