"""Roots → SkillIndex: ``build_index`` puts scan, cache, documents and conflicts together."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vademecum.config import Config, LoadedConfig, load_config
from vademecum.context import Context
from vademecum.errors import FileRefused
from vademecum.registry.base import Fetch, Provider
from vademecum.registry.cache import CachedSkill, IndexCache, stamp_of, trusted
from vademecum.registry.conflicts import Candidate, resolve
from vademecum.registry.index import IndexOptions, SkillIndex
from vademecum.registry.report import LeftOut, Report, RootReport, RootStatus
from vademecum.registry.roots import Root, default_roots, ordered
from vademecum.registry.scan import Found, Walk
from vademecum.skill.skill import Document, Problem, Reading, Skill

Progress = Callable[[int], None]
_PROGRESS_STEP = 500


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
            seconds=self._clock() - started,
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
        for candidate, fetch in found:
            self._candidates.append(candidate)
            self._fetches[candidate[0].location] = fetch
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
