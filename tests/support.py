"""What the tests share: writing skills, a place of one's own, and running the command as a person does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.forks import forks
from vademecum import Context, IndexOptions, Root, SkillIndex, build_index

DATA = Path(os.environ.get("VADE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
# The command that is tested, and its interpreter: those of this environment, or of one with the wheel in it.
UNDER_TEST = os.environ.get("VADE_UNDER_TEST")
VADE = UNDER_TEST or str(Path(sys.executable).with_name("vade"))
PYTHON = str(Path(UNDER_TEST).with_name("python")) if UNDER_TEST else sys.executable

GOOD = "---\nname: {name}\ndescription: {description}\n---\n# Body\n"


def write_skill(
    root: Path, directory: str, text: str | bytes | None = None, *, name: str | None = None
) -> Path:
    """Write a skill's SKILL.md, a good one unless ``text`` says otherwise, and return its directory."""
    place = root / directory
    place.mkdir(parents=True, exist_ok=True)
    if text is None:
        name = name or directory.rpartition("/")[2]
        text = GOOD.format(name=name, description=f"What {name} does.")
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    (place / "SKILL.md").write_bytes(data)
    return place


def of_extras() -> set[str]:
    """The distributions that only the extras declare, those of developers included."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {
        canonicalize_name(Requirement(each).name) for each in [project["name"], *project["dependencies"]]
    }
    optional = (each for group in project["optional-dependencies"].values() for each in group)
    return {str(canonicalize_name(Requirement(each).name)) for each in optional} - needed


def index_of(root: Path, options: IndexOptions | None = None) -> SkillIndex:
    """The index of one root, without a cache unless ``options`` name one."""
    return build_index([Root(root, "extra")], options or IndexOptions())


def reasons(index: SkillIndex) -> dict[str, str]:
    """What was left out, by path below its root, with the code of the reason."""
    root = str(index.roots[0].path)
    return {os.path.relpath(left_out.path, root): left_out.reason.code for left_out in index.report.ignored}


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


# A command that takes longer hangs; a loaded machine is no reason to fail.
PATIENCE = 300


@dataclass(frozen=True)
class Place:
    """A project and a home of one's own, and the command run in them."""

    cwd: Path
    home: Path

    @property
    def context(self) -> Context:
        return Context(cwd=self.cwd, home=self.home, env={"XDG_CACHE_HOME": str(self.home / "cache")})

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(VADE).parent}:{os.environ['PATH']}",
            "VADE_CACHE_DIR": str(self.home / "cache"),
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
        }

    def vade(self, *words: str, cwd: Path | None = None, **env: str) -> Result:
        around = self.env | env
        if not UNDER_TEST and not any(name.startswith(("PYTHON", "LC_", "LANG")) for name in env):
            return Result(*forks().run(list(words), cwd=str(cwd or self.cwd), env=around, timeout=PATIENCE))
        # Another interpreter, or what an interpreter looks at when it starts, needs one that starts.
        done = subprocess.run(
            [VADE, *words],
            cwd=cwd or self.cwd,
            env=around,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def build(self) -> SkillIndex:
        return build_index(context=self.context)
