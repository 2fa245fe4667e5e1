"""Choose the directories to search for skills, their order, and the servers to ask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vademecum.config import COMPATIBLE, LEVELS, Compatible, Config, Level, LoadedConfig
from vademecum.context import Context

if TYPE_CHECKING:
    from vademecum.registry.mcp_source import McpSource

# Files of an unfinished installation in a root.
JOURNAL, STAGING = ".journal.json", ".staging"

Source = Literal["extra", "project", "user", "package", "builtin"]

ROOTS_VARIABLE = "VADE_SKILL_ROOTS"
BUILTIN_ROOT = Path(__file__).resolve().parent.parent / "builtin"

# Where each tool keeps its skills, below a project and below the home directory.
_NATIVE = (".agent/skills", ".agent/skill")
_COMPATIBLE: dict[str, tuple[str, ...]] = {
    "agents": (".agents/skills",),
    "claude": (".claude/skills",),
    "opencode": (".opencode/skills", ".opencode/skill"),
    "github": (".github/skills",),
    "gemini": (".gemini/skills",),
    "codex": (".codex/skills",),
}
_AT_HOME = {**_COMPATIBLE, "opencode": (*_COMPATIBLE["opencode"], ".config/opencode/skills")}


@dataclass(frozen=True, slots=True)
class Root:
    """One directory of skills. Of two skills with one name, that of the higher ``priority`` wins.

    >>> Root(path="/srv/skills", source="extra").kind
    'native'
    """

    path: str | Path
    source: Source = "extra"
    priority: int = 0
    kind: str = "native"
    explicit: bool = True


def default_roots(
    context: Context, config: LoadedConfig, *, extra: Iterable[str | Path] = (), defaults: bool = True
) -> list[Root]:
    """Return all roots for a context, highest first: named ones, then the levels in their order.

    >>> from vademecum.config import LoadedConfig
    >>> place = Context(cwd=Path("/nonexistent/app"), home=Path("/nonexistent/me"), env={})
    >>> [root.source for root in default_roots(place, LoadedConfig(Config()), extra=["x"])][:3]
    ['extra', 'project', 'project']
    """
    from_environment = filter(None, context.env.get(ROOTS_VARIABLE, "").split(os.pathsep))
    roots = [Root(context.expand(path)) for path in (*extra, *from_environment)]
    settings = config.settings
    if defaults:
        levels: dict[Level, list[Root]] = {
            "project": _of_level(
                "project", context.project_directories(), config.project_roots, _COMPATIBLE, settings
            ),
            "user": _of_level("user", [context.home], config.user_roots, _AT_HOME, settings),
            "package": _of_packages(settings),
            "builtin": [Root(BUILTIN_ROOT, "builtin", explicit=False)],
        }
        order = dict.fromkeys((*settings.precedence, *LEVELS))
        roots += [root for level in order for root in levels[level]]
    return ordered(_without_repeats(roots))


def directory_of(agent: Compatible, *, at_home: bool) -> str:
    """Return the directory of another agent's skills, below a project or below the home directory.

    >>> directory_of("claude", at_home=True), directory_of("opencode", at_home=True)
    ('.claude/skills', '.config/opencode/skills')
    """
    return _AT_HOME[agent][-1] if at_home else _COMPATIBLE[agent][0]


def ordered(roots: Sequence[Root]) -> list[Root]:
    """Give roots without a priority the one of their position: the first is the highest."""
    if any(root.priority for root in roots):
        return sorted(roots, key=lambda root: -root.priority)
    return [replace(root, priority=10 * (len(roots) - place)) for place, root in enumerate(roots)]


def _of_level(
    source: Source,
    places: Sequence[Path],
    named: Iterable[str | Path],
    known: Mapping[str, tuple[str, ...]],
    settings: Config,
) -> list[Root]:
    """Return the roots of a level: native ones, nearest first; configured ones; other tools' roots."""
    native = [Root(place / path, source, explicit=False) for place in places for path in _NATIVE]
    compatible = [
        Root(place / path, source, kind=kind, explicit=False)
        for place in places
        for kind in COMPATIBLE
        if kind in settings.compatibility_roots
        for path in known[kind]
    ]
    return [*native, *map(Root, named), *compatible]


def _of_packages(settings: Config) -> list[Root]:
    chosen = settings.package_skills
    if not chosen:
        return []
    from vademecum.registry.package_roots import package_roots  # noqa: PLC0415 - 40 ms, only if it is on

    wanted = chosen if isinstance(chosen, tuple) else None
    return [Root(path, "package", kind=name, explicit=False) for name, path in package_roots(wanted)]


def _without_repeats(roots: Iterable[Root]) -> list[Root]:
    """Return each directory once: if a named root is also a default one, keep the default's source."""
    by_path: dict[str, Root] = {}
    for root in roots:
        real = os.path.realpath(root.path)
        known = by_path.get(real)
        if known is None:
            by_path[real] = root
        elif known.source == "extra" and root.source != "extra":
            by_path[real] = replace(root, explicit=True)
    return list(by_path.values())


def needs_recovery(root: Path) -> bool:
    """Return whether a change of the installed skills was interrupted and must be finished."""
    return os.path.exists(f"{root}/{JOURNAL}") or os.path.isdir(f"{root}/{STAGING}")


def added_sources(context: Context) -> list[McpSource]:
    """Return the servers that the user added; the client is imported only if there are any."""
    if not os.path.isdir(context.home / ".agent" / "sources"):
        return []
    from vademecum.registry.mcp_source import sources  # noqa: PLC0415

    return sources(context)
