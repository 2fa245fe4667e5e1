"""Skills where other agents look for them, as links or copies, and the way back.

``.agent/links.json`` records what was made, and the transaction of installations makes it. A project may
bring such a record along. So it can only name places that a link could have, and the disk decides whether
what is there is ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, structs

from vademecum.config import COMPATIBLE, Compatible
from vademecum.errors import FileRefused, IntegrityFailed, PackRefused, PathRefused
from vademecum.packs.content import digest_of, files_of
from vademecum.packs.lock import is_skill_path
from vademecum.packs.records import json_text, read_json
from vademecum.packs.sources.entry_names import MAX_NAME_BYTES
from vademecum.packs.transaction import LOCK, TRASH, Ground, Transaction, changing
from vademecum.paths import MAX_PATH_CHARS, contained, open_contained
from vademecum.registry.index import SkillIndex
from vademecum.registry.roots import STAGING, directory_of
from vademecum.skill.digest import directory_digest
from vademecum.skill.skill import Skill

MAX_NAMED = 5
# What file systems without links answer: FAT, some network shares, some containers.
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
_OURS, _LINKS_FILE = ".agent", ".agent/links.json"

LinkKind = Literal["link", "copy"]
# What is at a place: nothing, what was made there, a copy that was edited, or something else.
State = Literal["free", "ours", "edited", "other"]
Action = Literal["linked", "copied", "refreshed", "there", "removed", "kept", "gone", "other"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATH_CHARS)]
Digest = Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class Link(Struct, frozen=True, omit_defaults=True):
    """One skill in the directory of one agent; ``digest`` and ``inode`` tell a copy of ours from all others.

    ``place`` is relative to the project or the home directory, and ``source`` too if it is below.
    """

    name: Text
    agent: Compatible
    place: Text
    kind: LinkKind
    source: Text
    digest: Digest = ""
    inode: int = 0


class Links(Struct, frozen=True):
    """Everything that was linked below one base, and the directories that were made for it."""

    links: tuple[Link, ...] = ()
    directories: tuple[str, ...] = ()
    version: Literal[1] = 1

    def to_text(self) -> str | None:
        """Return the file's content, or None if there is nothing to record."""
        if not self.links and not {*self.directories} - {_OURS}:
            return None
        ordered = tuple(sorted(self.links, key=lambda link: link.place))
        return json_text(Links(ordered, tuple(sorted({*self.directories}))))


class LinkResult(Struct, frozen=True):
    """The result for one place; ``kept`` is where an edited copy was moved to."""

    name: str
    agent: Compatible
    place: Path
    kind: LinkKind
    source: str
    action: Action
    kept: Path | None = None


class Base(Struct, frozen=True):
    """A project or the home directory: where the agents' directories are, and the record of links."""

    path: Path
    at_home: bool = False

    @property
    def real(self) -> Path:
        """Return the directory itself, with no link on the way to it."""
        return Path(os.path.realpath(self.path))

    @property
    def file(self) -> Path:
        """Return where the links are recorded."""
        return self.path / _LINKS_FILE

    @property
    def ground(self) -> Ground:
        """Return what a change of links may touch."""
        known = {_OURS, *(step for agent in COMPATIBLE for step in _steps_to(self.directory(agent)))}
        return Ground(
            self.real / _OURS,
            self.real,
            lambda place: self._can_be_link(place) and self.is_inside(place),
            lambda relative: relative == _LINKS_FILE or relative in known,
        )

    def _can_be_link(self, place: str) -> bool:
        directory, _, name = place.rpartition("/")
        known = directory in {self.directory(agent) for agent in COMPATIBLE}
        return known and is_skill_path(name) and len(os.fsencode(name)) <= MAX_NAME_BYTES

    def is_inside(self, relative: str) -> bool:
        """Return whether the directory of a place is in the base once links are followed."""
        with contextlib.suppress(PackRefused):
            self.inside(os.path.dirname(relative))
            return True
        return False

    def directory(self, agent: Compatible) -> str:
        """Return the directory of an agent's skills, below the base."""
        return directory_of(agent, at_home=self.at_home)

    def place(self, agent: Compatible, name: str) -> str:
        """Return where a skill of that name belongs, below the base."""
        return f"{self.directory(agent)}/{name}"

    def inside(self, relative: str) -> Path:
        """Return the real path of something below the base; refuse it if a link leads out."""
        try:
            return Path(os.path.realpath(contained(self.real, relative)))
        except PathRefused as error:
            raise PackRefused(
                f"{self.path / relative} leads out of {self.path} through a link: remove that link first."
            ) from error

    def read(self) -> Links:
        """Return what is recorded."""
        self.inside(_LINKS_FILE)
        found = read_json(self.file, Links, advice="restore it, or delete it and the links by hand")
        if found is None:
            return Links()
        wrong = [
            link.place
            for link in found.links
            if not self._can_be_link(link.place) or link.place != self.place(link.agent, link.name)
        ]
        wrong += [one for one in found.directories if one == _LINKS_FILE or not self.ground.may_write(one)]
        if wrong:
            raise IntegrityFailed(
                f"{self.file} has an entry {wrong[0][:100]!r} that cannot be right: delete it."
            )
        return found

    def look(self, link: Link) -> State:
        """Return what is at the place of a link."""
        if not self.is_inside(link.place):
            return "other"
        place = self.real / link.place
        if not os.path.lexists(place):
            return "free"
        if link.kind == "link":
            return "ours" if place.is_symlink() and os.readlink(place) == self.target_of(link) else "other"
        if place.is_symlink() or not place.is_dir() or place.stat().st_ino != link.inode:
            return "other"
        try:
            return "ours" if directory_digest(str(place)) == link.digest else "edited"
        except (OSError, FileRefused):
            return "edited"

    def target_of(self, link: Link) -> str:
        """Return what a link says: a relative path inside the base, so that the base can move."""
        if os.path.isabs(link.source):
            return link.source
        return os.path.relpath(self.real / link.source, self.inside(self.directory(link.agent)))


def _steps_to(directory: str) -> list[str]:
    """Return a relative directory and those around it, the outermost first.

    >>> _steps_to(".claude/skills")
    ['.claude', '.claude/skills']
    """
    return [*[str(parent) for parent in PurePosixPath(directory).parents][-2::-1], directory]


class _Wanted(Struct, frozen=True):
    """One place: what is wanted there, and what is there now."""

    link: Link
    source: Path
    state: State
    found: Link | None = None

    def is_there(self, base: Base) -> bool:
        """Return whether nothing has to be done."""
        place, found = base.real / self.link.place, self.found
        if found is None:
            return self.state == "other" and os.path.realpath(place) == str(self.source)
        if found.kind == "link":
            return (found.kind, found.source) == (self.link.kind, self.link.source)
        if self.state == "edited":
            return found.source == self.link.source and digest_of(files_of(self.source)) == found.digest
        return files_of(self.source) == files_of(place)


@contextlib.contextmanager
def _changing(base: Base) -> Iterator[tuple[Transaction, Links, bool]]:
    """Hold the lock and yield the record; remove what is ours if nothing is recorded afterwards."""
    base.inside(_LINKS_FILE)
    with changing(base.ground) as transaction:
        made = transaction.made_control
        try:
            links = base.read()
            made = made or _OURS in links.directories
            yield transaction, links, made
        finally:
            if not os.path.lexists(base.file):
                # The lock is still held: a process that waits for it notices, and makes a new one.
                with contextlib.suppress(OSError):
                    shutil.rmtree(base.real / _OURS / STAGING, ignore_errors=True)
                    os.unlink(base.real / _OURS / LOCK)
                    if made:
                        os.rmdir(base.real / _OURS)


def link(
    skills: Iterable[Skill],
    base: Base,
    *,
    agents: Sequence[Compatible],
    copy: bool = False,
    force: bool = False,
) -> list[LinkResult]:
    """Put all these skills where all these agents look, or none of them anywhere."""
    chosen = {skill.name: skill for skill in skills}
    with _changing(base) as (transaction, links, made):
        kind: LinkKind = "copy" if copy else "link"
        wanted = [
            _wanted(s, agent, base, links, kind) for agent in dict.fromkeys(agents) for s in chosen.values()
        ]
        changes = _changes(wanted, base, force=force)
        results = {place: _put(one, base, transaction) for place, one in changes.items()}
        if changes:
            kept = [one for one in links.links if one.place not in changes]
            directories = {*links.directories, *_missing(changes, base), *([_OURS] if made else [])}
            record = Links((*kept, *(one for _, one in results.values())), tuple(directories))
            transaction.commit({_LINKS_FILE: record.to_text()})
    there = {place: result for place, (result, _) in results.items()}
    return [there.get(one.link.place) or _result(one.link, base, "there") for one in wanted]


def unlink(
    names: Sequence[str] | None,
    base: Base,
    *,
    agents: Sequence[Compatible] = (),
    force: bool = False,
) -> list[LinkResult]:
    """Take away what was linked under these names, or everything; what is not ours any more stays."""
    if not os.path.lexists(base.file) and not os.path.lexists(base.path / _OURS / LOCK):
        _refuse_unknown(names or (), base)
        return []
    with _changing(base) as (transaction, links, _):
        chosen = {
            one.place: one
            for one in links.links
            if (names is None or one.name in names) and (not agents or one.agent in agents)
        }
        _refuse_unknown(sorted({*(names or ())} - {one.name for one in chosen.values()}), base)
        states = {place: base.look(one) for place, one in chosen.items()}
        if not force:
            _refuse_edits(base.path / place for place, state in states.items() if state == "edited")
        results = [_take(one, states[place], base, transaction) for place, one in chosen.items()]
        left = tuple(one for one in links.links if one.place not in chosen)
        needed = {step for one in left for step in _steps_to(base.directory(one.agent))}
        gone = sorted({*links.directories} - needed - {_OURS}, key=len, reverse=True)
        record = Links(left, tuple({*links.directories} - {*gone}))
        if links != Links():
            emptied = [directory for directory in gone if base.is_inside(f"{directory}/x")]
            transaction.commit({_LINKS_FILE: record.to_text()}, emptied=emptied)
    return results


def origins_of(skills: Iterable[Skill], index: SkillIndex, base: Base) -> list[Skill]:
    """Replace copies of ours that the index found first by the skills they were made of."""
    # The record may have come with the project: only a copy that is there as it was made names its source.
    copies = {
        os.path.realpath(base.real / one.place): os.path.realpath(base.real / one.source)
        for one in base.read().links
        if one.kind == "copy" and base.look(one) in {"ours", "edited"}
    }
    everyone = (*index.shadowed, *index.skills) if copies else ()
    there = {os.path.realpath(one.location): one for one in everyone}
    found = []
    for skill in skills:
        origin = there.get(copies.get(os.path.realpath(skill.location), ""), skill)
        found.append(origin if origin.name == skill.name else skill)
    return found


def _refuse_unknown(names: Sequence[str], base: Base) -> None:
    if names:
        raise PackRefused(
            f"No link of {names[0]!r} is recorded in {base.file}: only what vade link made is taken away.",
            code="missing",
        )


def _wanted(skill: Skill, agent: Compatible, base: Base, links: Links, kind: LinkKind) -> _Wanted:
    """Look at one place, which must be inside the base, and at what is there."""
    source = Path(os.path.realpath(skill.location))
    directory = base.inside(base.directory(agent))
    for step in (base.path / step for step in _steps_to(base.directory(agent))):
        if os.path.lexists(step) and not step.is_dir():
            raise PackRefused(f"{step} is not a directory: move it away first.")
    if directory.is_relative_to(source):
        raise PackRefused(f"{directory} lies inside the skill {skill.name!r} itself: nothing was linked.")
    inside = source.is_relative_to(base.real)
    relative = source.relative_to(base.real).as_posix() if inside else str(source)
    wanted = Link(skill.name, agent, base.place(agent, skill.name), kind, relative)
    found = next((one for one in links.links if one.place == wanted.place), None)
    state = "free" if found is None else base.look(found)
    if state not in {"ours", "edited"}:
        found = None
        state = "other" if os.path.lexists(base.real / wanted.place) else "free"
    if found is not None and found.kind == "copy":
        wanted = structs.replace(wanted, kind="copy")  # a copy stays one until it is unlinked
    return _Wanted(wanted, source, state, found)


def _changes(wanted: Sequence[_Wanted], base: Base, *, force: bool) -> dict[str, _Wanted]:
    """Return the places where something has to be done; refuse if something is in the way."""
    changes: dict[Path, _Wanted] = {}
    for one in wanted:
        if not one.is_there(base):
            changes.setdefault(base.inside(os.path.dirname(one.link.place)) / one.link.name, one)
    foreign = [base.path / one.link.place for one in changes.values() if one.state == "other"]
    if foreign:
        raise PackRefused(
            f"{_named(foreign)} not made by vade link: move it away first; nothing was changed."
        )
    if not force:
        _refuse_edits(base.path / one.link.place for one in changes.values() if one.state == "edited")
    return {one.link.place: one for one in changes.values()}


def _refuse_edits(places: Iterable[Path]) -> None:
    edited = list(places)
    if edited:
        raise PackRefused(
            f"{_named(edited)} changed since it was copied: say --force to take it away (it is kept in "
            f"{_OURS}/{TRASH}); nothing was changed."
        )


def _named(places: Sequence[Path]) -> str:
    shown = ", ".join(map(str, places[:MAX_NAMED]))
    more = f" and {len(places) - MAX_NAMED:,} more" if len(places) > MAX_NAMED else ""
    return f"{shown}{more} {'was' if len(places) == 1 else 'were'}"


def _put(one: _Wanted, base: Base, transaction: Transaction) -> tuple[LinkResult, Link]:
    """Stage a link or a copy, and say what becomes of the place."""
    staged = _staged(one, base, transaction.staging / one.link.place)
    kept = transaction.kept(one.link.place) if one.state == "edited" else None
    transaction.put(one.link.place, keep_old=kept is not None)
    same = one.found is not None and one.found.kind == staged.kind
    action: Action = "refreshed" if same else "linked" if staged.kind == "link" else "copied"
    return _result(staged, base, action, kept), staged


def _take(one: Link, state: State, base: Base, transaction: Transaction) -> LinkResult:
    """Take away what is ours; anything else is only reported."""
    if state in {"free", "other"}:
        return _result(one, base, "gone" if state == "free" else "other")
    kept = transaction.kept(one.place) if state == "edited" else None
    transaction.take_away(one.place, keep=kept is not None)
    return _result(one, base, "kept" if kept else "removed", kept)


def _missing(changes: Iterable[str], base: Base) -> list[str]:
    """Return the directories that will be made."""
    steps = {step for place in changes for step in _steps_to(os.path.dirname(place))}
    return [step for step in steps if not os.path.lexists(base.real / step)]


def _staged(one: _Wanted, base: Base, place: Path) -> Link:
    """Make the link or the copy aside; a copy if the file system has no links."""
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True)
    if one.link.kind == "link":
        try:
            os.symlink(base.target_of(one.link), place, target_is_directory=True)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return one.link
    for file in files_of(one.source):
        target = place / file.path
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True)
        with os.fdopen(open_contained(one.source, file.path), "rb") as given, open(target, "xb") as out:
            shutil.copyfileobj(given, out)
        target.chmod(0o755 if file.executable else 0o644)
    digest = directory_digest(str(place))
    return structs.replace(one.link, kind="copy", digest=digest, inode=place.stat().st_ino)


def _result(one: Link, base: Base, action: Action, kept: Path | None = None) -> LinkResult:
    source = os.path.normpath(base.path / one.source)
    return LinkResult(one.name, one.agent, base.path / one.place, one.kind, source, action, kept)
