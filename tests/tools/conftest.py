from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tools.support import Bench
from vademecum.sandbox.choose import Real, probe


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Real:
    """Each sandbox that really confines; a missing one is a failure where it should have been installed."""
    name: Real = request.param
    found = probe(name)
    if name in os.environ.get("VADE_TEST_WITHOUT", "").split():
        assert found.sandbox is None, f"{name} works here, although VADE_TEST_WITHOUT names it"
        pytest.skip(found.problem)
    if found.sandbox is None:
        if os.environ.get("CI"):
            pytest.fail(found.problem)
        pytest.skip(found.problem)
    return name


@pytest.fixture
def bench(tmp_path: Path, sandbox: Real) -> Bench:
    return Bench(tmp_path, sandbox)
