"""The wheel in a clean environment of each Python: all of it works there, with what it declares and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.e2e.building import TOP, build, copy_tree
from tests.e2e.documents import python_blocks
from tests.e2e.interpreters import VERSIONS, interpreter
from tests.support import Place, of_extras

pytestmark = pytest.mark.extras

# The tests of `tests/e2e` that ask the installed command; some pages are about what needs an extra.
PAGES = "tests/e2e/test_documentation.py"
OWN_TESTS = [
    f"{PAGES}::test_console_blocks",
    f"{PAGES}::test_python_blocks",
    "tests/e2e/test_examples.py",
    "tests/e2e/test_builtin_scripts.py",
]
NEED_EXTRAS = [
    f"--deselect={PAGES}::test_{kind}_blocks[docs/{page}.md]"
    for kind, page in (
        ("python", "governance"),
        ("python", "how-to/add-skills"),
        ("console", "how-to/real-model"),
    )
]
INSTALLED = "from importlib.metadata import distributions as d; print(*{each.name for each in d()})"


@dataclass(frozen=True)
class Clean:
    """An environment with the wheel in it."""

    python: Path

    @property
    def vade(self) -> Path:
        return self.python.with_name("vade")

    def run(self, place: Place, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run something of it, with no other Python within reach."""
        env = place.env | {"PATH": f"{self.python.parent}:/usr/bin:/bin"}
        return subprocess.run(
            [*map(str, words)], cwd=place.cwd, env=env, capture_output=True, text=True, check=False
        )

    def says(self, place: Place, *words: str) -> str:
        done = self.run(place, self.vade, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    found = build(copy_tree(place / "tree"), place / "dist")[1]
    shutil.rmtree(place / "tree")
    return found


@pytest.fixture(scope="module", params=VERSIONS)
def clean(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    venv = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([interpreter(request.param), "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-compile", str(wheel)], check=True)
    return Clean(venv / "bin/python")


def test_everything_works(clean: Clean, place: Place) -> None:
    def vade(*words: str) -> str:
        return clean.says(place, *words)

    assert vade("--version") == "vade 0.1.0\n"
    assert vade("new", "mine").startswith("Made .agent/skills/mine/SKILL.md")
    assert vade("list").splitlines()[-1] == "4 skills"
    assert vade("search", "compare two files").split()[0] == "file-diff"
    assert vade("validate", ".agent/skills").startswith(f"✓ {place.cwd}/.agent/skills/mine\n  warning ")
    vade("pack", ".agent/skills/mine", "-o", "mine.zip")
    shutil.rmtree(place.cwd / ".agent/skills/mine")
    vade("install", "mine.zip")
    assert json.loads(vade("inspect", "mine", "--json"))["source"] == "project"
    (place.cwd / "a.txt").write_text("apples\n")
    (place.cwd / "b.txt").write_text("pears\n")
    assert "-apples\n+pears" in vade("run", "--yes", "Compare a.txt with b.txt")
    assert vade("runs", "replay")
    assert "11 of 11" in vade("eval", "run", "file-diff", "--yes")
    (place.cwd / "data.csv").write_text("a,b\n1,2\n")
    assert "2 columns" in vade("exec", "--yes", "csv-summary", "summarise.py", "data.csv")
    (place.cwd / ".agent/config.json").write_text('{"lenient": true}')
    assert "Nothing was left out." in vade("doctor")


def test_no_extra_is_there_and_one_that_is_needed_is_named(clean: Clean, place: Place) -> None:
    names = clean.run(place, clean.python, "-c", INSTALLED).stdout.split()
    assert "vademecum" in names
    assert {canonicalize_name(name) for name in names} & of_extras() == set()
    done = clean.run(place, clean.vade, "run", "--model", "openai:gpt-4o-mini", "Hello")
    assert (done.returncode, "pip install 'vademecum[openai]'" in done.stderr) == (2, True)


def test_its_own_tests_pass_there(clean: Clean) -> None:
    """Every command and every program that the documentation shows, the examples and the built-in scripts."""
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2"]
    env = os.environ | {"VADE_UNDER_TEST": str(clean.vade)}
    done = subprocess.run(
        [*words, *NEED_EXTRAS, *OWN_TESTS],
        cwd=TOP,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("clean", VERSIONS[:1], indirect=True)
def test_programs_that_use_it_are_typed(clean: Clean, place: Place, tmp_path: Path) -> None:
    programs = [*(TOP / "examples").glob("*.py"), TOP / "tests/e2e/user_program.py"]
    for number, block in enumerate(python_blocks("README.md") + python_blocks("docs/for-agents.md")):
        (tmp_path / f"block_{number}.py").write_text(block)
        programs.append(tmp_path / f"block_{number}.py")
    assert len(programs) >= 5
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(
        [*words, "--python-executable", str(clean.python), *map(str, programs)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert clean.run(place, clean.python, TOP / "tests/e2e/user_program.py").returncode == 0
