"""Real skills as a library on disk, and the requests for them as a trigger set."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from bench.search import queries, skills


def write_library(root: Path) -> dict[str, str]:
    """Write all skills below a root, namesakes numbered; gives their names by their ids."""
    seen: Counter[str] = Counter()
    names = {}
    for skill in skills():
        plain = (
            re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9]+", "-", skill["name"].lower())).strip("-")[:58]
            or "skill"
        )
        seen[plain] += 1
        name = plain if seen[plain] == 1 else f"{plain}-{seen[plain]}"
        place = root / name
        place.mkdir(parents=True)
        description = json.dumps(_described(skill["description"]), ensure_ascii=False)
        (place / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {description}\n---\n{skill['body']}", "utf-8"
        )
        names[skill["id"]] = name
    return names


def _described(text: str) -> str:
    """As much of a description as the specification allows, without what it does not."""
    return re.sub(r"[<>\x7f-\x9f]", " ", text)[:1024].strip() or "x"


def trigger_set(names: dict[str, str]) -> list[dict[str, Any]]:
    """The requests, each with the skill that answers it."""
    return [
        {"query": query["query"], "should_trigger": True, "skill": names[query["gold"][0]]}
        for query in queries()
    ]
