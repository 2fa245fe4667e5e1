"""C6: `vade list` and `vade run` read the head of each document, and of no body, while the catalogue fits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import PYTHON, Place, write_skill
from vademecum.skill.frontmatter import FIRST_READ

# What the kernel counts as read by the process, at its end.
COUNTING = (
    "import sys\nfrom vademecum.cli.main import run\ncode = run(sys.argv[1:])\n"
    "print(open('/proc/self/io').readline().split()[1], file=sys.stderr)\nsys.exit(code)"
)
SKILLS = 100
BODY = "words of a body\n" * 6000


def read_by(place: Place, words: list[str]) -> int:
    done = subprocess.run(
        [PYTHON, "-c", COUNTING, *words],
        cwd=place.cwd,
        env=place.env,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1])


@pytest.mark.parametrize("words", [["list"], ["run", "hello", "--model", "scripted:final.json", "--quiet"]])
def test_only_heads_are_read(place: Place, words: list[str]) -> None:
    if not Path("/proc/self/io").exists():
        pytest.skip("this kernel does not count what a process reads")
    final = {"action": {"type": "final_answer", "payload": {"text": "done"}}}
    (place.cwd / "final.json").write_text(json.dumps([final]))
    root = place.cwd / ".agent/skills"
    read = []
    for body in ("short\n", BODY):
        for number in range(SKILLS):
            document = f"---\nname: skill-{number}\ndescription: Do the thing {number}.\n---\n{body}"
            write_skill(root, f"skill-{number}", document)
        read_by(place, words)  # modules are compiled by now
        for number in range(SKILLS):  # so that none is taken from the cache
            (root / f"skill-{number}/SKILL.md").touch()
        read.append(read_by(place, words))
    assert read[1] - read[0] <= SKILLS * FIRST_READ + 100_000 < SKILLS * len(BODY), read
