from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture
def chromium() -> str:
    """A browser; a missing one is a failure where it should have been installed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    return found
