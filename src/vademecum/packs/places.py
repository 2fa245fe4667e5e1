"""The files of a source → the directories in it that are skills, by what it says itself or by looking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from vademecum.errors import PackRefused
from vademecum.skill.skill import MANIFEST as SKILL_FILE

MARKETPLACE = ".claude-plugin/marketplace.json"
MAX_MARKETPLACE_BYTES = 5 * 1024 * 1024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Elsewhere(msgspec.Struct, frozen=True):
    """Where a plugin of a marketplace lies, when that is another repository."""

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

    @property
    def named(self) -> tuple[str, ...]:
        """The skills that the entry names."""
        return (self.skills,) if isinstance(self.skills, str) else self.skills


class Marketplace(msgspec.Struct, frozen=True):
    """A list of plugins, as Claude's plugin marketplaces have it."""

    name: Name
    plugins: tuple[Plugin, ...]


def read_marketplace(data: bytes, place: str) -> Marketplace:
    """The list, or why it is none."""
    try:
        return msgspec.json.decode(data, type=Marketplace)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{place} is no list of plugins ({error}): nothing was installed.") from error


def skill_places(paths: Iterable[str], marketplace: Marketplace | None = None) -> list[str]:
    """The directories that are skills, "" for the whole, none below another.

    What lies in hidden directories counts only where there is nothing else: there it is mostly a copy.

    >>> skill_places(["skills/a/SKILL.md", "skills/a/references/x/SKILL.md", ".claude/skills/a/SKILL.md"])
    ['skills/a']
    >>> skill_places(["SKILL.md", "sub/SKILL.md"])
    ['']
    """
    found = sorted(_parent(path) for path in paths if path.rpartition("/")[2] == SKILL_FILE)
    if marketplace is not None:
        found = [place for place in found if _is_offered(place, marketplace)]
    tops: set[str] = set()
    for place in sorted(found, key=lambda place: place.count("/") if place else -1):
        if place_of(place, tops) is None:
            tops.add(place)
    open_ones = [place for place in tops if not _is_hidden(place)]
    return sorted(open_ones or tops)


def place_of(path: str, places: set[str]) -> str | None:
    """Which of these directories a path is, or lies below; everything lies below "".

    >>> place_of("a/b/c", {"a/b"}), place_of("a/bc", {"a/b"})
    ('a/b', None)
    """
    while path:
        if path in places:
            return path
        path = _parent(path)
    return "" if "" in places else None


def _is_offered(place: str, marketplace: Marketplace) -> bool:
    for plugin in marketplace.plugins:
        if not isinstance(plugin.source, str):
            continue
        base = _plain(plugin.source)
        if plugin.named:
            offered = [_plain(f"{base}/{name}") for name in plugin.named]
            if place in offered or _parent(place) in offered:
                return True
        elif place == base or _parent(place) == _plain(f"{base}/skills"):
            return True
    return False


def _plain(path: str) -> str:
    """A path without the steps that lead nowhere; one that goes up matches nothing."""
    return "/".join(step for step in path.split("/") if step not in {"", "."})


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_hidden(place: str) -> bool:
    return any(step.startswith(".") for step in place.split("/"))
