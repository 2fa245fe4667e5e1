"""The values of this package: a document's fields and problems, and how it was read.

They are structs of msgspec and not dataclasses because the index keeps them by the ten thousand: the
cache is decoded straight into them, several times faster than Python could build them.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, structs

RunMode = Literal["inline", "subagent"]
Severity = Literal["error", "warning"]

MANIFEST = "SKILL.md"


class Reading(Struct, frozen=True):
    """How documents are read: strictly or leniently, with or without angle brackets.

    >>> Reading(lenient=True)
    Reading(lenient=True, block_angle_brackets=True)
    """

    lenient: bool = False
    block_angle_brackets: bool = True


class Problem(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that is wrong with a document: where, what, and what to write instead.

    >>> from vademecum import validate_skill
    >>> [(problem.code, problem.severity) for problem in validate_skill("/nonexistent").problems]
    [('missing-path', 'error')]
    """

    code: str
    severity: Severity
    message: str
    field: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The problem as the commands print it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "field": self.field,
            "line": self.line,
            "message": self.message,
        }


class Controls(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the author asks of whoever runs the skill; enforced elsewhere."""

    disable_model_invocation: bool = False
    user_invocable: bool = True
    allowed_tools: tuple[str, ...] | None = None
    run_mode: RunMode = "inline"

    def to_json(self) -> dict[str, Any]:
        """The controls as the commands print them; ``null`` tools means that the skill sets no bound."""
        return structs.asdict(self)


class Meta(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the author says about the skill that no program acts on."""

    version: str | None = None
    author: str | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """The metadata as the commands print it."""
        return structs.asdict(self)


DEFAULT_CONTROLS = Controls()
EMPTY_META = Meta()


class Document(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one frontmatter says: its values, everything that is wrong with it, and its digest."""

    name: str = ""
    description: str = ""
    controls: Controls = DEFAULT_CONTROLS
    meta: Meta = EMPTY_META
    extra: dict[str, str | tuple[str, ...]] = {}
    problems: tuple[Problem, ...] = ()
    digest: str = ""

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong that would keep the skill out of the index."""
        return not self.problems or all(problem.severity != "error" for problem in self.problems)
