"""A skill: a valid document, and where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.skill.model import MANIFEST, Controls, Document, Meta, Problem


class Skill(Struct, frozen=True, gc=False):
    """A usable skill: its metadata, and where its directory is. The body stays on disk.

    >>> from vademecum.skill.model import Document
    >>> document = Document("pdf", "Fill in PDF forms.")
    >>> skill = Skill(document, source="user", root="/skills", directory="acme/pdf")
    >>> skill.skill_id, skill.reference, str(skill.path)
    ('user:pdf', 'acme/pdf', '/skills/acme/pdf')
    """

    document: Document
    source: str
    root: str
    directory: str
    file: str = MANIFEST
    # Another number whenever the file changed; 0 where that cannot be told yet.
    stamp: int = 0

    @property
    def name(self) -> str:
        """The name, unique in an index."""
        return self.document.name

    @property
    def description(self) -> str:
        """What the skill does and when to use it, as a model reads it."""
        return self.document.description

    @property
    def controls(self) -> Controls:
        """What the author asks of whoever runs the skill."""
        return self.document.controls

    @property
    def meta(self) -> Meta:
        """What the author says about the skill."""
        return self.document.meta

    @property
    def extra(self) -> dict[str, str | tuple[str, ...]]:
        """Fields that are not read here, kept for whoever knows them."""
        return self.document.extra

    @property
    def diagnostics(self) -> tuple[Problem, ...]:
        """What is wrong with the document without keeping it from being used."""
        return self.document.problems

    @property
    def skill_id(self) -> str:
        """Source, name and version in one text, e.g. ``project:file-diff@1.0.0``."""
        version = f"@{self.meta.version}" if self.meta.version else ""
        return f"{self.source}:{self.name}{version}"

    @property
    def namespace(self) -> str:
        """The groups between the root and the skill's directory, ``""`` where there is none."""
        return self.directory.rpartition("/")[0]

    @property
    def reference(self) -> str:
        """The name with its namespace, e.g. ``acme/pdf``: it picks this skill among namesakes."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def location(self) -> str:
        """The absolute path of the skill's directory, as text."""
        return self.root if self.directory == "." else f"{self.root}/{self.directory}"

    @property
    def path(self) -> Path:
        """The absolute path of the skill's directory."""
        return Path(self.location)

    def to_json(self) -> dict[str, Any]:
        """The skill as every command prints it."""
        return {
            "skill_id": self.skill_id,
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "path": self.location,
            "controls": self.controls.to_json(),
            "meta": self.meta.to_json(),
            "diagnostics": [problem.to_json() for problem in self.diagnostics],
        }
