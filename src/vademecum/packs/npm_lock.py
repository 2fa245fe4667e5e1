"""``skills-lock.json``, the lock of the npm tool ``skills``: kept in step where a project has one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vademecum.errors import FileRefused, IntegrityFailed
from vademecum.files import read_capped
from vademecum.packs.content import files_of
from vademecum.packs.lock import Locked
from vademecum.packs.sources import GITHUB

NPM_LOCK = "skills-lock.json"
MAX_BYTES = 16 * 1024 * 1024

# How that tool sorts paths: punctuation, digits, letters; capitals count only where all else is equal.
_ORDER = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_WEIGHTS = {char: number for number, char in enumerate(_ORDER)}


def npm_lock_path(root: Path) -> Path:
    """Where the file lies: at the top of the project that a root belongs to."""
    return root.parent.parent / NPM_LOCK


def npm_lock_text(
    path: Path, new: Mapping[str, tuple[Locked, Path]], *, removed: Collection[str] = ()
) -> str:
    """The file with these skills in it, each with the directory it is read from; all else stays as it is."""
    document = _read(path)
    skills = {name: entry for name, entry in document["skills"].items() if name not in removed}
    for name, (locked, place) in new.items():
        digest = folder_hash(place)
        before = skills.get(name, {})
        if before.get("computedHash") != digest:
            # What has no source of its own keeps the one that the other tool knows.
            source = before if locked.is_kept_here and before else _source(locked, name)
            skills[name] = {**source, "computedHash": digest}
    document["skills"] = dict(sorted(skills.items()))
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_capped(path, cap=MAX_BYTES))
        sound = found["version"] == 1 and all(isinstance(one, dict) for one in found["skills"].values())
        if not sound:
            raise ValueError("it has another version")  # noqa: TRY301 - told like any other fault
    except FileNotFoundError:
        return {"version": 1, "skills": {}}
    except (OSError, FileRefused, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityFailed(
            f"{path} cannot be read ({error}): correct it, or remove it to do without."
        ) from error
    document: dict[str, Any] = found
    return document


def _source(locked: Locked, name: str) -> dict[str, Any]:
    if locked.is_kept_here:
        return {"source": f"./.agent/skills/{name}", "sourceType": "local"}
    source, _, _ = locked.source.partition("#")
    start, at, ref = source.rpartition("@")
    if not at or "/" not in start.partition("://")[2 if "://" in start else 0]:
        start, ref = source, ""
    on_github = start.removeprefix(f"git+{GITHUB}/")
    return {
        "source": on_github.removeprefix("git+"),
        **({"ref": ref} if ref else {}),
        "sourceType": "github" if on_github != start else _kind(start),
    }


def _kind(source: str) -> str:
    if source.startswith("git+"):
        return "git"
    if source.startswith(("http://", "https://")):
        return "well-known" if source.endswith("/") else "url"
    return "local"


def folder_hash(place: Path) -> str:
    """The digest that the npm tool computes of a skill's directory."""
    whole = hashlib.sha256()
    for path in sorted((file.path for file in files_of(place)), key=_collated):
        whole.update(path.encode())
        whole.update((place / path).read_bytes())
    return whole.hexdigest()


def _collated(path: str) -> tuple[list[tuple[int, str]], list[bool]]:
    """Sorts as a browser's language-aware comparison does, for the names that skills have."""
    letters = [(_WEIGHTS.get(char.lower(), len(_ORDER)), char.lower()) for char in path]
    return letters, [char.isupper() for char in path]
