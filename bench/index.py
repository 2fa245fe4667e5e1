"""How long it takes to know all skills: `python -m bench.index [--skills N] [--largest N] [--peers PYTHON]`.

The baseline "floor" is `os.scandir` over the tree and reading the first 4 KiB of each SKILL.md, one thread,
page cache warm. Everything else is a ratio to it, measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.measure import best, in_process, print_table, whole_process
from bench.trees import plain_tree, real_tree
from vademecum import BUILTIN_ROOT

DATA = Path(os.environ.get("VADE_SHARED_DATA", "../shared/data"))

BUILD = """
import json, sys, time
from pathlib import Path
from vademecum import IndexOptions, build_index
options = IndexOptions(cache=Path(sys.argv[2]))
build_index                                   # imported before the clock starts; YAML is not
started = time.perf_counter()
index = build_index([sys.argv[1]], options)
skills, report, digest = index.skills, index.report, index.hash
print(json.dumps({"seconds": time.perf_counter() - started, "skills": len(skills), "read": report.read}))
"""
MEMORY = """
import gc, json, sys, tracemalloc
from vademecum import IndexOptions, build_index
build_index([sys.argv[2]], IndexOptions())    # everything that is imported once is imported now
tracemalloc.start()
index = build_index([sys.argv[1]], IndexOptions())
gc.collect()
print(json.dumps(tracemalloc.get_traced_memory()[0] / len(index.skills)))
"""
# How each library answers "which skills are there", in its own words.
PEERS = {
    "skills-ref": """
import re
from skills_ref import to_prompt
def names(root):
    return re.findall(r"<name>\\n(.*)\\n</name>", to_prompt(sorted(root.iterdir())))
""",
    "pydantic-ai-skills": """
from pydantic_ai_skills import SkillsCapability
def names(root):
    return SkillsCapability(root).skill_names
""",
    "deepagents": """
from deepagents.backends.filesystem import FilesystemBackend
from deepagents.middleware.skills import _list_skills
def names(root):
    return [skill["name"] for skill in _list_skills(FilesystemBackend("/", virtual_mode=False), f"{root}/")]
""",
}
RUN_PEER = """
import json, logging, sys, time, warnings
from pathlib import Path
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
started = time.perf_counter()
found = names(Path(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - started, "names": sorted(found)}))
"""


def floor(root: Path) -> int:
    """The least that finding skills can cost."""
    found = 0
    for directory in os.scandir(root):
        for entry in os.scandir(directory.path):
            if entry.name == "SKILL.md":
                descriptor = os.open(entry.path, os.O_RDONLY)
                os.read(descriptor, 4096)
                os.close(descriptor)
                found += 1
    return found


@dataclass
class Bench:
    """One tree with its cache."""

    root: Path
    cache: Path

    def floor(self) -> float:
        return best(lambda: floor(self.root), 5)

    def cold(self) -> float:
        shutil.rmtree(self.cache, ignore_errors=True)
        return self._build()

    def warm(self) -> float:
        return self._build(expected_read=0)

    def one_changed(self) -> float:
        changed = next(iter(sorted(self.root.iterdir()))) / "SKILL.md"
        changed.write_text(changed.read_text("utf-8") + "\nOne more line.\n", "utf-8")
        time.sleep(2.1)  # past the clock's resolution, so that the next run finds the cache whole
        return self._build(expected_read=1)

    def _build(self, expected_read: int | None = None) -> float:
        result = in_process(BUILD, str(self.root), str(self.cache))
        assert expected_read is None or result["read"] == expected_read, result
        return float(result["seconds"])


def compare(bench: Bench, title: str, peers: str | None, *, most_cold: str) -> None:
    """The main table: cold, warm and one change at one size."""
    base = bench.floor()
    cold = min(bench.cold() for _ in range(5))
    time.sleep(2.1)
    bench.cold()
    warm = min(bench.warm() for _ in range(5))
    changed = min(bench.one_changed() for _ in range(3))
    base = min(base, bench.floor())
    rows = [
        row("floor: scandir and 4 KiB of each", base, base, ""),
        row("cold: no cache", cold, base, most_cold),
        row("warm: cache, nothing changed", warm, base, "0.8"),
        row("one file changed", changed, base, "1.05"),
    ]
    for name, load in PEERS.items() if peers else ():
        result = in_process(load + RUN_PEER, str(bench.root), python=str(peers))
        rows.append(row(f"{name} ({len(result['names']):,} loaded)", result["seconds"], base, ""))
    print_table(title, ["", "ms", "x floor", "at most"], rows)


def row(name: str, seconds: float, base: float, limit: str) -> list[str]:
    return [name, f"{seconds * 1000:,.1f}", f"{seconds / base:.2f}", limit]


def growth(directory: Path, sizes: list[int]) -> None:
    """Time and memory for each skill as their number grows."""
    rows = []
    for size in sizes:
        bench = Bench(directory / f"grow-{size}", directory / f"cache-{size}")
        plain_tree(bench.root, size)
        time.sleep(2.1)
        base = bench.floor()
        cold = min(bench.cold() for _ in range(2))
        warm = min(bench.warm() for _ in range(3))
        memory = in_process(MEMORY, str(bench.root), str(BUILTIN_ROOT))
        each = [f"{seconds / size * 1e6:,.1f}" for seconds in (base, cold, warm)]
        rows.append([f"{size:,}", *each, f"{cold / base:.2f}", f"{warm / base:.2f}", f"{memory:,.0f}"])
        shutil.rmtree(bench.root)
    columns = ["skills", "floor us", "cold us", "warm us", "cold x", "warm x", "bytes"]
    print_table("For each skill, as their number grows (memory at most 2,048 bytes)", columns, rows)


def start_up() -> None:
    """What starting costs beyond a bare interpreter."""
    vade = str(Path(sys.executable).with_name("vade"))
    bare = best(whole_process(sys.executable, "-c", "pass"), 15)
    commands = {
        "import vademecum": [sys.executable, "-c", "import vademecum"],
        "vade --version": [vade, "--version"],
        "vade --help": [vade, "--help"],
        "vade list": [vade, "list"],
        "vade show": [vade, "show", "file-diff"],
        "vade search": [vade, "search", "compare two files"],
    }
    limits = {"vade list": "90", "vade show": "80", "vade search": "100"}
    rows = [["bare interpreter", f"{bare * 1000:.1f}", "", ""]]
    for name, words in commands.items():
        seconds = best(whole_process(*words), 15)
        beyond = f"{(seconds - bare) * 1000:.1f}"
        rows.append([name, f"{seconds * 1000:.1f}", beyond, limits.get(name, "60")])
    print_table("Starting", ["", "ms", "beyond bare", "at most"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the other libraries")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {sys.platform}")
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as name:
        directory = Path(name)
        start_up()
        plain_tree(directory / "plain", options.skills)
        bench = Bench(directory / "plain", directory / "cache")
        compare(bench, f"{options.skills:,} plain skills", options.peers, most_cold="3.0")
        if (DATA / "frontmatter").is_dir():
            real_tree(directory / "real", options.skills, DATA)
            compare(
                Bench(directory / "real", directory / "cache"),
                f"{options.skills:,} skills with real frontmatter",
                None,
                most_cold="5",
            )
        growth(directory, [size for size in (100, 1000, 10_000, 100_000) if size <= options.largest])


if __name__ == "__main__":
    main()
