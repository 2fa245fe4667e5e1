"""The files of a source → the directories in it that are skills, by a plugin list or by looking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from vademecum.errors import PackRefused
from vademecum.packs.sources.archive import Opened, read_small
from vademecum.skill.skill import MANIFEST as SKILL_FILE

MARKETPLACE = ".claude-plugin/marketplace.json"
MAX_MARKETPLACE_BYTES = 5 * 1024 * 1024
# What macOS adds to a zip; nobody means it as a skill.
_ADDED_BY_SYSTEMS = frozenset({"__MACOSX"})

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Elsewhere(msgspec.Struct, frozen=True):
    """Where a plugin of a marketplace is, if that is another repository."""

    source: Name
    repo: str | None = None
    url: str | None = None
    path: str | None = None
    ref: str | None = None


class Plugin(msgspec.Struct, frozen=True):
    """One entry of a marketplace; without ``skills``, they are the children of its ``skills/``."""

    name: Name
    source: Name | Elsewhere = "./"
    skills: tuple[Name, ...] | Name = ()

    def offers(self, place: str) -> bool:
        """Return whether a directory of this repository is a skill of the plugin."""
        if not isinstance(self.source, str):
            return False
        base = _plain(self.source)
        named = (self.skills,) if isinstance(self.skills, str) else self.skills
        if not named:
            return place == base or _parent(place) == _plain(f"{base}/skills")
        offered = [_plain(f"{base}/{name}") for name in named]
        return place in offered or _parent(place) in offered


class Marketplace(msgspec.Struct, frozen=True):
    """A list of plugins, as Claude's plugin marketplaces have it."""

    name: Name
    plugins: tuple[Plugin, ...]


def read_marketplace(data: bytes, place: str) -> Marketplace:
    """Parse a list of plugins."""
    try:
        return msgspec.json.decode(data, type=Marketplace)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{place} is not a list of plugins ({error}): nothing was installed.") from error


def marketplace_of(opened: Opened) -> Marketplace | None:
    """Return the list of plugins that a source contains, if it does."""
    file = next((file for file in opened.files if file.name == MARKETPLACE), None)
    return None if file is None else read_marketplace(read_small(file, MAX_MARKETPLACE_BYTES), file.name)


def document_in(names: Iterable[str]) -> str | None:
    """Return which of these names is the document of a skill, spelled as the index accepts it.

    >>> document_in(["readme.md", "skill.md"]), document_in(["skill.md", "SKILL.md"])
    ('skill.md', 'SKILL.md')
    """
    return min((name for name in names if name.upper() == SKILL_FILE.upper()), default=None)


def skill_places(paths: Iterable[str], plugins: Sequence[Plugin] | None = None) -> list[str]:
    """Return the directories that are skills, "" for the whole, none below another.

    Hidden directories count only if there is nothing else: they are mostly copies.

    >>> skill_places(["skills/a/SKILL.md", "skills/a/references/x/SKILL.md", ".claude/skills/a/SKILL.md"])
    ['skills/a']
    >>> skill_places(["SKILL.md", "sub/SKILL.md"])
    ['']
    """
    found = {_parent(path) for path in paths if document_in([path.rpartition("/")[2]])}
    if plugins is not None:
        found = {place for place in found if any(plugin.offers(place) for plugin in plugins)}
    tops: set[str] = set()
    for place in sorted(found, key=lambda place: place.count("/") if place else -1):
        if place_of(place, tops) is None:
            tops.add(place)
    visible = [place for place in tops if not _is_hidden(place)]
    return sorted(visible or tops)


def place_of(path: str, places: set[str]) -> str | None:
    """Return which of these directories a path is or lies below; everything lies below "".

    >>> place_of("a/b/c", {"a/b"}), place_of("a/bc", {"a/b"})
    ('a/b', None)
    """
    while path:
        if path in places:
            return path
        path = _parent(path)
    return "" if "" in places else None


def left_out(opened: Opened, places: Sequence[str]) -> list[str]:
    """Return the outermost directories of a source without a skill; leave out hidden ones."""
    known = set(places)
    around = {step for place in places for step in _steps(place)} | {""}
    found: set[str] = set()
    for path in (*opened.directories, *(_parent(file.name) for file in opened.files)):
        if path and place_of(path, known) is None:
            outermost = next((step for step in _steps(path) if step not in around), None)
            if outermost is not None and not _is_hidden(outermost) and outermost not in _ADDED_BY_SYSTEMS:
                found.add(outermost)
    return sorted(found)


def _steps(path: str) -> list[str]:
    steps = path.split("/")
    return ["/".join(steps[: number + 1]) for number in range(len(steps))]


def _plain(path: str) -> str:
    """Return a path without empty steps; one that goes up matches nothing."""
    return "/".join(step for step in path.split("/") if step not in {"", "."})


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_hidden(place: str) -> bool:
    return any(step.startswith(".") for step in place.split("/"))
