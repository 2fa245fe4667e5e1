"""Hooks of the site: complete the navigation, and give each language a search index of its own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

_PARTS = {
    "how-to": "How-to",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
_OTHERS = "Guides"
_OTHER_LANGUAGES = ("zh",)
_BASE = re.compile(r'"base": ?"[./]*"')


def on_config(config: Any) -> Any:
    """Add pages that the navigation does not name to the section of their directory."""
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


def on_post_build(config: Any) -> None:
    """Split the search index by language, and point the pages of each language to theirs."""
    site = Path(config["site_dir"])
    file = site / "search" / "search_index.json"
    if not file.exists():
        return
    index = json.loads(file.read_text("utf-8"))
    for language in _OTHER_LANGUAGES:
        start = f"{language}/"
        theirs = [page for page in index["docs"] if page["location"].startswith(start)]
        if not theirs:
            continue
        index["docs"] = [page for page in index["docs"] if not page["location"].startswith(start)]
        moved = [{**page, "location": page["location"].removeprefix(start)} for page in theirs]
        (site / language / "search").mkdir(exist_ok=True)
        _write(site / language / "search" / "search_index.json", {**index, "docs": moved})
        for page in (site / language).rglob("*.html"):
            # The theme looks for the index, and resolves its results, below this directory.
            base = os.path.relpath(site / language, page.parent)
            page.write_text(_BASE.sub(f'"base": "{base}"', page.read_text("utf-8"), count=1), "utf-8")
    _write(file, index)


# After the search plugin, which writes one index for all languages.
on_post_build.mkdocs_priority = -100  # type: ignore[attr-defined]


def _write(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _listed(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for pages in entry.values():
                found += _listed(pages)
    return found
