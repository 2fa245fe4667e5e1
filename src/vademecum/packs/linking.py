"""Skills go where another agent looks for them, as links or copies; and the way back.

Everything is looked at before anything is changed, and what fails half-way is undone. A process may be killed
at any point all the same. So what will be made is remembered before it is made, and forgotten only once it is
gone: nothing of ours lies about unknown, and nothing is taken away that is not ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from vademecum.config import COMPATIBLE, Compatible
from vademecum.errors import PackRefused
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.links import (
    Base,
    Kind,
    Link,
    Links,
    Memory,
    Sight,
    State,
    View,
    remembering,
    steps_to,
)
from vademecum.packs.moves import STAGING, TRASH, Moves, moving
from vademecum.paths import open_contained
from vademecum.registry.index import SkillIndex
from vademecum.skill.digest import directory_digest
from vademecum.skill.skill import Skill

MAX_NAMED = 5
# What file systems say that have no links: FAT, some network shares, some containers.
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}

Action = Literal["linked", "copied", "refreshed", "there", "removed", "kept", "gone", "other"]


class Done(Struct, frozen=True):
    """What happened at one place; ``kept`` is where edits were put."""

    name: str
    agent: Compatible
    place: Path
    kind: Kind
    source: str
    action: Action
    kept: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """As the commands print it."""
        kept = None if self.kept is None else str(self.kept)
        return {**structs.asdict(self), "place": str(self.place), "kept": kept}


class Step(Struct, frozen=True):
    """One place: what is to lie there, and what lies there now."""

    wanted: Link
    place: Path
    state: State
    source: Path
    found: Link | None = None

    @property
    def is_there(self) -> bool:
        """Whether nothing has to be done, because what lies there is what is wanted."""
        found = self.found
        if found is None:
            return self.state == "other" and os.path.realpath(self.place) == str(self.source)
        if found.kind == "link":
            return (found.kind, found.source) == (self.wanted.kind, self.wanted.source)
        if self.state == "edited":
            return found.source == self.wanted.source and digest_of(files_of(self.source)) == found.digest
        return files_of(self.source) == files_of(self.place)


def origins_of(skills: Iterable[Skill], index: SkillIndex, base: Base) -> list[Skill]:
    """These skills; for a copy of ours that the index found first, the one that it was made of."""
    chosen, remembered = list(skills), base.read()
    view = View(base, remembered)
    # Such a file may have come with the project: only what lies there as it was made says where it is from.
    copies = {
        os.path.realpath(base.real / one.place): os.path.realpath(base.real / one.source)
        for one in remembered.links
        if one.kind == "copy" and view.look(one.place) in {("ours", one), ("edited", one)}
    }
    everyone = (*index.shadowed, *index.skills) if copies else ()
    there = {os.path.realpath(one.location): one for one in everyone}
    origins = [there.get(copies.get(os.path.realpath(skill.location), ""), skill) for skill in chosen]
    return [
        origin if origin.name == skill.name else skill for skill, origin in zip(chosen, origins, strict=True)
    ]


def link(  # noqa: PLR0913 - one for each option
    skills: Iterable[Skill],
    base: Base,
    *,
    agents: Sequence[Compatible],
    copy: bool = False,
    force: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[Done]:
    """Put all these skills where all these agents look, or none of them anywhere."""
    chosen = {skill.name: skill for skill in skills}
    with remembering(base) as memory:
        view = View(memory.base, memory.links)
        _tidy(view)
        steps = [
            _step(skill, agent, view, kind="copy" if copy else "link")
            for agent in dict.fromkeys(agents)
            for skill in chosen.values()
        ]
        changes = _changes(steps, force=force)
        made = _made(changes, memory, view, clock)
    return [made.get(step.wanted.place, _done(step.wanted, base, "there")) for step in steps]


def unlink(
    names: Sequence[str] | None,
    base: Base,
    *,
    agents: Sequence[Compatible] = (),
    force: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[Done]:
    """Take away what was linked under these names, or everything; what is not ours any more stays."""
    if not base.is_known:
        _refuse_unknown(names or (), base)
        return []
    with remembering(base) as memory:
        view = View(memory.base, memory.links)
        _tidy(view)
        chosen = [
            one
            for one in memory.links.links
            if (names is None or one.name in names) and (not agents or one.agent in agents)
        ]
        _refuse_unknown(sorted({*(names or ())} - {one.name for one in chosen}), base)
        looked = {one.place: view.look(one.place) for one in chosen}
        if not force:
            _refuse_edits(base.path / place for place, (state, _) in looked.items() if state == "edited")
        done = _unmade(chosen, looked, view, clock)
        left = tuple(one for one in memory.links.links if one.place not in looked)
        memory.write(Links(left, _emptied(memory.links.directories, left, base)))
    return done


def _refuse_unknown(names: Sequence[str], base: Base) -> None:
    if names:
        raise PackRefused(
            f"No link of {names[0]!r} is remembered in {base.file}: only what vade link made is taken away.",
            code="missing",
        )


def _step(skill: Skill, agent: Compatible, view: View, *, kind: Kind) -> Step:
    """Look at one place, which must be inside the base, and at what is there."""
    source = Path(os.path.realpath(skill.location))
    place = view.directory(agent) / skill.name
    if place.is_relative_to(source) and place != source:
        raise PackRefused(f"{place.parent} lies inside the skill {skill.name!r} itself: nothing was linked.")
    inside = source.is_relative_to(view.real)
    relative = source.relative_to(view.real).as_posix() if inside else str(source)
    wanted = Link(skill.name, agent, view.base.place(agent, skill.name), kind, relative)
    state, found = view.look(wanted.place)
    if state == "free" and os.path.lexists(place):
        state = "other"
    if found is not None and found.kind == "copy":
        wanted = structs.replace(wanted, kind="copy")  # a copy stays one until it is unlinked
    return Step(wanted, place, state, source, found)


def _changes(steps: Sequence[Step], *, force: bool) -> list[Step]:
    """The places where something has to be done, each once; refused where something is in the way."""
    changes: dict[Path, Step] = {}
    for step in steps:
        if not step.is_there:
            changes.setdefault(step.place, step)
    foreign = [step.place for step in changes.values() if step.state == "other"]
    if foreign:
        raise PackRefused(
            f"{_named(foreign)} not made by vade link: move it away first; nothing was changed."
        )
    if not force:
        _refuse_edits(step.place for step in changes.values() if step.state == "edited")
    return list(changes.values())


def _refuse_edits(places: Iterable[Path]) -> None:
    edited = list(places)
    if edited:
        raise PackRefused(
            f"{_named(edited)} changed since it was copied: say --force to take it away (it is kept in "
            f"{TRASH}); nothing was changed."
        )


def _named(places: Sequence[Path]) -> str:
    shown = ", ".join(map(str, places[:MAX_NAMED]))
    more = f" and {len(places) - MAX_NAMED:,} more" if len(places) > MAX_NAMED else ""
    return f"{shown}{more} {'was' if len(places) == 1 else 'were'}"


def _made(changes: list[Step], memory: Memory, view: View, clock: Callable[[], float]) -> dict[str, Done]:
    """Make everything, or nothing: directories, then all links and copies aside, then each in its place."""
    if not changes:
        return {}
    before, done = memory.links, {}
    with moving(memory.base, clock) as moves:
        moves.undo.callback(memory.write, before)
        directories = _missing(changes, memory.base)
        known = structs.replace(before, directories=(*before.directories, *directories))
        memory.write(known)
        for relative in directories:
            moves.make(view.real / relative)
        staged = [_staged(step, moves.aside(step.place.parent), view) for step in changes]
        memory.write(structs.replace(known, links=(*before.links, *staged)))
        for step, one in zip(changes, staged, strict=True):
            kept = _taken(step.place, step.state, one, moves)
            moves.put(step.place)
            done[one.place] = _done(one, memory.base, _verb(step, one), kept)
        memory.write(_replaced(known, staged))
    return done


def _taken(place: Path, state: State, one: Link, moves: Moves) -> Path | None:
    """Take away what lies at a place, if anything does; edits are kept, and said where."""
    if state == "edited":
        return moves.keep(place, one)
    if state == "ours":
        moves.take(place)
    return None


def _replaced(known: Links, staged: Sequence[Link]) -> Links:
    """The memory with these links, and none of those that were in their places."""
    places = {one.place for one in staged}
    return structs.replace(known, links=(*(one for one in known.links if one.place not in places), *staged))


def _verb(step: Step, one: Link) -> Action:
    if step.found is not None and step.found.kind == one.kind:
        return "refreshed"
    return "linked" if one.kind == "link" else "copied"


def _missing(changes: Sequence[Step], base: Base) -> list[str]:
    """The directories that have to be made, the outer ones first."""
    wanted = [step for change in changes for step in steps_to(base.directory(change.wanted.agent))]
    return [step for step in dict.fromkeys(wanted) if not os.path.lexists(base.real / step)]


def _tidy(view: View) -> None:
    """Remove what a command that was killed had prepared, wherever it may be."""
    for agent in COMPATIBLE:
        with contextlib.suppress(PackRefused):
            # A link of that name is not followed: it stays, in the way of whoever wants to stage there.
            shutil.rmtree(view.directory(agent) / STAGING, ignore_errors=True)


def _staged(step: Step, aside: Path, view: View) -> Link:
    """Make the link or the copy aside; a copy where the file system has no links."""
    one, place = step.wanted, aside / step.wanted.name
    if one.kind == "link":
        try:
            os.symlink(view.leads(one), place, target_is_directory=True)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return one
    _copy(step.source, place)
    digest = directory_digest(str(place))
    return structs.replace(one, kind="copy", digest=digest, inode=place.stat().st_ino)


def _copy(source: Path, place: Path) -> None:
    """Copy the files of a skill, without what nobody would ship; a link among them is refused."""
    for file in files_of(source):
        target = place / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if file.executable else 0o644
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(open_contained(source, file.path), "rb") as given, os.fdopen(made, "wb") as out:
            shutil.copyfileobj(given, out)


def _unmade(
    chosen: Sequence[Link], looked: Mapping[str, Sight], view: View, clock: Callable[[], float]
) -> list[Done]:
    """Take away what is ours, all of it or nothing; the rest is only said."""
    by_place = {one.place: one for one in chosen}
    done = []
    with moving(view.base, clock) as moves:
        for place, (state, found) in looked.items():
            if found is None:
                action: Action = "gone" if state == "free" else "other"
                done.append(_done(by_place[place], view.base, action))
                continue
            kept = _taken(view.directory(found.agent) / found.name, state, found, moves)
            done.append(_done(found, view.base, "removed" if kept is None else "kept", kept))
    return done


def _emptied(directories: Sequence[str], left: Sequence[Link], base: Base) -> tuple[str, ...]:
    """Remove the directories that were made for links and hold none now; those that are still needed."""
    needed = {step for one in left for step in steps_to(base.directory(one.agent))}
    for directory in sorted({*directories} - needed, key=len, reverse=True):
        with contextlib.suppress(OSError, PackRefused):
            base.inside(directory)
            os.rmdir(base.real / directory)  # which only an empty one lets happen
    return tuple(directory for directory in directories if directory in needed)


def _done(one: Link, base: Base, action: Action, kept: Path | None = None) -> Done:
    source = os.path.normpath(base.path / one.source)
    return Done(one.name, one.agent, base.path / one.place, one.kind, source, action, kept)
