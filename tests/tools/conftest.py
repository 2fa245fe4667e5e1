from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.support import Bench
from vademecum.sandbox.available import Real


@pytest.fixture
def bench(tmp_path: Path, sandbox: Real) -> Bench:
    return Bench(tmp_path, sandbox)
