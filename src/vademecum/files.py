"""Reading with a cap and writing atomically: the only code that does either with a file's content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from vademecum.errors import ConfigError, FileRefused

# O_NONBLOCK: a FIFO that took a file's place between two looks cannot make us wait.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK
_CHUNK = 64 * 1024  # a larger buffer costs more to get than a small file to read
_COPIED = 1024 * 1024


def open_plain(path: str | Path) -> int:
    """Open a plain file for reading and return its descriptor; anything else is refused, never waited for."""
    descriptor = os.open(path, _READ_FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path} is not a plain file: replace it with one.", code="not-a-file")
    return descriptor


def read_up_to(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes, or fewer where the file ends first."""
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
    """Read a file of ours, capped; refuse another owner's, and if ``private`` one that others can read."""
    descriptor = open_plain(path)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise FileRefused("it belongs to somebody else", code="foreign")
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
    """Say in one sentence that something cannot be written there."""
    try:
        yield
    except OSError as error:
        advice = "make room there" if error.errno == errno.ENOSPC else "make it writable"
        text = f"{place} cannot be written ({error.strerror or error}): {advice}, or name another place."
        raise ConfigError(text) from error


def keep_newest(directory: Path, pattern: str, most: int) -> None:
    """Remove all but the newest files and directories of that pattern, as far as they can be removed."""
    import shutil  # noqa: PLC0415 - only for those who write a cache

    with contextlib.suppress(OSError):
        found = sorted(directory.glob(pattern), key=lambda place: place.stat().st_mtime_ns)
        for place in found[:-most]:
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def write_atomic(path: Path, data: bytes | bytearray, *, mode: int = 0o644, synced: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part.

    If ``synced``, the content is on disk before the file has its name.
    """
    temporary = f"{path.parent}/.{path.name}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(temporary, flags, mode)
    except FileNotFoundError:  # rarely, so that the usual case costs nothing more
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
