"""Every example in a docstring runs in an empty directory, its home too: none leaves anything behind."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

# Adapters of frameworks that are not installed cannot be imported: `make test-extras` has them all.
_FRAMEWORKS = {
    "agent_framework": "agent_framework",
    "google_adk": "google.adk",
    "langchain": "langchain",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
}


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


collect_ignore = [
    f"vademecum/integrations/{module}.py"
    for module, package in _FRAMEWORKS.items()
    if not _is_installed(package)
]


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VADE_CACHE_DIR", "XDG_CACHE_HOME", "VADE_SKILL_ROOTS"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):  # examples set them
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
