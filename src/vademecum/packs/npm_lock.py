"""Read and update ``skills-lock.json``, the lock of the npm tool ``skills``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vademecum.errors import IntegrityFailed
from vademecum.packs.content import files_of
from vademecum.packs.lock import LOCAL, Locked, is_skill_path, read_json
from vademecum.packs.sources.references import GITHUB, git_source

NPM_LOCK = "skills-lock.json"
OURS = "vademecum"  # the kind of a source that the tool does not know

_LEFT_OUT = frozenset({".git", "node_modules"})
# How that tool sorts paths: punctuation, digits, letters; capitals decide only between equal paths.
_ORDER = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
# Where it looks in a repository first; it searches all of it only if it finds nothing there.
_SEARCHED = re.compile(r"(\.[\w-]+/)?skills(/[^/]+){0,2}")
_WEIGHTS = {char: number for number, char in enumerate(_ORDER)}


def npm_lock_path(root: Path) -> Path:
    """Return the path of the file, at the top of the project that a root belongs to."""
    return root.parent.parent / NPM_LOCK


def read_npm_lock(root: Path) -> dict[str, tuple[str, str]]:
    """Return for each skill of that lock its source in vade's notation, and the digest of its folder."""
    path = npm_lock_path(root)
    found = {}
    for name, entry in _read(path)["skills"].items():
        if not is_skill_path(name) or not isinstance(entry.get("computedHash"), str):
            raise IntegrityFailed(f"{path} has an entry {name[:100]!r} that is not valid: restore the file.")
        found[name] = _reference(entry), entry["computedHash"]
    return found


def npm_lock_text(
    path: Path, new: Mapping[str, tuple[Locked, Path]], *, removed: Collection[str] = ()
) -> str:
    """Return the file with these skills, each with the directory it is read from; keep everything else."""
    document = _read(path)
    skills = {name: entry for name, entry in document["skills"].items() if name not in removed}
    for name, (locked, place) in new.items():
        digest = folder_hash(place)
        before = skills.get(name, {})
        if before.get("computedHash") != digest:
            # A skill without a source keeps the one that the other tool knows.
            source = before if locked.source == LOCAL and before else _entry(locked, name)
            skills[name] = {**source, "computedHash": digest}
    document["skills"] = dict(sorted(skills.items()))
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def not_for_npm(skills: Mapping[str, Locked]) -> dict[str, str]:
    """Return the skills that the npm tool cannot restore, and why; it stops at the first of them."""
    found = {name: _obstacle(name, locked) for name, locked in sorted(skills.items())}
    return {name: why for name, why in found.items() if why}


def _obstacle(name: str, locked: Locked) -> str:
    """Return why the npm tool cannot restore a skill: it accepts repositories, sites and directories."""
    entry, directory = _entry(locked, name), locked.source.partition("#")[2]
    kind, source, ref = entry["sourceType"], entry["source"], entry.get("ref", "")
    never = f"comes from {locked.source}, which npm's skills cannot restore"
    if "/" in name:
        return "is in a group, which npm's skills cannot restore"
    # It clones a branch or a tag, never a commit.
    if kind == OURS or (ref and locked.resolved.startswith(ref)):
        return never
    if kind != "git":
        return ""
    known = source.endswith(".git") or urlsplit(source).hostname == "gitlab.com"
    of_web = source.startswith(("http://", "https://"))
    # It treats other addresses as sites, and reads a ref only in addresses of repositories.
    if (not known and (of_web or ref)) or (ref and source.startswith("file:")):
        return never
    if directory in {"", name} or _SEARCHED.fullmatch(directory):
        return ""
    return f"comes from {locked.source}, where npm's skills may not find it"


def _read(path: Path) -> dict[str, Any]:
    advice = "correct it, or delete it"
    found = read_json(path, dict[str, Any], advice=advice) or {"version": 1, "skills": {}}
    skills = found.get("skills")
    entries = skills.values() if found.get("version") == 1 and isinstance(skills, dict) else [None]
    if not all(isinstance(entry, dict) for entry in entries):
        raise IntegrityFailed(f"{path} is not a lock of version 1: {advice}.")
    return found


def _reference(entry: dict[str, Any]) -> str:
    """Return an entry's source in the notation of ``vade install``."""
    kind, source = str(entry.get("sourceType", "")), str(entry.get("sourceUrl") or entry.get("source", ""))
    ref = f"@{entry['ref']}" if entry.get("ref") else ""
    directory = str(entry.get("skillPath") or "").rpartition("/")[0]
    below = f"#{directory}" if directory else ""
    if kind == "github" and "://" not in source:
        return f"git+{GITHUB}/{source}{ref}{below}"
    if kind in {"github", "gitlab", "git"}:
        return f"git+{source}{ref}{below}"
    if kind == "well-known":
        source = source if "://" in source else f"https://{source}"  # that tool stores the host alone
        return source if source.endswith("/") else f"{source}/"
    return source


def _entry(locked: Locked, name: str) -> dict[str, Any]:
    if locked.source == LOCAL:
        return {"source": f"./.agent/skills/{name}", "sourceType": "local"}
    if locked.source.startswith("git+"):
        git = git_source(locked.source)
        ref = {"ref": git.ref} if git.ref else {}
        if not git.url.startswith(f"{GITHUB}/"):
            return {"source": git.url, "sourceUrl": git.url, **ref, "sourceType": "git"}
        path = {"skillPath": f"{git.directory}/SKILL.md"} if git.directory else {}
        repo = git.url.removeprefix(f"{GITHUB}/").removesuffix(".git")
        return {"source": repo, **ref, "sourceType": "github", **path}
    source = locked.source.partition("#")[0]
    if source.startswith(("http://", "https://")) and source.endswith(("/", "/index.json")):
        digest = {"wellKnownDigest": locked.resolved} if locked.url else {}
        host = urlsplit(source).netloc
        return {"source": host, "sourceUrl": source, "sourceType": "well-known", **digest}
    is_directory = not locked.resolved.startswith("sha256:") or locked.resolved == locked.digest
    local = is_directory and source.startswith(("./", "/"))
    return {"source": locked.source, "sourceType": "local" if local else OURS}


def folder_hash(place: Path) -> str:
    """Return the digest that the npm tool computes for a skill's directory."""
    paths = [file.path for file in files_of(place, every=True)]
    return hash_of_contents((path, (place / path).read_bytes()) for path in paths)


def hash_of_contents(contents: Iterable[tuple[str, bytes]]) -> str:
    """Return that digest for files with their contents."""
    whole = hashlib.sha256()
    for path, data in sorted(contents, key=lambda found: _collated(found[0])):
        if _LEFT_OUT.isdisjoint(path.split("/")[:-1]):
            whole.update(path.encode() + data)
    return whole.hexdigest()


def _collated(path: str) -> tuple[list[tuple[int, str]], list[bool]]:
    """Return a key that sorts as a browser's language-aware comparison does, for usual names."""
    letters = [(_WEIGHTS.get(char.lower(), len(_ORDER)), char.lower()) for char in path]
    return letters, [char.isupper() for char in path]
