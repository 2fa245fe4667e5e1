"""Read files up to a cap and write them atomically. No other code reads or writes file content."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from vademecum.errors import ConfigError, FileRefused

# O_NONBLOCK: a FIFO that replaced a file since it was checked cannot make us wait.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK
_CHUNK = 64 * 1024  # allocating a larger buffer takes longer than reading a small file
_COPIED = 1024 * 1024


def open_plain(path: str | Path) -> int:
    """Open a plain file for reading and return its descriptor; refuse anything else without waiting."""
    descriptor = os.open(path, _READ_FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path} is not a plain file: replace it with one.", code="not-a-file")
    return descriptor


def read_up_to(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes, or fewer if the file ends first."""
    pieces: list[bytes] = []
    while size > 0:
        asked = min(size, _CHUNK)
        piece = os.read(descriptor, asked)
        pieces.append(piece)
        size -= len(piece)
        if len(piece) < asked:  # the end of a plain file
            break
    return b"".join(pieces)


def read_capped(path: str | Path, *, cap: int) -> bytes:
    """Return the content of a plain file of at most ``cap`` bytes."""
    descriptor = open_plain(path)
    try:
        data = read_up_to(descriptor, cap + 1)
    finally:
        os.close(descriptor)
    if len(data) > cap:
        raise FileRefused(f"{path} is larger than {cap:,} bytes: make it smaller.", code="too-large")
    return data


def read_own(path: str | Path, *, cap: int, private: bool = False) -> bytes:
    """Read at most ``cap`` bytes of the user's own file; if ``private``, refuse one that others can read."""
    descriptor = open_plain(path)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise FileRefused("it belongs to another user", code="foreign")
        if private and about.st_mode & 0o077:
            raise FileRefused(f"others can read or change it: run chmod 600 {path}", code="not-private")
        return read_up_to(descriptor, cap)
    finally:
        os.close(descriptor)


def copy_opened(descriptor: int, target: str | Path, *, most: int) -> int:
    """Copy an open file with its execute bit, close it, and return its size; stop beyond ``most`` bytes."""
    with os.fdopen(descriptor, "rb") as source, open(target, "wb") as out:
        while out.tell() <= most and (piece := source.read(_COPIED)):
            out.write(piece)
        executable = os.fstat(source.fileno()).st_mode & stat.S_IXUSR
        os.fchmod(out.fileno(), 0o755 if executable else 0o644)
        return out.tell()


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 digest of a plain file in hexadecimal."""
    with os.fdopen(open_plain(path), "rb", buffering=0) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextlib.contextmanager
def writable(place: Path) -> Iterator[None]:
    """Turn an error of writing to a place into one sentence."""
    try:
        yield
    except OSError as error:
        advice = "make room there" if error.errno == errno.ENOSPC else "make it writable"
        text = f"{place} cannot be written ({error.strerror or error}): {advice}."
        raise ConfigError(text) from error


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file unless another process has it; closing the file releases it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def keep_newest(directory: Path, pattern: str, most: int) -> None:
    """Try to remove all but the newest files and directories that match a pattern."""
    import shutil  # noqa: PLC0415 - only to write a cache

    with contextlib.suppress(OSError):
        found = sorted(directory.glob(pattern), key=lambda place: place.stat().st_mtime_ns)
        for place in found[:-most]:
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def write_atomic(path: Path, data: bytes | bytearray, *, mode: int = 0o644, synced: bool = False) -> None:
    """Write a file so that a reader sees either the old or the new content, never a part.

    If ``synced``, the content is on disk before the file gets its name.
    """
    temporary = f"{path.parent}/.{path.name}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(temporary, flags, mode)
    except FileNotFoundError:  # rare, so the usual case costs nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
            if synced:
                out.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
