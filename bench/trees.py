"""Trees of skills to measure on: plain ones that every library reads, and ones with real frontmatter."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

WORDS = """
read write merge split compare convert summarise extract review deploy monitor translate
plan chart report table image audio invoice contract test branch release schema query
index cache queue token customer order price calendar mail page form field script server
cluster model data file
""".split()
BODY = "\n# Steps\n\n" + "1. Do one thing after the other, and check each of them.\n" * 50


def plain_tree(root: Path, count: int) -> None:
    """Valid skills with a usual frontmatter, the same ones each time."""
    chance = random.Random(7)
    for number in range(count):
        name = f"{chance.choice(WORDS)}-{chance.choice(WORDS)}-{number:06d}"
        description = " ".join(chance.choices(WORDS, k=24)).capitalize()
        head = f"---\nname: {name}\ndescription: {description}. Use when asked to {chance.choice(WORDS)}.\n"
        head += 'license: Apache-2.0\nmetadata:\n  author: bench\n  version: "1.0"\n---\n'
        _write(root / name, head)


def real_tree(root: Path, count: int, data: Path) -> None:
    """Skills with the frontmatter of real ones, each under a name of its own."""
    lines = (data / "frontmatter" / "real.jsonl").read_text("utf-8").splitlines()
    heads = [row["head"] for row in map(json.loads, lines) if row["yaml"] == "ok"]
    for number in range(count):
        name = f"skill-{number:06d}"
        head = re.sub(r"(?m)^name:.*$", f"name: {name}", heads[number % len(heads)], count=1)
        _write(root / name, head)


def _write(directory: Path, head: str) -> None:
    os.makedirs(directory)
    (directory / "SKILL.md").write_text(head + BODY, "utf-8")
