"""The index as a value: all usable skills, one per name, and the report of the scan."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import structs

from vademecum.config import Config, ScanSettings
from vademecum.context import Context
from vademecum.errors import SkillNotFound
from vademecum.nearest import meant, nearest
from vademecum.paths import leads_out
from vademecum.registry.roots import Root, Source
from vademecum.skill.skill import Printable, Problem, Reading, Skill
from vademecum.wildcards import comparable

if TYPE_CHECKING:
    from vademecum.registry.base import Fetch, Provider

RootStatus = Literal["searched", "absent", "not-a-directory", "unreadable"]


class LeftOut(Printable, frozen=True):
    """A document or directory that is not in the index, and why.

    >>> problem = Problem("missing-field", "error", "Missing required field in frontmatter: name", "name", 1)
    >>> LeftOut("user", "/skills/pdf/SKILL.md", (problem,)).reason.code
    'missing-field'
    """

    source: str
    path: str
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> Problem:
        """The decisive problem: the first error."""
        return next(problem for problem in self.problems if problem.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """Return the path, the decisive reason, and all problems."""
        reason = self.reason
        return {
            "path": self.path,
            "source": self.source,
            "code": reason.code,
            "line": reason.line,
            "message": reason.message,
            "problems": [problem.to_json() for problem in self.problems],
        }


class RootReport(Printable, frozen=True):
    """One root: whether it was searched, and what it contains."""

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
    """A name that several skills have: the skill that won it, and the overridden ones."""

    name: str
    source: str
    path: str
    overridden: tuple[Overridden, ...]


class Report(Printable, frozen=True):
    """The report of a scan; ``read`` counts the documents that were not in the cache.

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


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Options for building an index; ``cache`` is the directory of its cache, or ``None`` for no cache.

    >>> IndexOptions(reading=Reading(lenient=True)).cache is None
    True
    """

    reading: Reading = Reading()
    scan: ScanSettings = ScanSettings()
    cache: Path | None = None
    index_bodies: bool = True
    body_lines: int = 500

    @classmethod
    def of(cls, config: Config, context: Context) -> IndexOptions:
        """Return the options that the configuration sets."""
        reading = Reading(
            lenient=config.lenient,
            block_angle_brackets=config.security.block_angle_brackets_in_frontmatter,
        )
        return cls(
            reading,
            config.scan,
            context.cache_directory(),
            index_bodies=config.search.index_bodies,
            body_lines=config.security.max_skill_body_lines,
        )


@dataclass(frozen=True)
class SkillIndex:
    """All usable skills, one per name, and the report of the scan. It never changes.

    >>> from vademecum import BUILTIN_ROOT, build_index
    >>> index = build_index(BUILTIN_ROOT, IndexOptions())
    >>> len(index), index.get("File-Diff").name
    (3, 'file-diff')
    """

    skills: tuple[Skill, ...]
    shadowed: tuple[Skill, ...]
    report: Report
    roots: tuple[Root, ...]
    options: IndexOptions
    providers: tuple[Provider, ...] = ()
    _fetches: Mapping[str, Fetch] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        """Return the number of usable skills."""
        return len(self.skills)

    def __iter__(self) -> Iterator[Skill]:
        """Iterate over the usable skills, sorted by name."""
        return iter(self.skills)

    @property
    def hash(self) -> str:
        """A digest of the skills: the same skills give the same hash on any machine."""
        return self.report.hash

    def get(self, name: str, *, source: str | None = None) -> Skill:
        """Return the skill with a name, ignoring case.

        Of several skills with one name, ``source``, ``source:name``, ``group/name``, a skill's id or the
        path of its directory select one; ``mcp:server/name`` selects the skill of a server.
        """
        for skill in (*self.skills, *self.shadowed) if name[:1] == "/" or ":" in name else ():
            if name in (skill.location, skill.skill_id) and source in {None, skill.source}:
                return skill
        level, colon, rest = name.strip().partition(":")
        if colon and level in get_args(Source) and source in {None, level}:
            return self.get(rest, source=level)
        if colon and level == "mcp" and source is None:
            server, _, called = rest.partition("/")
            return self.get(called, source=f"mcp:{server}")
        namespace, _, plain = name.strip().removeprefix("@").rpartition("/")
        wanted = comparable(plain)
        namesakes = self._by_name.get(wanted.casefold(), [])
        if not namesakes:
            namesakes, namespace = self._by_name.get(comparable(name.strip()).casefold(), []), ""
        exact = [skill for skill in namesakes if skill.name == wanted]
        for skill in (*exact, *namesakes):
            # The skill can be in more groups than were named.
            inside = not namespace or f"/{skill.namespace}".casefold().endswith(f"/{namespace}".casefold())
            if inside and source in {None, skill.source}:
                return skill
        advice = ""
        if "/" in name and os.path.isdir(name):
            linked = self.by_place.get(os.path.realpath(name))
            if linked and source in {None, linked.source}:
                return linked
            if all(leads_out(root.path, name) for root in self.roots):
                parent = shlex.quote(os.path.dirname(os.path.abspath(name)))
                advice = f"because its directory is not searched: add --root {parent}"
        place = f" in source {source!r}" if source else ""
        text = f"No skill is called {name!r}{place}{self._hint(wanted, namesakes)}"
        raise SkillNotFound(text, advice=advice)

    def _hint(self, wanted: str, namesakes: list[Skill]) -> str:
        if namesakes:
            return f": there is {namesakes[0].reference!r} in source {namesakes[0].source!r}."
        for left_out in self.report.ignored:
            if wanted and wanted in left_out.path.split("/")[-2:]:
                return f": {left_out.path} was left out ({left_out.reason.message})."
        for skill in self.skills:
            if skill.directory.rpartition("/")[2] == wanted:
                return f": the skill in {skill.location} is called {skill.name!r}."
        near = nearest(wanted, self._by_name)
        return f": {meant(near, otherwise='')}" if near else "."

    @cached_property
    def _by_name(self) -> dict[str, list[Skill]]:
        """The skills by name, and by original name if it was repaired; winners come first."""
        names: dict[str, list[Skill]] = {}
        written: dict[str, list[Skill]] = {}
        for skill in (*self.skills, *self.shadowed):
            names.setdefault(skill.name.casefold(), []).append(skill)
            if skill.alias:
                written.setdefault(skill.alias.casefold(), []).append(skill)
        return written | names

    @cached_property
    def by_place(self) -> dict[str, Skill]:
        """The skills by their real directories."""
        return {os.path.realpath(skill.location): skill for skill in (*self.shadowed, *self.skills)}

    def fetch(self, skill: Skill) -> None:
        """Fetch and verify the files of a skill from a server; do nothing for other skills."""
        if (get := self._fetches.get(skill.location)) is not None:
            get()

    def select(self, *, source: Source) -> tuple[Skill, ...]:
        """Return the skills of one source, one per name, including those that another source overrides."""
        chosen: dict[str, Skill] = {}
        for skill in (*self.skills, *self.shadowed):
            if skill.source == source:
                chosen.setdefault(skill.name, skill)
        return tuple(sorted(chosen.values(), key=lambda skill: skill.name))

    def for_model(self) -> tuple[Skill, ...]:
        """Return the skills that a model may see."""
        return tuple(skill for skill in self.skills if not skill.controls.disable_model_invocation)

    def for_people(self) -> tuple[Skill, ...]:
        """Return the skills that a person may call by name."""
        return tuple(skill for skill in self.skills if skill.controls.user_invocable)

    def restricted(self, skills: Iterable[Skill], shadowed: Iterable[Skill] = ()) -> SkillIndex:
        """Return an index of only these skills, without a report of the rest."""
        report = structs.replace(self.report, ignored=(), conflicts=(), diagnostics=())
        return SkillIndex(
            tuple(skills), tuple(shadowed), report, self.roots, self.options, self.providers, self._fetches
        )

    def to_json(self) -> dict[str, Any]:
        """Return the whole snapshot."""
        return {
            "skills": [skill.to_json() for skill in self.skills],
            "report": self.report.to_json(),
            "hash": self.report.hash,
        }
