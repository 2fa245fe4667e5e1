"""Roots → SkillIndex: ``build_index`` puts scan, cache and documents together, ``resolve`` decides names."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from vademecum.config import Config, LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import FileRefused
from vademecum.registry.cache import CachedSkill, IndexCache, stamp_of, trusted
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
from vademecum.registry.scan import Found, Signature, Walk
from vademecum.skill.skill import Document, Problem, Reading, Skill

if TYPE_CHECKING:
    from vademecum.registry.base import Fetch, Provider

Progress = Callable[[int], None]
_PROGRESS_STEP = 500

# A skill with what decides between namesakes: its root and the signature of its file. A plain tuple,
# because nearly all of them are decided without being looked at.
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
    """Find all skills below ``roots``, or below the default roots of this place.

    Skills of ``providers``, such as MCP servers, are added; they never replace a skill of a root.

    >>> from vademecum import BUILTIN_ROOT
    >>> index = build_index([BUILTIN_ROOT, Root("my-skills", "extra")], IndexOptions())
    >>> [skill.name for skill in index], [left_out.reason.code for left_out in index.report.ignored]
    (['csv-summary', 'file-diff', 'skill-author'], ['root-absent'])
    """
    context = context or Context.current()
    config = load_config(context) if roots is None or options is None else LoadedConfig(Config())
    options = options or IndexOptions.of(config.settings, context)
    chosen = default_roots(context, config) if roots is None else _given(roots, context)
    return _Build(chosen, options, providers=providers, progress=progress, clock=clock).run()


def refresh_index(
    index: SkillIndex,
    changes: Iterable[str | Path] | None = None,
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SkillIndex:
    """Build the index again and read documents anew: those at or below ``changes``, or all of them.

    >>> from vademecum import BUILTIN_ROOT
    >>> index = build_index(BUILTIN_ROOT, IndexOptions())
    >>> refresh_index(index, [BUILTIN_ROOT / "file-diff"]).hash == index.hash
    True
    """
    changed = None if changes is None else [os.path.abspath(change) for change in changes]

    def distrusted(location: str) -> bool:
        return changed is None or any(_overlap(location, change) for change in changed)

    return _Build(
        [root for root in index.roots if not root.source.startswith("mcp:")],
        index.options,
        providers=index.providers,
        distrusted=distrusted,
        progress=progress,
        clock=clock,
    ).run()


class _Build:
    """One scan of all roots."""

    def __init__(  # noqa: PLR0913 - what an index is made of
        self,
        roots: Sequence[Root],
        options: IndexOptions,
        *,
        providers: Sequence[Provider] = (),
        distrusted: Callable[[str], bool] | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._roots = tuple(roots)
        self._options = options
        self._providers = tuple(providers)
        self._fetches: dict[str, Fetch] = {}
        self._distrusted = distrusted
        self._progress = progress or (lambda _: None)
        self._clock = clock
        self._cache = IndexCache(options.cache, roots=roots, reading=repr(options.reading))
        self._candidates: list[Candidate] = []
        self._seen: list[list[CachedSkill]] = [[] for _ in roots]
        self._left_out: list[LeftOut] = []
        self._read = 0
        self._now_ns = 0

    def run(self) -> SkillIndex:
        started = self._clock()
        self._now_ns = int(started * 1e9)
        reports = [self._scan(number, root) for number, root in enumerate(self._roots)]
        reports += map(self._ask, self._providers)
        resolution = resolve(self._candidates)
        report = Report(
            roots=tuple(reports),
            found=sum(map(len, self._seen)),
            valid=len(self._candidates),
            ignored=tuple(self._left_out),
            conflicts=resolution.conflicts,
            diagnostics=self._remember(),
            hash=_hash(self._options.reading, resolution.winners, resolution.shadowed),
            read=self._read,
            seconds=round(self._clock() - started, 6),
        )
        return SkillIndex(
            resolution.winners,
            resolution.shadowed,
            report,
            (*self._roots, *(provider.root for provider in self._providers)),
            self._options,
            self._providers,
            self._fetches,
        )

    def _ask(self, provider: Provider) -> RootReport:
        """Add what a provider announced."""
        from vademecum.registry.provided import provided  # noqa: PLC0415 - for those who use a server

        found, left_out = provided(provider)
        self._left_out += left_out
        for skill, signature, fetch in found:
            self._candidates.append((skill, provider.root, signature))
            self._fetches[skill.location] = fetch
        return RootReport(provider.root, "searched", found=len(found) + len(left_out), valid=len(found))

    def _scan(self, number: int, root: Root) -> RootReport:
        status = _status(root)
        if status != "searched":
            if root.explicit:
                self._left_out.append(_root_left_out(root, status))
            return RootReport(root, status)
        walk = Walk(str(root.path), self._options.scan)
        before = len(self._candidates)
        self._read_documents(number, root, walk.documents)
        self._left_out += [LeftOut(root.source, place, (problem,)) for place, problem in walk.obstacles]
        return RootReport(root, status, found=len(walk.documents), valid=len(self._candidates) - before)

    def _read_documents(self, number: int, root: Root, documents: list[Found]) -> None:
        """Take each document from the cache where it has not changed, else from the disk."""
        path, source = str(root.path), root.source
        known, noted, distrusted = self._cache.of_root(number), self._seen[number], self._distrusted
        for directory, file, signature in documents:
            seen = known.get(directory)
            if (
                seen is None
                or seen.signature != signature
                or (distrusted and distrusted(f"{path}/{directory}"))
            ):
                document = _read(path, directory, file, self._options.reading)
                kept = trusted(signature, now_ns=self._now_ns)
                seen = CachedSkill(kept, Skill.at(document, source, path, directory, file, stamp_of(kept)))
                self._read += 1
                if self._read % _PROGRESS_STEP == 0:
                    self._progress(self._read)
            noted.append(seen)
            skill = seen.skill
            if not skill.problems or skill.valid:
                self._candidates.append((skill, root, signature))
            else:
                self._left_out.append(LeftOut(source, f"{skill.location}/{file}", skill.problems))

    def _remember(self) -> tuple[Problem, ...]:
        """Save what was read, if anything is new, and return the cache's complaints."""
        unsaved = None
        known = [len(self._cache.of_root(number)) for number in range(len(self._roots))]
        if self._read or list(map(len, self._seen)) != known:
            unsaved = self._cache.save(self._seen)
        return tuple(problem for problem in (self._cache.problem, unsaved) if problem is not None)


def _read(root: str, directory: str, file: str, reading: Reading) -> Document:
    from vademecum.skill.document import read_document  # noqa: PLC0415 - YAML takes 20 ms; a warm start needs none

    location = root if directory == "." else f"{root}/{directory}"
    path = f"{location}/{file}"
    try:
        return read_document(path, directory=location.rpartition("/")[2], reading=reading, file=file)
    except OSError as error:
        text = f"Cannot read {path} ({error.strerror}): check its permissions"
        return Document(problems=(Problem("unreadable", "error", text),))
    except FileRefused as error:
        return Document(problems=(Problem(error.code, "error", str(error)),))


def _given(roots: Sequence[Root | str | Path] | Root | str | Path, context: Context) -> list[Root]:
    if isinstance(roots, Root | str | Path):
        roots = [roots]
    as_roots = [root if isinstance(root, Root) else Root(root) for root in roots]
    return ordered([replace(root, path=context.expand(root.path)) for root in as_roots])


def _status(root: Root) -> RootStatus:
    if os.path.isdir(root.path):
        return "searched" if os.access(root.path, os.R_OK | os.X_OK) else "unreadable"
    return "not-a-directory" if os.path.lexists(root.path) else "absent"


def _root_left_out(root: Root, status: RootStatus) -> LeftOut:
    advice = {
        "absent": "does not exist: create it, or remove it from the roots",
        "not-a-directory": "is not a directory: name a directory of skills",
        "unreadable": "cannot be read: check its permissions",
    }
    problem = Problem(f"root-{status}", "error", f"The root {root.path} {advice[status]}")
    return LeftOut(root.source, str(root.path), (problem,))


def _hash(reading: Reading, *groups: tuple[Skill, ...]) -> str:
    """Digest what the skills say and which ones win; neither times nor this machine's paths are in it."""
    lines = [repr(reading)]
    for skills in groups:
        lines += [f"{skill.source} {skill.digest} {skill.directory}" for skill in skills]
    content = "\n".join(lines).encode("utf-8", "surrogateescape")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _overlap(location: str, change: str) -> bool:
    inside, around = f"{location}/", f"{change}/"
    return around.startswith(inside) or inside.startswith(around)


class Resolution(Struct, frozen=True):
    """The skills that keep their names, those that lose them, and the conflicts."""

    winners: tuple[Skill, ...]
    shadowed: tuple[Skill, ...]
    conflicts: tuple[Conflict, ...]


def resolve(candidates: Iterable[Candidate]) -> Resolution:
    """Decide each name: the higher root, then the later change, then the directory that bears the name.

    The order is total, so the same candidates always give the same answer, in whatever order they come.
    A link in another tool's root to a skill that is a candidate itself claims nothing: it is that skill.
    """
    first: dict[str, Candidate] = {}
    rivals: dict[str, list[Candidate]] = {}
    links: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        name = candidate[0].name
        if first.setdefault(name, candidate) is not candidate:
            rivals.setdefault(name, [first[name]]).append(candidate)
    for name, claims in rivals.items():
        claims.sort(key=_precedence)
        links[name] = _links_among(claims)
        if links[name]:
            apart = set(map(id, links[name]))
            claims[:] = [claim for claim in claims if id(claim) not in apart]
        first[name] = claims[0]
    contested = sorted(rivals)
    return Resolution(
        winners=tuple(first[name][0] for name in sorted(first)),
        shadowed=tuple(skill for name in contested for skill, *_ in rivals[name][1:]),
        conflicts=tuple(_conflict(rivals[name], links[name]) for name in contested),
    )


def _links_among(claims: list[Candidate]) -> list[Candidate]:
    """Return the claims that are links from another tool's root to the directory of another claim."""
    by_file: dict[Signature, list[Candidate]] = {}
    for claim in claims:
        by_file.setdefault(claim[2], []).append(claim)
    found = []
    for same in by_file.values():
        if len(same) == 1:
            continue
        best = min(same, key=_directness)
        real = os.path.realpath(best[0].location)
        found += [
            claim
            for claim in same
            if _directness(claim) > _directness(best) and os.path.realpath(claim[0].location) == real
        ]
    return found


def _directness(claim: Candidate) -> int:
    """Zero for a native root, one for a directory in another tool's root, two for a link there."""
    skill, root, _ = claim
    return 0 if root.kind == "native" else 1 + os.path.islink(skill.location)


def _precedence(candidate: Candidate) -> tuple[int, int, bool, str, str]:
    skill, root, (modified, *_) = candidate
    misnamed = skill.directory.rpartition("/")[2] != skill.name
    return (-root.priority, -modified, misnamed, skill.directory, skill.root)


def _conflict(claims: list[Candidate], links: list[Candidate]) -> Conflict:
    winner = claims[0][0]
    overridden = [_overridden(claim[0], _reason(claims[0], claim)) for claim in claims[1:]]
    overridden += [_overridden(skill, "same-file") for skill, *_ in links]
    return Conflict(winner.name, winner.source, winner.location, tuple(overridden))


def _overridden(skill: Skill, reason: str) -> Overridden:
    return Overridden(skill.source, skill.location, skill.meta.version, reason)


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
