"""The report of a scan: roots, documents left out with their reasons, conflicts with their decisions."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from vademecum.registry.roots import Root
from vademecum.skill.skill import Printable, Problem

RootStatus = Literal["searched", "absent", "not-a-directory", "unreadable"]


class LeftOut(Struct, frozen=True):
    """A document or a place that is not in the index, and why.

    >>> problem = Problem("missing-field", "error", "Missing required field in frontmatter: name", "name", 1)
    >>> LeftOut("user", "/skills/pdf/SKILL.md", (problem,)).reason.code
    'missing-field'
    """

    source: str
    path: str
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> Problem:
        """The problem that decided it: the first error."""
        return next(problem for problem in self.problems if problem.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """Return the place, the deciding reason, and all problems."""
        reason = self.reason
        return {
            "path": self.path,
            "source": self.source,
            "code": reason.code,
            "line": reason.line,
            "message": reason.message,
            "problems": [problem.to_json() for problem in self.problems],
        }


class RootReport(Struct, frozen=True):
    """One root: whether it was searched, and what was in it."""

    root: Root
    status: RootStatus
    found: int = 0
    valid: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the root with its counts."""
        root = self.root
        return {
            "source": root.source,
            "path": str(root.path),
            "priority": root.priority,
            "kind": root.kind,
            "status": self.status,
            "found": self.found,
            "valid": self.valid,
        }


class Overridden(Printable, frozen=True):
    """A skill that lost its name to another, and why."""

    source: str
    path: str
    version: str | None
    reason: str


class Conflict(Printable, frozen=True):
    """One name that several skills claim: which one has it, and which were overridden."""

    name: str
    source: str
    path: str
    overridden: tuple[Overridden, ...]


class Report(Struct, frozen=True):
    """Everything a scan has to say for itself.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> report = build_index(BUILTIN_ROOT, IndexOptions()).report
    >>> report.found, report.valid, report.ignored, report.conflicts
    (3, 3, (), ())
    """

    roots: tuple[RootReport, ...]
    found: int
    valid: int
    ignored: tuple[LeftOut, ...]
    conflicts: tuple[Conflict, ...]
    diagnostics: tuple[Problem, ...]
    hash: str
    read: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as commands print it; ``read`` counts documents not taken from the cache."""
        return {
            "roots": [root.to_json() for root in self.roots],
            "found": self.found,
            "valid": self.valid,
            "ignored": [left_out.to_json() for left_out in self.ignored],
            "conflicts": [conflict.to_json() for conflict in self.conflicts],
            "diagnostics": [problem.to_json() for problem in self.diagnostics],
            "hash": self.hash,
            "read": self.read,
            "seconds": round(self.seconds, 6),
        }
