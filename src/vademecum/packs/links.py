"""What ``vade link`` made for other agents, and where: the memory that ``vade unlink`` goes by.

A project may bring such a memory along. So it can only name places that a link could have, and it is the disk
that says whether what lies there is ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from vademecum.config import COMPATIBLE, Compatible
from vademecum.errors import FileRefused, IntegrityFailed, PackRefused, PathRefused
from vademecum.files import read_capped, write_atomic
from vademecum.packs.names import MAX_NAME_BYTES
from vademecum.packs.transaction import is_plain_name
from vademecum.paths import MAX_PATH_CHARS, contained
from vademecum.registry.roots import directory_of
from vademecum.skill.digest import directory_digest

LINKS_VERSION = 1
MAX_LINKS_BYTES = 16 * 1024 * 1024

_OURS, _LINKS_FILE, _LOCK = ".agent", ".agent/links.json", ".agent/.links.lock"
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64})?\Z")

Kind = Literal["link", "copy"]
# What lies at a place: nothing, what was made there, a copy that somebody changed, or something else.
State = Literal["free", "ours", "edited", "other"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATH_CHARS)]


class Link(Struct, frozen=True, omit_defaults=True):
    """One skill in the directory of one agent; ``digest`` and ``inode`` tell a copy of ours from all others.

    ``place`` is relative to the project or the home directory, ``source`` too where it lies below.
    """

    name: Text
    agent: Compatible
    place: Text
    kind: Kind
    source: Text
    digest: str = ""
    inode: int = 0


Sight = tuple[State, Link | None]


class Links(Struct, frozen=True):
    """Everything that was linked below one base, and the directories that were made for it."""

    links: tuple[Link, ...] = ()
    directories: tuple[str, ...] = ()
    version: int = LINKS_VERSION

    def to_text(self) -> str:
        """The file's content: the same links give the same bytes."""
        ordered = sorted(self.links, key=lambda link: (link.place, link.kind, link.source))
        links = Links(tuple(ordered), self.directories)
        return msgspec.json.format(msgspec.json.encode(links), indent=2).decode() + "\n"


class Base(Struct, frozen=True):
    """A project or the home directory: where the agents' directories lie below it, and the memory."""

    path: Path
    at_home: bool = False

    @property
    def real(self) -> Path:
        """The directory itself, no link on the way to it."""
        return Path(os.path.realpath(self.path))

    @property
    def file(self) -> Path:
        """Where the links are remembered."""
        return self.path / _LINKS_FILE

    @property
    def is_known(self) -> bool:
        """Whether anything was linked here, or a command that would have done so was cut short."""
        return os.path.lexists(self.file) or os.path.lexists(self.path / _LOCK)

    def directory(self, agent: Compatible) -> str:
        """The directory of an agent's skills, below the base."""
        return directory_of(agent, at_home=self.at_home)

    def place(self, agent: Compatible, name: str) -> str:
        """Where a skill of that name belongs, below the base."""
        return f"{self.directory(agent)}/{name}"

    def inside(self, relative: str) -> Path:
        """The real path of something below the base, refused where a link leads out of it."""
        try:
            return Path(os.path.realpath(contained(self.real, relative)))
        except PathRefused as error:
            raise PackRefused(
                f"{self.path / relative} leads out of {self.path} through a link: remove that link first."
            ) from error

    def read(self) -> Links:
        """What is remembered; nothing where nothing was linked yet."""
        self.inside(_LINKS_FILE)
        try:
            found = msgspec.json.decode(read_capped(self.file, cap=MAX_LINKS_BYTES), type=Links)
        except FileNotFoundError:
            return Links()
        except (OSError, FileRefused, msgspec.DecodeError, RecursionError) as error:
            raise IntegrityFailed(
                f"{self.file} cannot be read ({error}): restore it, or remove it and the links by hand."
            ) from error
        if found.version != LINKS_VERSION:
            raise IntegrityFailed(
                f"{self.file} has version {found.version}, which is not known here: update vademecum."
            )
        self._check(found)
        return found

    def _check(self, found: Links) -> None:
        """Refuse what no command of ours could have written."""
        known = {_OURS, *(step for agent in COMPATIBLE for step in steps_to(self.directory(agent)))}
        wrong = [link.place for link in found.links if not self._is_sound(link)]
        wrong += [directory for directory in found.directories if directory not in known]
        if wrong:
            raise IntegrityFailed(
                f"{self.file} has an entry {wrong[0][:100]!r} that cannot be right: look, then remove it."
            )

    def _is_sound(self, link: Link) -> bool:
        return (
            is_plain_name(link.name)
            and len(os.fsencode(link.name)) <= MAX_NAME_BYTES
            and link.place == self.place(link.agent, link.name)
            and _DIGEST.match(link.digest) is not None
        )


def steps_to(directory: str) -> list[str]:
    """A relative directory and those around it, the outermost first.

    >>> steps_to(".claude/skills")
    ['.claude', '.claude/skills']
    """
    around = [str(parent) for parent in PurePosixPath(directory).parents][-2::-1]
    return [*around, directory]


class View:
    """A base as it is now: what is remembered of each place, and what the disk says of it."""

    def __init__(self, base: Base, links: Links) -> None:
        self.base = base
        self.real = base.real
        self._directories: dict[Compatible, Path] = {}
        # Two at one place, where a command was killed while it replaced one by the other.
        self._remembered: dict[str, list[Link]] = {}
        for link in links.links:
            self._remembered.setdefault(link.place, []).append(link)

    def directory(self, agent: Compatible) -> Path:
        """The real directory of an agent's skills, which need not exist yet."""
        if agent not in self._directories:
            relative = self.base.directory(agent)
            found = self.base.inside(relative)
            for step in (self.base.path / step for step in steps_to(relative)):
                if os.path.lexists(step) and not step.is_dir():
                    raise PackRefused(f"{step} is not a directory: move it away first.")
            self._directories[agent] = found
        return self._directories[agent]

    def look(self, place: str) -> Sight:
        """What lies at a place, and which of the remembered links it is."""
        state: State = "free"
        for link in self._remembered.get(place, ()):
            state = self._state(link)
            if state in {"ours", "edited"}:
                return state, link
        return state, None

    def _state(self, link: Link) -> State:
        try:
            place = self.directory(link.agent) / link.name
        except PackRefused:
            return "other"
        if not os.path.lexists(place):
            return "free"
        if link.kind == "link":
            return "ours" if place.is_symlink() and os.readlink(place) == self.leads(link) else "other"
        if place.is_symlink() or not place.is_dir() or place.stat().st_ino != link.inode:
            return "other"
        try:
            return "ours" if directory_digest(str(place)) == link.digest else "edited"
        except (OSError, FileRefused):
            return "edited"

    def leads(self, link: Link) -> str:
        """What a link says: the way from its own directory inside the base, so that the base can move."""
        if os.path.isabs(link.source):
            return link.source
        return os.path.relpath(self.real / link.source, self.directory(link.agent))


class Memory:
    """The links of one base, for the process that alone may change them."""

    def __init__(self, base: Base, *, made: bool) -> None:
        self.base = base
        self.links = base.read()
        self.made = made or _OURS in self.links.directories

    def write(self, links: Links) -> None:
        """Remember these links and no others; where there are none, there is no file."""
        needed = {*links.directories, *([_OURS] if self.made else [])}
        wanted = Links(links.links, tuple(sorted(needed)))
        try:
            if not links.links and needed <= {_OURS}:
                self.base.file.unlink(missing_ok=True)
            elif wanted != self.links:
                write_atomic(self.base.file, wanted.to_text().encode())
        except OSError as error:
            raise PackRefused(
                f"{self.base.file} could not be written ({error.strerror}): run the command again."
            ) from error
        self.links = wanted


@contextlib.contextmanager
def remembering(base: Base) -> Iterator[Memory]:
    """Hold the links of a base, alone; afterwards nothing of ours is left where nothing is remembered."""
    base.inside(_LINKS_FILE)
    try:
        held, made = _locked(base.path)
    except OSError as error:
        raise PackRefused(
            f"{base.path / _OURS} cannot be changed ({error.strerror}): make it writable."
        ) from error
    try:
        memory = Memory(base, made=made)
        try:
            yield memory
        finally:
            if not os.path.lexists(base.file):
                _clear(base.path, made=memory.made)
    finally:
        os.close(held)


def _clear(base: Path, *, made: bool) -> None:
    """Take the lock away while it is held: whoever waits for it sees that, and makes a new one."""
    with contextlib.suppress(OSError):
        os.unlink(base / _LOCK)
        if made:
            os.rmdir(base / _OURS)


def _locked(base: Path) -> tuple[int, bool]:
    """The lock, and whether its directory had to be made."""
    made = False
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(base / _OURS)
            made = True
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(base / _LOCK, flags, 0o644)
        except FileNotFoundError:
            if os.path.islink(base / _OURS):
                raise  # it leads to nothing
            continue  # another command just took the directory away
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(base / _LOCK)):
                    return descriptor, made
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
