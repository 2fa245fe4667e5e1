"""Create and remove links to skills in the directories of other agents.

``.agent/links.json`` records the links. A cloned project can contain such a file, so its entries can only
name places where a link could be, and only a link that is on disk as recorded counts as ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from vademecum.config import COMPATIBLE, Compatible
from vademecum.errors import IntegrityFailed, PackRefused, PathRefused
from vademecum.packs.lock import is_skill_path, json_text, read_json
from vademecum.packs.sources.entry_names import steps_to
from vademecum.packs.transaction import LOCK, Ground, Transaction, changing
from vademecum.paths import MAX_PATH_CHARS, contained, leads_out
from vademecum.registry.roots import STAGING, directory_of
from vademecum.skill.skill import Skill

_OURS, _LINKS_FILE = ".agent", ".agent/links.json"

Action = Literal["linked", "refreshed", "there", "removed", "gone", "other"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATH_CHARS)]


class Link(Struct, frozen=True):
    """One skill in the directory of one agent.

    ``place`` is relative to the project or the home directory, and ``source`` too if it is below.
    """

    name: Text
    agent: Compatible
    place: Text
    source: Text


class Links(Struct, frozen=True):
    """All links below one base, and the directories that were created for them."""

    links: tuple[Link, ...] = ()
    directories: tuple[str, ...] = ()
    version: Literal[1] = 1

    def to_text(self) -> str | None:
        """Return the file's content, or None if there is nothing to record."""
        if not self.links and not self.directories:
            return None
        ordered = tuple(sorted(self.links, key=lambda link: link.place))
        return json_text(Links(ordered, tuple(sorted({*self.directories}))))


class LinkResult(Struct, frozen=True):
    """The result for one place."""

    name: str
    agent: Compatible
    place: Path
    source: str
    action: Action


class Base(Struct, frozen=True):
    """A project or the home directory, by its real path: agents' directories and recorded links."""

    path: Path
    at_home: bool = False

    @property
    def file(self) -> Path:
        """Return the file that records the links."""
        return self.path / _LINKS_FILE

    @property
    def ground(self) -> Ground:
        """Return the files that a change of links can touch."""
        known = {_OURS, *(step for agent in COMPATIBLE for step in steps_to(self.directory(agent)))}
        return Ground(
            self.path / _OURS,
            self.path,
            lambda place: self._can_be_link(place) and self.is_inside(place),
            lambda relative: relative == _LINKS_FILE or relative in known,
        )

    def _can_be_link(self, place: str) -> bool:
        directory, _, name = place.rpartition("/")
        known = directory in {self.directory(agent) for agent in COMPATIBLE}
        return known and is_skill_path(name)

    def is_inside(self, relative: str) -> bool:
        """Return whether the directory of a place is in the base once links are followed."""
        return not leads_out(self.path, os.path.dirname(self.path / relative))

    def directory(self, agent: Compatible) -> str:
        """Return the directory of an agent's skills, below the base."""
        return directory_of(agent, at_home=self.at_home)

    def inside(self, relative: str) -> Path:
        """Return the real path of something below the base; raise ``PackRefused`` if a link leads out."""
        try:
            return Path(os.path.realpath(contained(self.path, relative)))
        except PathRefused as error:
            raise PackRefused(
                f"{self.path / relative} leads out of {self.path} through a link: remove that link first."
            ) from error

    def read(self) -> Links:
        """Return the recorded links."""
        self.inside(_LINKS_FILE)
        advice = "restore it, or delete it and the links by hand"
        found = read_json(self.file, Links, advice=advice) or Links()
        wrong = [
            link.place
            for link in found.links
            if not self._can_be_link(link.place) or link.place != f"{self.directory(link.agent)}/{link.name}"
        ]
        wrong += [one for one in found.directories if one == _LINKS_FILE or not self.ground.may_write(one)]
        if wrong:
            raise IntegrityFailed(
                f"{self.file} has an entry {wrong[0][:100]!r} that is not valid: delete the file."
            )
        return found

    def has(self, link: Link) -> bool:
        """Return whether a link exists as it was created."""
        place = self.path / link.place
        is_link = self.is_inside(link.place) and place.is_symlink()
        return is_link and os.readlink(place) == self.target_of(link)

    def target_of(self, link: Link) -> str:
        """Return the target of a link: a relative path inside the base, so that the base can move."""
        if os.path.isabs(link.source):
            return link.source
        return os.path.relpath(self.path / link.source, self.inside(self.directory(link.agent)))

    def result(self, link: Link, action: Action) -> LinkResult:
        """Return the result for the place of a link."""
        source = os.path.normpath(self.path / link.source)
        return LinkResult(link.name, link.agent, self.path / link.place, source, action)


@contextlib.contextmanager
def _changing(base: Base, *, emptied: bool = False) -> Iterator[tuple[Transaction, Links]]:
    """Hold the lock and yield the record; remove our files if nothing is recorded afterwards.

    Also remove their directory, if this call made it, or if ``emptied``.
    """
    base.inside(_LINKS_FILE)
    emptied = emptied or not os.path.lexists(base.path / _OURS)
    with changing(base.ground) as transaction:
        try:
            yield transaction, base.read()
        finally:
            if not os.path.lexists(base.file):
                # The lock is still held: a process that waits for it notices, and creates a new one.
                with contextlib.suppress(OSError):
                    shutil.rmtree(base.path / _OURS / STAGING, ignore_errors=True)
                    os.unlink(base.path / _OURS / LOCK)
                    if emptied:
                        os.rmdir(base.path / _OURS)  # only if it is empty


def link(skills: Collection[Skill], base: Base, *, agents: Sequence[Compatible]) -> list[LinkResult]:
    """Link all these skills for all these agents, or none of them."""
    with _changing(base) as (transaction, links):
        wanted = [_link(s, agent, base) for agent in dict.fromkeys(agents) for s in skills]
        actions = _changes(wanted, links, base)
        made = [one for one in wanted if one.place in actions]
        for one in made:
            staged = transaction.staging / one.place
            if not staged.parent.is_dir():
                staged.parent.mkdir(parents=True)
            os.symlink(base.target_of(one), staged, target_is_directory=True)
            transaction.move(one.place, staged=True, keep=False)
        if made:
            kept = [one for one in links.links if one.place not in actions]
            steps = {step for one in made for step in steps_to(os.path.dirname(one.place))}
            missing = [step for step in steps if not os.path.lexists(base.path / step)]
            record = Links((*kept, *made), (*links.directories, *missing))
            transaction.commit({_LINKS_FILE: record.to_text()})
    return [base.result(one, actions.get(one.place, "there")) for one in wanted]


def unlink(names: Sequence[str] | None, base: Base, *, agents: Sequence[Compatible] = ()) -> list[LinkResult]:
    """Remove the links with these names, or all links; files that are no longer ours stay."""
    if not os.path.lexists(base.file) and not os.path.lexists(base.path / _OURS / LOCK):
        _refuse_unknown(names or (), base)
        return []
    with _changing(base, emptied=True) as (transaction, links):
        chosen = {
            one.place: one
            for one in links.links
            if (names is None or one.name in names) and (not agents or one.agent in agents)
        }
        _refuse_unknown(sorted({*(names or ())} - {one.name for one in chosen.values()}), base)
        actions: dict[str, Action] = {}
        for place, one in chosen.items():
            actions[place] = "other" if os.path.lexists(base.path / place) else "gone"
            if base.has(one):
                actions[place] = "removed"
                transaction.move(place, staged=False, keep=False)
        left = tuple(one for one in links.links if one.place not in chosen)
        needed = {step for one in left for step in steps_to(base.directory(one.agent))}
        gone = sorted({*links.directories} - needed, key=len, reverse=True)
        if links != Links():
            record = Links(left, tuple({*links.directories} & needed))
            emptied = [directory for directory in gone if base.is_inside(f"{directory}/x")]
            transaction.commit({_LINKS_FILE: record.to_text()}, emptied=emptied)
    return [base.result(one, actions[place]) for place, one in chosen.items()]


def _refuse_unknown(names: Sequence[str], base: Base) -> None:
    if names:
        text = f"No link of {names[0]!r} is recorded in {base.file}"
        raise PackRefused(f"{text}: vade unlink removes only what vade link created.", code="missing")


def _link(skill: Skill, agent: Compatible, base: Base) -> Link:
    """Return the link to create; its directory must be inside the base, and outside of the skill."""
    source = Path(os.path.realpath(skill.location))
    directory = base.inside(base.directory(agent))
    for step in (base.path / step for step in steps_to(base.directory(agent))):
        if os.path.lexists(step) and not step.is_dir():
            raise PackRefused(f"{step} is not a directory: move it away first.")
    if directory.is_relative_to(source):
        raise PackRefused(f"{directory} is inside the skill {skill.name!r} itself: nothing was linked.")
    inside = source.is_relative_to(base.path)
    relative = source.relative_to(base.path).as_posix() if inside else str(source)
    return Link(skill.name, agent, f"{base.directory(agent)}/{skill.name}", relative)


def _changes(wanted: Sequence[Link], links: Links, base: Base) -> dict[str, Action]:
    """Return the action for each place; raise ``PackRefused`` if something is in the way."""
    ours = {one.place: one for one in links.links if base.has(one)}
    actions: dict[str, Action] = {}
    done: set[Path] = set()  # the directories of two agents can be one
    for one in wanted:
        place = base.inside(os.path.dirname(one.place)) / one.name
        if place in done:
            continue
        done.add(place)
        if one.place in ours:
            if ours[one.place].source != one.source:
                actions[one.place] = "refreshed"
        elif not os.path.lexists(place):
            actions[one.place] = "linked"
        elif os.path.realpath(place) != os.path.realpath(base.path / one.source):
            raise PackRefused(
                f"{base.path / one.place} was not made by vade link: move it away first; nothing was changed."
            )
    return actions
