"""Real skills as a library on disk, and the requests for them as a trigger set.

The data are in the directory that VADE_SHARED_DATA names, else in `../shared/data`, else the sample that
comes with the repository (`bench/sample`: 160 skills).
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE = Path(__file__).parent / "sample"
_LARGE = Path("../shared/data")
DATA = Path(os.environ.get("VADE_SHARED_DATA", _LARGE if _LARGE.is_dir() else SAMPLE)) / "search"


def skills(data: Path = DATA) -> list[dict[str, Any]]:
    with gzip.open(data / "skills.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def queries(file: str = "queries.jsonl", data: Path = DATA) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / file).read_text("utf-8").splitlines()]


class Installable(NamedTuple):
    """A real skill as it can be installed: a name of its own, a description as the specification has it."""

    id: str
    name: str
    description: str
    body: str


def library(data: Path = DATA) -> list[Installable]:
    """All real skills; of namesakes the second and later ones are numbered."""
    seen: Counter[str] = Counter()
    found = []
    for skill in skills(data):
        plain = re.sub(r"[^a-z0-9]+", "-", skill["name"].lower()).strip("-")[:58].strip("-") or "skill"
        seen[plain] += 1
        name = plain if seen[plain] == 1 else f"{plain}-{seen[plain]}"
        found.append(Installable(skill["id"], name, _described(skill["description"]), skill["body"]))
    return found


def write_library(root: Path, data: Path = DATA) -> dict[str, str]:
    """Write all skills below a root; gives their names by their ids."""
    found = library(data)
    for skill in found:
        place = root / skill.name
        place.mkdir(parents=True)
        description = json.dumps(skill.description, ensure_ascii=False)
        head = f"---\nname: {skill.name}\ndescription: {description}\n---\n"
        (place / "SKILL.md").write_text(head + skill.body, "utf-8")
    return {skill.id: skill.name for skill in found}


def _described(text: str) -> str:
    """As much of a description as the specification allows, without what it does not."""
    return re.sub(r"[<>\x7f-\x9f]", " ", text)[:1024].strip() or "x"


def trigger_set(names: dict[str, str]) -> list[dict[str, Any]]:
    """The requests, each with the skill that answers it."""
    return [
        {"query": query["query"], "should_trigger": True, "skill": names[query["gold"][0]]}
        for query in queries()
    ]
