"""Every example in a docstring runs in an empty directory, its home too: none leaves anything behind."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VADE_CACHE_DIR", "XDG_CACHE_HOME", "VADE_SKILL_ROOTS"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):  # examples set them
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
