"""The interface of a source of skills other than a directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from vademecum.registry.roots import Root
from vademecum.skill.skill import Problem

# The largest skill that hosts must accept.
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024

Fetch = Callable[[], None]


class ProvidedFile(Struct, frozen=True):
    """One file of a skill as announced by its source: address, path, SHA-256 and size in bytes."""

    uri: str
    path: str
    sha256: str
    size: int


class ProvidedSkill(Struct, frozen=True):
    """A skill as announced by its source: its address there, its frontmatter, and all its files."""

    uri: str
    frontmatter: dict[str, Any]
    files: tuple[ProvidedFile, ...]

    @property
    def name(self) -> str:
        """The name of the skill."""
        return str(self.frontmatter["name"])

    @property
    def digest(self) -> str:
        """A digest of all files, which changes if any of them changes."""
        lines = (f"{file.path}\0{file.sha256}\n" for file in sorted(self.files, key=lambda file: file.path))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


class Provider(Protocol):
    """A source of skills.

    ``listing`` returns the source's last announcement without asking again. ``read`` fetches the files of one
    skill, which the caller verifies. ``root`` is the directory that keeps the files, and names the source.
    """

    @property
    def root(self) -> Root:
        """The directory that keeps verified files, and the source of the skills."""
        ...

    def listing(self) -> tuple[tuple[ProvidedSkill, ...], tuple[Problem, ...], os.stat_result]:
        """Return the skills, what was left out, and when the source was asked."""
        ...

    def read(self, skill: ProvidedSkill) -> Iterator[tuple[ProvidedFile, bytes]]:
        """Yield the files of a skill, one at a time."""
        ...
