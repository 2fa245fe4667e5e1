"""A hook of the site: pages that the navigation does not name are added to the part they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PARTS = {
    "how-to": "How-to",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
_OTHERS = "Guides"


def on_config(config: Any) -> Any:
    """Add what is missing, in the order of the file names."""
    top = Path(config["docs_dir"])
    listed = set(_listed(config["nav"]))
    parts = {
        title: pages for entry in config["nav"] if isinstance(entry, dict) for title, pages in entry.items()
    }
    for page in sorted(top.rglob("*.md")):
        name = page.relative_to(top).as_posix()
        if name not in listed and not name.endswith(".zh.md"):
            parts[_PARTS.get(name.partition("/")[0], _OTHERS)].append(name)
    return config


def _listed(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for pages in entry.values():
                found += _listed(pages)
    return found
