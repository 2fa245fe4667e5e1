"""Publish a skill to other programs: its frontmatter as JSON, and every file with digest and size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vademecum.errors import FileRefused, LoadRefused, VademecumError
from vademecum.paths import read_contained
from vademecum.policy.base import Decider, Effect, Request
from vademecum.registry.base import MAX_BYTES, MAX_FILES
from vademecum.registry.cache import trusted
from vademecum.registry.scan import Signature, signature_of
from vademecum.skill.assets import files_below, is_passed_over
from vademecum.skill.frontmatter import read_manifest
from vademecum.skill.names import is_plain
from vademecum.skill.skill import MANIFEST, Skill

MAX_KNOWN = 100_000

# The paths of a skill's files with their signatures.
_Tree = tuple[tuple[str, Signature], ...]


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file of a skill: its relative path, ``sha256:`` and the digest of its bytes, and its size."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class PublishedSkill:
    """A skill with all fields of its frontmatter and all its readable files."""

    name: str
    frontmatter: dict[str, Any]
    files: tuple[PublishedFile, ...]


class Publications:
    """Publishes skills, and caches each until one of its files changes. Threads can share it."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[Decider, _Tree, PublishedSkill]] = {}

    def publish(self, skill: Skill, policy: Decider, *, agent: str) -> PublishedSkill:
        """Return a skill with the files that an agent may read without asking.

        Raise ``LoadRefused`` if the skill does not fit the rules for exchanging skills.
        """
        tree = _tree(skill)
        key = agent, skill.location
        before = self._known.get(key)
        if before is not None and before[0] is policy and before[1] == tree:
            return before[2]
        found = _published(skill, tree, readable(policy, skill, agent=agent))
        now = self._clock()
        if all(trusted(signature, now_ns=now) == signature for _, signature in tree):
            with self._lock:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = policy, tree, found
        return found


def _published(skill: Skill, tree: _Tree, may_read: Callable[[str], bool]) -> PublishedSkill:
    """Return a skill with its readable files."""
    if skill.source.startswith("mcp:"):
        raise _unfit(skill, f"comes from {skill.source}, which announces it itself")
    if not may_read(MANIFEST):
        raise _unfit(skill, "needs an approval to be read")
    seen = [entry for entry in tree if may_read(entry[0])]
    if len(seen) > MAX_FILES or sum(signature[2] for _, signature in seen) > MAX_BYTES:
        raise _unfit(skill, f"has more than {MAX_FILES} files or {MAX_BYTES:,} bytes")
    from vademecum.skill.yaml_subset import frontmatter_values  # noqa: PLC0415 - the YAML parser

    files = []
    try:
        fields = frontmatter_values(read_manifest(skill, cap=MAX_BYTES))
        for path, _ in seen:
            data = read_bytes(skill, path)
            files.append(PublishedFile(path, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)))
    except (OSError, VademecumError) as error:
        raise _unfit(skill, f"cannot be read ({error})") from error
    if fields.get("name") != skill.name or not is_plain(skill.name):
        raise _unfit(skill, "has a name that is not of lowercase ASCII letters, digits and hyphens")
    if not isinstance(fields.get("description"), str) or not fields["description"]:
        raise _unfit(skill, "has a description that is not a text")
    return PublishedSkill(skill.name, fields, tuple(files))


def readable(policy: Decider, skill: Skill, *, agent: str) -> Callable[[str], bool]:
    """Return a function that says whether an agent may read a file of a skill without asking.

    By default, reading keys and passwords needs approval, so they are not readable. If the file is a link,
    its target must be readable too.
    """

    def allows(permission: str, resource: str, most: Effect = Effect.ALLOW) -> bool:
        request = Request(permission, (resource,), "model", agent, skill.name)
        return policy.decide(request).effect <= most

    def may_read(path: str) -> bool:
        if path == MANIFEST:
            return allows("skill", skill.name)
        real = os.path.realpath(f"{skill.location}/{path}")
        return all(
            allows("resource", f"{skill.name}/{each}")
            and allows("read", each)
            and (not each.startswith("scripts/") or allows("script", f"{skill.name}/{each}", Effect.ASK))
            for each in {path, os.path.relpath(real, os.path.realpath(skill.location))}
        )

    return may_read


def read_bytes(skill: Skill, path: str) -> bytes:
    """Return the bytes of one file of a skill; ``SKILL.md`` is its document, in any case."""
    if path == MANIFEST:
        data = read_manifest(skill, cap=MAX_BYTES + 1)
    else:
        if any(map(is_passed_over, path.split("/"))) or path == skill.file:
            raise FileNotFoundError(path)
        data = read_contained(skill.location, path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FileRefused(f"{path!r} is larger than {MAX_BYTES:,} bytes.", code="too-large")
    return data


def _tree(skill: Skill) -> _Tree:
    """Return the plain files of a skill, its document, and links to files inside it."""
    found = [path for path in islice(files_below(skill.location, "."), MAX_FILES + 2) if path != skill.file]
    tree = []
    for path, place in [(MANIFEST, skill.file), *((path, path) for path in found)]:
        with contextlib.suppress(OSError):
            tree.append((path, signature_of(os.stat(f"{skill.location}/{place}"))))
    return tuple(sorted(tree))


def _unfit(skill: Skill, reason: str) -> LoadRefused:
    return LoadRefused(f"The skill {skill.name!r} {reason}.", code="not-publishable")
