"""What one bad entry does to three good skills: `python -m bench.awkward [--peers PYTHON]`.

Each tree holds three good skills and one awkward entry. A library that loads the three is "ok", one that
loads none because of the fourth has "lost" them, one that does not answer within the time "hangs".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.index import PEERS, RUN_PEER
from bench.measure import print_table

SECONDS = 20
GOOD = "---\nname: {0}\ndescription: What {0} does.\n---\n# Body\n"
HEAD = "---\nname: bad\ndescription: x\n"
BOMB = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))

OURS = """
from vademecum import IndexOptions, build_index
def names(root):
    return [skill.name for skill in build_index([root], IndexOptions())]
"""


def text(content: str | bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


CASES: dict[str, Callable[[Path], None]] = {
    "no frontmatter": text("# Title\n"),
    "empty file": text(""),
    "not closed": text(HEAD),
    "a colon in the description": text("---\nname: bad\ndescription: Use when: asked\n---\n"),
    "a list instead of fields": text("---\n- a\n---\n"),
    "description is a number": text("---\nname: bad\ndescription: 1.5\n---\n"),
    "allowed-tools as the specification has it": text(f"{HEAD}allowed-tools: Bash(git:*) Read\n---\n"),
    "nested metadata": text(f"{HEAD}metadata: {{a: {{b: c}}}}\n---\n"),
    "not UTF-8": text("---\nname: bad\ndescription: é\n---\n".encode("latin-1")),
    "UTF-16": text("---\nname: bad\ndescription: x\n---\n".encode("utf-16")),
    "NUL bytes": text(b"---\nname: bad\ndescription: a\0b\n---\n"),
    "alias bomb": text(f"{HEAD}a0: &a0 x\n{BOMB}---\n"),
    "10,000 levels deep": text("---\nx: " + "[" * 10_000 + "\n---\n"),
    "directory called SKILL.md": lambda path: path.mkdir(),
    "FIFO called SKILL.md": os.mkfifo,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to("SKILL.md"),
}


def tree(root: Path, make: Callable[[Path], None]) -> None:
    for name in ("alpha", "beta", "omega"):
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(GOOD.format(name))
    (root / "bad").mkdir()
    make(root / "bad" / "SKILL.md")


def outcome(python: str, load: str, root: Path) -> str:
    words = [python, "-c", load + RUN_PEER, str(root)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode != 0:
        return "lost"
    found = json.loads(done.stdout.splitlines()[-1])["names"]
    good = len({"alpha", "beta", "omega"} & set(found))
    return "ok" if good == 3 else f"{good} of 3"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the other libraries")
    options = parser.parse_args()
    libraries = {"vademecum": (sys.executable, OURS)}
    if options.peers:
        libraries |= {peer: (options.peers, load) for peer, load in PEERS.items()}
    rows = []
    with tempfile.TemporaryDirectory(prefix="vade-awkward-") as name:
        for number, (case, make) in enumerate(CASES.items()):
            root = Path(name) / str(number)
            tree(root, make)
            rows.append([case, *(outcome(python, load, root) for python, load in libraries.values())])
    survived = ["all three loaded"]
    survived += [
        f"{sum(row[n] == 'ok' for row in rows)} of {len(rows)}" for n in range(1, len(libraries) + 1)
    ]
    print_table("Three good skills beside one awkward entry", ["", *libraries], [*rows, survived])


if __name__ == "__main__":
    main()
