"""Changes to a root that happen whole or not at all, even when the machine dies between two of them.

New skills are prepared aside, in ``.staging/`` of the same root. Then one file, the journal, says what is to
be moved where: once it is on disk, the change happens, now or when the next command finds it; before that, it
never does. Whatever is replaced goes to ``.trash/``. One process at a time changes a root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from vademecum.errors import ConfigError, FileRefused
from vademecum.files import read_capped, write_atomic
from vademecum.packs.installed import INSTALLED
from vademecum.packs.lock import LOCK_FILE
from vademecum.packs.npm_lock import NPM_LOCK
from vademecum.registry.roots import JOURNAL, STAGING, needs_recovery

TRASH, LOCK = ".trash", ".lock"
MAX_JOURNAL_BYTES = 64 * 1024 * 1024
_SYNC_ONE_BY_ONE = 100
_MOMENT = re.compile(r"\d{8}T\d{6}\.\d{6}\Z")
_NOTE = re.compile(rf"{re.escape(TRASH)}/[^/.][^/]*/[\dT.]+\.lock\.json\Z")


class Move(msgspec.Struct, frozen=True):
    """One skill's place: whether something staged is put there, and whether what was there is kept."""

    name: str
    staged: bool
    kept: bool
    inode: int = 0


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that will happen; ``files`` are those beside the skills that it writes, with their content.

    A journal may come with a project that somebody cloned. So it names no path that is not known beforehand,
    and the root that it is for.
    """

    moment: str
    root: int
    moves: tuple[Move, ...]
    files: dict[str, str] = {}

    def is_for(self, root: Path) -> bool:
        """Whether it could be one of ours, and for this very root."""
        return (
            self.root == _inode(root)
            and _MOMENT.match(self.moment) is not None
            and all(is_plain_name(move.name) for move in self.moves)
            and all(_may_be_written(relative) for relative in self.files)
        )


class RootChange:
    """One change of one root, made by the process that holds the root's lock."""

    def __init__(self, root: Path, *, clock: Callable[[], float], durable: bool) -> None:
        self._root = root
        self._durable = durable
        now = clock()
        self.moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1e6) % 1_000_000:06}"
        self._moves: list[Move] = []

    @property
    def staging(self) -> Path:
        """Where new skills are prepared."""
        return self._root / STAGING / self.moment

    def put(self, name: str, *, keep_old: bool = True) -> None:
        """Put the staged skill of that name in its place; what is there is kept or deleted."""
        self._check_trash(name)
        inode = (self.staging / name).stat().st_ino
        self._moves.append(Move(name, staged=True, kept=keep_old, inode=inode))

    def take_away(self, name: str, *, keep: bool = True) -> None:
        """Empty a skill's place; what is there is kept or deleted."""
        self._check_trash(name)
        self._moves.append(Move(name, staged=False, kept=keep))

    def _check_trash(self, name: str) -> None:
        place = self._root / TRASH / name
        if os.path.islink(place):
            raise ConfigError(f"{place} is a link, which could lead anywhere: remove it.")

    def commit(self, files: Mapping[Path, str]) -> None:
        """Write the journal, which is the point of no return, and carry it out."""
        if self._durable:
            _sync_trees([self.staging / move.name for move in self._moves if move.staged], self._root)
        texts = {os.path.relpath(path, self._root): text for path, text in files.items()}
        journal = Journal(self.moment, _inode(self._root), tuple(self._moves), texts)
        assert journal.is_for(self._root)
        _write_synced(self._root / JOURNAL, msgspec.json.encode(journal))
        _carry_out(self._root, journal)

    def kept(self, name: str) -> Path:
        """Where what is in a skill's place would be kept."""
        return self._root / TRASH / name / self.moment


@contextlib.contextmanager
def changing(
    root: Path, *, clock: Callable[[], float] = time.time, durable: bool = True
) -> Iterator[RootChange]:
    """Hold a root's lock, finish what was begun before, and clean up afterwards.

    What is not ``durable`` survives the death of a process, but perhaps not that of the machine.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        held = _locked(root, fcntl.LOCK_EX)
    except OSError as error:
        raise ConfigError(f"{root} cannot be changed ({error.strerror}): make it writable.") from error
    for name in (STAGING, TRASH, JOURNAL):
        if os.path.islink(root / name):
            os.close(held)
            raise ConfigError(f"{root / name} is a link, which could lead anywhere: remove it.")
    try:
        recover(root)
        change = RootChange(root, clock=clock, durable=durable)
        try:
            yield change
        finally:
            # With a journal the change happens, if not now then next: what it moves must stay.
            if not (root / JOURNAL).exists():
                shutil.rmtree(root / STAGING, ignore_errors=True)
    finally:
        os.close(held)


def tidied(root: Path) -> str | None:
    """Finish or clean up what was cut short, unless somebody is at work there; says what was done."""
    if not needs_recovery(root):
        return None
    try:
        held = _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    try:
        return recover(root)
    except OSError:
        return None  # a place where we may only read
    finally:
        os.close(held)


def _locked(root: Path, how: int) -> int:
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a directory right in a root, and not one of our own."""
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def recover(root: Path) -> str | None:
    """Finish a change whose journal is there, and remove what was only prepared; says what was done."""
    done = None
    journal = _read(root / JOURNAL)
    if journal is not None and not journal.is_for(root):
        raise ConfigError(f"{root / JOURNAL} is none of this place: look at it, then remove it.")
    if journal is not None:
        _carry_out(root, journal)
        names = ", ".join(move.name for move in journal.moves) or "the lock"
        done = f"A change of {names} that was cut short was finished."
    if (root / STAGING).exists():
        shutil.rmtree(root / STAGING, ignore_errors=True)
        done = done or "What an interrupted change had prepared was removed."
    return done


def _carry_out(root: Path, journal: Journal) -> None:
    """Do all moves, each of which may have happened already."""
    for move in journal.moves:
        _move(root, move, journal.moment)
    for relative, text in journal.files.items():
        write_atomic(Path(os.path.normpath(root / relative)), text.encode())
    _sync(root)
    (root / JOURNAL).unlink(missing_ok=True)
    _sync(root)


def _move(root: Path, move: Move, moment: str) -> None:
    target, staged = root / move.name, root / STAGING / moment / move.name
    if move.staged and (_inode(target) == move.inode or not staged.is_dir()):
        return  # it is in its place already, or somebody took it away: what is there stays
    if os.path.lexists(target):
        gone = root / STAGING / f"gone-{os.urandom(6).hex()}"
        _put_away(target, root / TRASH / move.name / moment if move.kept else gone)
    if move.staged:
        os.rename(staged, target)


def _put_away(target: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):  # kept by the attempt that was cut short
        place = place.with_name(f"{place.name}-{os.urandom(2).hex()}")
    os.rename(target, place)


def _inode(path: Path) -> int:
    """What tells a directory from its copies, and stays the same when the machine starts again."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return -1


def _read(file: Path) -> Journal | None:
    try:
        return msgspec.json.decode(read_capped(file, cap=MAX_JOURNAL_BYTES), type=Journal)
    except FileNotFoundError:
        return None
    except (OSError, FileRefused, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read ({error}): look at it, then remove it.") from error


def _write_synced(file: Path, data: bytes) -> None:
    temporary = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
    with open(temporary, "xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, file)
    _sync(file.parent)


def _may_be_written(relative: str) -> bool:
    """Whether a file beside the skills is one that a change writes."""
    fixed = {f"../{LOCK_FILE}", f"../../{NPM_LOCK}", INSTALLED}
    return relative in fixed or _NOTE.match(relative) is not None


def _sync_trees(directories: list[Path], root: Path) -> None:
    """Bring directories with all their files to disk; many of them with all else that waits there."""
    walked = [found for directory in directories for found in os.walk(directory)]
    if sum(len(files) for _, _, files in walked) > _SYNC_ONE_BY_ONE and _synced_whole(root):
        return
    for place, _, files in walked:
        for name in files:
            _sync(Path(place, name))
        _sync(Path(place))


def _synced_whole(root: Path) -> bool:
    """Bring the whole file system to disk, where the system can do that in one call."""
    import ctypes  # noqa: PLC0415 - 5 ms, for this alone

    descriptor = os.open(root, os.O_RDONLY)
    try:
        return int(ctypes.CDLL(None).syncfs(descriptor)) == 0
    except (AttributeError, OSError):
        return False
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
