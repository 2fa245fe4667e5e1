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
    """The file with these skills in it, each with the directory it is read from; all others stay."""
    skills = {name: entry for name, entry in _read(path).items() if name not in removed}
    skills |= {name: _entry(locked, place) for name, (locked, place) in new.items()}
    document = {"version": 1, "skills": dict(sorted(skills.items()))}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_capped(path, cap=MAX_BYTES))
        skills = found["skills"]
        if found["version"] != 1 or not isinstance(skills, dict):
            raise ValueError("it has another version")  # noqa: TRY301 - told like any other fault
    except FileNotFoundError:
        return {}
    except (OSError, FileRefused, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityFailed(
            f"{path} cannot be read ({error}): correct it, or remove it to do without."
        ) from error
    return skills


def _entry(locked: Locked, place: Path) -> dict[str, Any]:
    source, _, _ = locked.source.partition("#")
    start, at, ref = source.rpartition("@")
    if not at or "/" not in start.partition("://")[2 if "://" in start else 0]:
        start, ref = source, ""
    return {
        "source": start.removeprefix("git+"),
        **({"ref": ref} if ref else {}),
        "sourceType": _kind(start),
        "computedHash": folder_hash(place),
    }


def _kind(source: str) -> str:
    if source.startswith("git+"):
        return "git"
    if source.startswith(("http://", "https://")):
        return "well-known" if source.endswith("/") else "url"
    return "local" if source.startswith((".", "/")) or "/" not in source else "github"


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
