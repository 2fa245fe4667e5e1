"""Change directories completely or not at all, even if the machine stops in the middle.

New files are prepared in ``.staging/``. Then one file, the journal, lists all moves. Once it is on disk the
change happens, now or when the next command finds it; before that, nothing happens. Replaced files go to
``.trash/`` if they are kept. If a move fails, the moves before it are undone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from vademecum.errors import ConfigError, PackRefused
from vademecum.files import writable, write_atomic
from vademecum.packs.lock import read_json
from vademecum.registry.roots import JOURNAL, STAGING, needs_recovery

TRASH, LOCK = ".trash", ".lock"
_SYNC_ONE_BY_ONE = 100
MOMENT = re.compile(r"\d{8}T\d{6}\.\d{6}")


class Ground(msgspec.Struct, frozen=True):
    """The places that a change can touch: a journal can come with a cloned project and name anything.

    ``control`` contains the lock, the journal, staged files and the trash; places and files are relative to
    ``base``. ``may_move`` decides about places, ``may_write`` about files and empty directories.
    """

    control: Path
    base: Path
    may_move: Callable[[str], bool]
    may_write: Callable[[str], bool]


class Move(msgspec.Struct, frozen=True):
    """One place: whether staged files are put there, and whether the old files are kept."""

    place: str
    staged: bool
    kept: bool
    inode: int = 0


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to carry out: moves, files with their content or None, directories to remove if empty."""

    moment: str
    root: int
    moves: tuple[Move, ...]
    files: dict[str, str | None] = {}
    emptied: tuple[str, ...] = ()

    def is_for(self, ground: Ground) -> bool:
        """Return whether a command could have written this journal for this directory."""
        return (
            self.root == _inode(ground.control)
            and MOMENT.fullmatch(self.moment) is not None
            and all(ground.may_move(move.place) for move in self.moves)
            and all(map(ground.may_write, (*self.files, *self.emptied)))
        )


class Transaction:
    """One change, made by the process that has the lock."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.staging = ground.control / STAGING / self.moment
        self._moves: list[Move] = []

    def move(self, place: str, *, staged: bool, keep: bool) -> None:
        """Move staged files to this place, or empty it; the old files are kept or deleted."""
        for step in (Path(place), *Path(place).parents):
            _refuse_link(self.ground.control / TRASH / step)
        self._moves.append(Move(place, staged, keep, _inode(self.staging / place)))

    def commit(self, files: Mapping[str, str | None], *, emptied: Sequence[str] = ()) -> None:
        """Write the journal and carry it out; undo the change if that fails."""
        ground = self.ground
        _sync_trees([self.staging / move.place for move in self._moves if move.staged], ground.control)
        journal = Journal(
            self.moment, _inode(ground.control), tuple(self._moves), dict(files), tuple(emptied)
        )
        assert journal.is_for(ground)
        _put_file(ground.control / JOURNAL, msgspec.json.encode(journal))
        undo: list[Callable[[], object]] = []
        try:
            _carry_out(ground, journal, undo)
        except OSError:
            with contextlib.suppress(OSError):
                for step in reversed(undo):
                    step()
                (ground.control / JOURNAL).unlink()
            raise
        _finish(ground, journal)


@contextlib.contextmanager
def changing(ground: Ground) -> Iterator[Transaction]:
    """Hold the lock, finish an interrupted change first, and clean up afterwards."""
    held = _locked(ground.control, fcntl.LOCK_EX)
    try:
        for name in (STAGING, TRASH, JOURNAL):
            _refuse_link(ground.control / name)
        recover(ground)
        try:
            yield Transaction(ground)
        finally:
            # With a journal the change will happen, now or later: keep the files that it moves.
            if not (ground.control / JOURNAL).exists():
                shutil.rmtree(ground.control / STAGING, ignore_errors=True)
    except OSError as error:
        where = error.filename2 or error.filename or ground.control
        outcome = "the next command finishes it" if needs_recovery(ground.control) else "nothing was changed"
        raise PackRefused(f"{where} could not be changed ({error.strerror or error}): {outcome}.") from error
    finally:
        os.close(held)


def tidied(ground: Ground) -> str | None:
    """Finish or clean up an interrupted change, unless another process holds the lock; return a message."""
    if not needs_recovery(ground.control):
        return None
    try:
        held = _locked(ground.control, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ConfigError:
        return None
    try:
        return recover(ground)
    except OSError:
        return None  # the directory is read-only
    finally:
        os.close(held)


def recover(ground: Ground) -> str | None:
    """Finish a change that has a journal, and remove one that was only prepared; return a message."""
    done = None
    journal = read_json(ground.control / JOURNAL, Journal, advice="inspect it, then delete it")
    if journal is not None:
        if not journal.is_for(ground):
            file = ground.control / JOURNAL
            raise ConfigError(f"{file} belongs to another directory: inspect it, then delete it.")
        _carry_out(ground, journal, [])
        _finish(ground, journal)
        names = ", ".join(move.place for move in journal.moves) or "the lock"
        done = f"Finished an interrupted change of {names}."
    if (ground.control / STAGING).exists():
        shutil.rmtree(ground.control / STAGING, ignore_errors=True)
        done = done or "Removed the prepared files of an interrupted change."
    return done


def _carry_out(ground: Ground, journal: Journal, undo: list[Callable[[], object]]) -> None:
    """Do all moves and write all files; any of them can be done already."""
    for move in journal.moves:
        _move(ground, move, journal.moment, undo)
    for relative, text in journal.files.items():
        file = Path(os.path.normpath(ground.base / relative))
        before = file.read_bytes() if file.is_file() else None
        undo.append(partial(_put_file, file, before))
        _put_file(file, None if text is None else text.encode())


def _finish(ground: Ground, journal: Journal) -> None:
    for directory in journal.emptied:
        with contextlib.suppress(OSError):
            os.rmdir(ground.base / directory)  # only if it is empty
    for place in {(ground.base / move.place).parent for move in journal.moves}:
        with contextlib.suppress(FileNotFoundError):
            _sync(place)
    (ground.control / JOURNAL).unlink(missing_ok=True)


def _move(ground: Ground, move: Move, moment: str, undo: list[Callable[[], object]]) -> None:
    target, staged = ground.base / move.place, ground.control / STAGING / moment / move.place
    if move.staged and (_inode(target) == move.inode or not os.path.lexists(staged)):
        return  # it was moved already, or removed since then: keep the existing files
    if os.path.lexists(target):
        place = ground.control / (
            f"{TRASH}/{move.place}/{moment}" if move.kept else f"{STAGING}/gone/{move.place}"
        )
        if os.path.lexists(place):  # from the interrupted attempt
            place = place.with_name(f"{place.name}-{os.urandom(2).hex()}")
        _rename(target, place, undo)
    if move.staged:
        _rename(staged, target, undo)


def _rename(source: Path, target: Path, undo: list[Callable[[], object]]) -> None:
    for directory in reversed([parent for parent in target.parents if not parent.exists()]):
        os.mkdir(directory)
        undo.append(partial(os.rmdir, directory))
    os.rename(source, target)
    undo.append(partial(os.rename, target, source))


def _locked(control: Path, how: int) -> int:
    """Create the directory if necessary and return its lock; retry if another process removes the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writable(control):
        while True:
            if not control.is_dir():
                try:
                    control.mkdir(parents=True)
                except FileExistsError:
                    if os.path.lexists(control) and not control.is_dir():
                        raise
            # Another command may have removed the directory or the lock.
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(control / LOCK, flags, 0o644)
                try:
                    fcntl.flock(descriptor, how)
                    if os.path.samestat(os.fstat(descriptor), os.lstat(control / LOCK)):
                        return descriptor
                except BaseException:
                    os.close(descriptor)
                    raise
                os.close(descriptor)


def _refuse_link(place: Path) -> None:
    if os.path.islink(place):
        raise ConfigError(f"{place} is a link, which could lead anywhere: remove it.")


def _inode(path: Path) -> int:
    """Return a number that distinguishes an entry from its copies, even after a restart of the machine."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return -1


def _put_file(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink(missing_ok=True)
    else:
        write_atomic(file, data, mode=0o666, synced=True)
        _sync(file.parent)


def _sync_trees(directories: list[Path], control: Path) -> None:
    """Sync directories with all their files to disk, except links; sync the file system if there are many."""
    trees = [directory for directory in directories if not directory.is_symlink()]
    walked = [found for tree in trees for found in os.walk(tree)]
    if sum(len(files) for _, _, files in walked) > _SYNC_ONE_BY_ONE and _synced_whole(control):
        return
    for place, _, files in walked:
        for name in files:
            _sync(Path(place, name))
        _sync(Path(place))


def _synced_whole(control: Path) -> bool:
    """Sync the whole file system to disk, if the system can do that in one call."""
    import ctypes  # noqa: PLC0415 - takes 5 ms to import

    descriptor = os.open(control, os.O_RDONLY)
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
