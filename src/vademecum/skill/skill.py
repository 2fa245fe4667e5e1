"""The values of this package: a document's fields and problems, and the skill.

They are msgspec structs and not dataclasses because the index contains tens of thousands: msgspec decodes
the cache into them several times faster than Python could build them. The cache stores them as arrays: with
field names, the file is larger and decoding takes twice as long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

RunMode = Literal["inline", "subagent"]
Severity = Literal["error", "warning"]

MANIFEST = "SKILL.md"
SPECIFIED_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
OWN_FIELDS = ("version", "author", "disable-model-invocation", "user-invocable", "run-mode")
KNOWN_FIELDS = frozenset(SPECIFIED_FIELDS + OWN_FIELDS)
CONTROL_FIELDS = frozenset({"disable-model-invocation", "user-invocable", "allowed-tools", "run-mode"})


class Printable(Struct, frozen=True, gc=False):
    """A value that commands print as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the value in the form that commands print."""
        return {
            key: [each.to_json() if isinstance(each, Printable) else each for each in value]
            if isinstance(value, tuple)
            else value
            for key, value in structs.asdict(self).items()
        }


class Reading(Struct, frozen=True):
    """Options for reading documents: strict or lenient, with or without angle brackets.

    >>> Reading(lenient=True)
    Reading(lenient=True, block_angle_brackets=True)
    """

    lenient: bool = False
    block_angle_brackets: bool = True


class Problem(Printable, frozen=True, gc=False, array_like=True):
    """One problem of a document: where it is, what is wrong, and what to write instead.

    >>> from vademecum import validate_skill
    >>> [(problem.code, problem.severity) for problem in validate_skill("no/such/skill").problems]
    [('missing-path', 'error')]
    """

    code: str
    severity: Severity
    message: str
    field: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the problem in the form that commands print, with its text last."""
        found = super().to_json()
        found["message"] = found.pop("message")
        return found


class Controls(Printable, frozen=True, gc=False, array_like=True):
    """Limits that the author sets for the skill. If ``allowed_tools`` is none, tools are not limited."""

    disable_model_invocation: bool = False
    user_invocable: bool = True
    allowed_tools: tuple[str, ...] | None = None
    run_mode: RunMode = "inline"


class Meta(Printable, frozen=True, gc=False, array_like=True):
    """Information from the author about the skill.

    ``secrets`` are the names of variables that its scripts need: ``metadata.secrets``, or ``requires.env`` of
    other runtimes. A script gets one only if the user has stored a value for this skill and allows it.
    """

    version: str | None = None
    author: str | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, str] = {}
    secrets: tuple[str, ...] = ()


DEFAULT_CONTROLS = Controls()
EMPTY_META = Meta()


class Document(Struct, frozen=True, gc=False, array_like=True):
    """The content of one frontmatter: its values, its problems, and its digest."""

    name: str = ""
    description: str = ""
    controls: Controls = DEFAULT_CONTROLS
    meta: Meta = EMPTY_META
    extra: dict[str, str | tuple[str, ...]] = {}
    problems: tuple[Problem, ...] = ()
    digest: str = ""
    # The original name, if lenient reading repaired it; it also finds the skill.
    alias: str = ""

    @property
    def valid(self) -> bool:
        """True if no error keeps the skill out of the index."""
        return not self.problems or all(problem.severity != "error" for problem in self.problems)


class Skill(Document, frozen=True, gc=False):
    """A usable skill: a valid document and its directory. The body stays on disk.

    >>> from vademecum.skill.skill import MANIFEST, Document
    >>> document = Document("pdf", "Fill in PDF forms.")
    >>> skill = Skill.at(document, "user", "/skills", "acme/pdf", MANIFEST, 0)
    >>> skill.skill_id, skill.reference, str(skill.path)
    ('user:pdf', 'acme/pdf', '/skills/acme/pdf')
    """

    source: str = ""
    root: str = ""
    directory: str = "."
    file: str = MANIFEST
    # Changes when the file changes; 0 if that is not known yet.
    stamp: int = 0
    # The absolute path of the skill's directory.
    location: str = ""

    @classmethod
    def at(  # noqa: PLR0913, PLR0917 - the parts of a place
        cls, document: Document, source: str, root: str, directory: str, file: str, stamp: int
    ) -> Skill:
        """Return the skill of a document at a place."""
        location = root if directory == "." else f"{root}/{directory}"
        values = structs.asdict(document)
        return cls(
            **values, source=source, root=root, directory=directory, file=file, stamp=stamp, location=location
        )

    @property
    def diagnostics(self) -> tuple[Problem, ...]:
        """The problems of the document; none of them prevents its use."""
        return self.problems

    @property
    def skill_id(self) -> str:
        """Source, name and version in one text, e.g. ``project:file-diff@1.0.0``."""
        version = f"@{self.meta.version}" if self.meta.version else ""
        return f"{self.source}:{self.name}{version}"

    @property
    def namespace(self) -> str:
        """The directories between the root and the skill's directory, ``""`` if there are none."""
        return self.directory.rpartition("/")[0]

    @property
    def reference(self) -> str:
        """The name with its namespace, e.g. ``acme/pdf``, to select this skill among namesakes."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def path(self) -> Path:
        """The absolute path of the skill's directory."""
        return Path(self.location)

    def to_json(self) -> dict[str, Any]:
        """Return the skill in the form that commands print."""
        return {
            "skill_id": self.skill_id,
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "path": self.location,
            "controls": self.controls.to_json(),
            "meta": self.meta.to_json(),
            "diagnostics": [problem.to_json() for problem in self.problems],
        }
