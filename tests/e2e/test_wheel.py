"""The wheel holds everything, and a clean environment with nothing else can use it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import Place

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.extras


def test_installed_wheel(place: Place, tmp_path: Path) -> None:
    python = [sys.executable, "-m"]
    dist = tmp_path / "dist"
    subprocess.run([*python, "pip", "wheel", "--quiet", "--no-deps", "-w", str(dist), str(TOP)], check=True)
    (wheel,) = dist.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    for expected in ("vademecum/py.typed", "vademecum/builtin/skill-author/assets/template/SKILL.md"):
        assert expected in names
    venv = tmp_path / "venv"
    subprocess.run([*python, "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True)

    def vade(*words: str) -> str:
        env = place.env | {"PATH": f"{venv}/bin:/usr/bin:/bin"}
        return subprocess.run(
            ["vade", *words], cwd=place.cwd, env=env, capture_output=True, text=True, check=True
        ).stdout

    assert vade("--version") == "vade 0.1.0\n"
    assert vade("new", "mine").startswith("Made .agent/skills/mine/SKILL.md")
    assert vade("list").splitlines()[-1] == "4 skills"
    assert vade("validate", ".agent/skills") == f"✓ {place.cwd}/.agent/skills/mine valid\n"
    assert "Nothing was left out." in vade("doctor")
    (place.cwd / "data.csv").write_text("a,b\n1,2\n")
    assert "2 columns" in vade("exec", "--yes", "csv-summary", "summarise.py", "data.csv")
    (place.cwd / ".agent/config.json").write_text('{"lenient": true}')
    assert vade("list").splitlines()[-1] == "4 skills"
