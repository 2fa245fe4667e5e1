"""Roots → SkillIndex: ``build_index`` combines scan, cache and documents; ``resolve`` decides names."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vademecum.config import load_config
from vademecum.context import Context
from vademecum.errors import FileRefused
from vademecum.registry.cache import CachedSkill, cache_key, load_cache, save_cache, stamp_of, trusted
from vademecum.registry.index import (
    Conflict,
    IndexOptions,
    LeftOut,
    Overridden,
    Report,
    RootReport,
    RootStatus,
    SkillIndex,
)
from vademecum.registry.roots import Root, default_roots, ordered
from vademecum.registry.scan import Signature, Walk
from vademecum.skill.frontmatter import read_opening
from vademecum.skill.skill import Document, Problem, Reading, Skill

if TYPE_CHECKING:
    from vademecum.registry.base import Fetch, Provider

Progress = Callable[[int], None]
_PROGRESS_STEP = 500
_ADVICE = {
    "absent": "does not exist: create it, or remove it from the roots",
    "not-a-directory": "is not a directory: name a directory of skills",
    "unreadable": "cannot be read: check its permissions",
}

# A skill, its root and the signature of its file, which decide between namesakes. A plain tuple, because
# nearly all names have one candidate only.
Candidate = tuple[Skill, Root, Signature]


def build_index(  # noqa: PLR0913 - what an index is made of
    roots: Sequence[Root | str | Path] | Root | str | Path | None = None,
    options: IndexOptions | None = None,
    *,
    providers: Sequence[Provider] = (),
    context: Context | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SkillIndex:
    """Find all skills below ``roots``, or below the default roots of the working directory.

    Skills of ``providers``, such as MCP servers, are added. They never replace a skill of a root.

    >>> from vademecum import BUILTIN_ROOT
    >>> index = build_index([BUILTIN_ROOT, Root("my-skills", "extra")], IndexOptions())
    >>> [skill.name for skill in index], [left_out.reason.code for left_out in index.report.ignored]
    (['csv-summary', 'file-diff', 'skill-author'], ['root-absent'])
    """
    context = context or Context.current()
    if roots is None or options is None:
        config = load_config(context)
        roots = default_roots(context, config) if roots is None else roots
        options = options or IndexOptions.of(config.settings, context)
    return _Build(_given(roots, context), options, tuple(providers), progress, clock).run()


def refresh_index(
    index: SkillIndex,
    changes: Iterable[str | Path] | None = None,
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SkillIndex:
    """Build the index again and reread documents: those at or below ``changes``, or all of them.

    >>> from vademecum import BUILTIN_ROOT
    >>> index = build_index(BUILTIN_ROOT, IndexOptions())
    >>> refresh_index(index, [BUILTIN_ROOT / "file-diff"]).hash == index.hash
    True
    """
    changed = ["/"] if changes is None else [f"{os.path.abspath(change).rstrip('/')}/" for change in changes]
    roots = tuple(root for root in index.roots if not root.source.startswith("mcp:"))
    return _Build(roots, index.options, index.providers, progress, clock, changed).run()


@dataclass(slots=True)
class _Build:
    """One scan of all roots."""

    roots: tuple[Root, ...]
    options: IndexOptions
    providers: tuple[Provider, ...]
    progress: Progress | None
    clock: Callable[[], float]
    changed: Sequence[str] = ()  # documents at or below these paths are read again
    candidates: list[Candidate] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    fetches: dict[str, Fetch] = field(default_factory=dict)
    read: int = 0

    def run(self) -> SkillIndex:
        started = self.clock()
        key = cache_key(self.roots, repr(self.options.reading))
        file = self.options.cache and self.options.cache / f"index-{key}.msgpack"
        known, rebuilt = load_cache(file, count=len(self.roots)) if file else ([{} for _ in self.roots], None)
        if self.changed:
            known = [{d: one for d, one in kept.items() if not self._is_changed(one.skill)} for kept in known]
        seen: list[list[CachedSkill]] = [[] for _ in self.roots]
        scans = zip(self.roots, known, seen, strict=True)
        reports = [self._scan(*scan, now_ns=int(started * 1e9)) for scan in scans]
        reports += map(self._ask, self.providers)
        winners, shadowed, conflicts = resolve(self.candidates)
        is_new = self.read or list(map(len, seen)) != list(map(len, known))
        unsaved = save_cache(file, seen) if file and is_new else None
        report = Report(
            roots=tuple(reports),
            found=sum(map(len, seen)),
            valid=len(self.candidates),
            ignored=tuple(self.left_out),
            conflicts=conflicts,
            diagnostics=tuple(filter(None, (rebuilt, unsaved))),
            hash=_hash(self.options.reading, winners, shadowed),
            read=self.read,
            seconds=round(self.clock() - started, 6),
        )
        roots = (*self.roots, *(provider.root for provider in self.providers))
        return SkillIndex(winners, shadowed, report, roots, self.options, self.providers, self.fetches)

    def _ask(self, provider: Provider) -> RootReport:
        """Add the skills that a provider announced."""
        from vademecum.registry.provided import provided  # noqa: PLC0415 - only if a server was added

        found, left_out = provided(provider)
        self.left_out += left_out
        for skill, signature, fetch in found:
            self.candidates.append((skill, provider.root, signature))
            self.fetches[skill.location] = fetch
        return RootReport(provider.root, "searched", found=len(found) + len(left_out), valid=len(found))

    def _scan(
        self, root: Root, known: dict[str, CachedSkill], seen: list[CachedSkill], *, now_ns: int
    ) -> RootReport:
        """Add the skills of a root to ``seen``: unchanged ones from the cache, the rest from the disk."""
        status = _status(root)
        if status != "searched":
            if root.explicit:
                problem = Problem(f"root-{status}", "error", f"The root {root.path} {_ADVICE[status]}")
                self.left_out.append(LeftOut(root.source, str(root.path), (problem,)))
            return RootReport(root, status)
        path, before = str(root.path), len(self.candidates)
        walk = Walk(path, self.options.scan)
        for directory, file, signature in walk.documents:
            one = known.get(directory)
            if one is None or one.signature != signature:
                document = _read(path, directory, file, self.options.reading)
                kept = trusted(signature, now_ns=now_ns)
                skill = Skill.at(document, root.source, path, directory, file, stamp_of(kept))
                one = CachedSkill(kept, skill)
                self.read += 1
                if self.progress is not None and self.read % _PROGRESS_STEP == 0:
                    self.progress(self.read)
            seen.append(one)
            skill = one.skill
            if not skill.problems or skill.valid:
                self.candidates.append((skill, root, signature))
            else:
                self.left_out.append(LeftOut(root.source, f"{skill.location}/{file}", skill.problems))
        self.left_out += [LeftOut(root.source, place, (problem,)) for place, problem in walk.obstacles]
        return RootReport(root, status, found=len(walk.documents), valid=len(self.candidates) - before)

    def _is_changed(self, skill: Skill) -> bool:
        here = f"{skill.location}/"
        return any(here.startswith(place) or place.startswith(here) for place in self.changed)


def _read(root: str, directory: str, file: str, reading: Reading) -> Document:
    # A warm start reads no document.
    from vademecum.skill.document import parse_document, with_file_name  # noqa: PLC0415

    location = root if directory == "." else f"{root}/{directory}"
    path = f"{location}/{file}"
    try:
        head = read_opening(path)
    except OSError as error:
        text = f"Cannot read {path} ({error.strerror}): check its permissions"
        return Document(problems=(Problem("unreadable", "error", text),))
    except FileRefused as error:
        return Document(problems=(Problem(error.code, "error", str(error)),))
    document = parse_document(head, directory=location.rpartition("/")[2], reading=reading)
    return with_file_name(document, file)


def _given(roots: Sequence[Root | str | Path] | Root | str | Path, context: Context) -> tuple[Root, ...]:
    if isinstance(roots, Root | str | Path):
        roots = [roots]
    as_roots = [root if isinstance(root, Root) else Root(root) for root in roots]
    return tuple(ordered([replace(root, path=context.expand(root.path)) for root in as_roots]))


def _status(root: Root) -> RootStatus:
    if os.path.isdir(root.path):
        return "searched" if os.access(root.path, os.R_OK | os.X_OK) else "unreadable"
    return "not-a-directory" if os.path.lexists(root.path) else "absent"


def _hash(reading: Reading, *groups: tuple[Skill, ...]) -> str:
    """Return a digest of the skills and of which ones win; it does not include times or absolute paths."""
    lines = [repr(reading)]
    for skills in groups:
        lines += [f"{skill.source} {skill.digest} {skill.directory}" for skill in skills]
    content = "\n".join(lines).encode("utf-8", "surrogateescape")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def resolve(
    candidates: Iterable[Candidate],
) -> tuple[tuple[Skill, ...], tuple[Skill, ...], tuple[Conflict, ...]]:
    """Return the skills that keep their names, those that lose them, and the conflicts.

    The higher root wins a name, then the later change, then the directory with the same name.

    The order is total, so the same candidates give the same result in any order.
    A link in another tool's root to a skill that is a candidate itself does not count: it is that skill.
    """
    first: dict[str, Candidate] = {}
    rivals: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        name = candidate[0].name
        if first.setdefault(name, candidate) is not candidate:
            rivals.setdefault(name, [first[name]]).append(candidate)
    shadowed: list[Skill] = []
    conflicts: list[Conflict] = []
    for name in sorted(rivals):
        claims = sorted(rivals[name], key=_precedence)
        links = _links_among(claims)
        first[name], *losers = [claim for claim in claims if claim not in links]
        shadowed += [skill for skill, *_ in losers]
        lost = [(claim[0], _reason(first[name], claim)) for claim in losers]
        lost += [(skill, "same-file") for skill, *_ in links]
        overridden = (Overridden(each.source, each.location, each.meta.version, why) for each, why in lost)
        winner = first[name][0]
        conflicts.append(Conflict(name, winner.source, winner.location, tuple(overridden)))
    return tuple(first[name][0] for name in sorted(first)), tuple(shadowed), tuple(conflicts)


def _links_among(claims: list[Candidate]) -> list[Candidate]:
    """Return the claims that are links from another tool's root to the directory of another claim."""
    if all(root.kind == "native" for _, root, _ in claims):
        return []
    by_place: dict[str, list[Candidate]] = {}
    for claim in claims:
        by_place.setdefault(os.path.realpath(claim[0].location), []).append(claim)
    return [
        claim
        for same in by_place.values()
        for claim in same
        if _directness(claim) > min(map(_directness, same))
    ]


def _directness(claim: Candidate) -> int:
    """Return 0 for a native root, 1 for a directory in another tool's root, 2 for a link there."""
    skill, root, _ = claim
    return 0 if root.kind == "native" else 1 + os.path.islink(skill.location)


def _precedence(candidate: Candidate) -> tuple[int, int, bool, str, str]:
    skill, root, (modified, *_) = candidate
    misnamed = skill.directory.rpartition("/")[2] != skill.name
    return (-root.priority, -modified, misnamed, skill.directory, skill.root)


def _reason(winner: Candidate, loser: Candidate) -> str:
    _, root, signature = winner
    _, other_root, other = loser
    if signature == other:
        return "same-file"
    if root == other_root:
        return "older" if signature[0] > other[0] else "same-age"
    if root.source == other_root.source and root.kind == "native" != other_root.kind:
        return "compatible-root"
    return "lower-root"
