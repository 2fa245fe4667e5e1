"""A compressed file, read within bounds: how much at once, how much in all, and to its very end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import IO, Any

from vademecum.errors import PackRefused

# No header is so large, and files are read in smaller pieces.
MAX_ONE_READ = 1024 * 1024
# What follows the end of a tar is padding.
MAX_PADDING = 16 * 1024 * 1024
_BLOCK = 512
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}


class Bounded:
    """A file that `tarfile` reads from; whatever a header says, it gets no more than this."""

    def __init__(self, file: IO[bytes], *, most: int, path: Path) -> None:
        self._file = file
        self._most = most
        self._path = path

    def read(self, size: int = -1) -> bytes:
        """So many bytes, within bounds."""
        if not 0 <= size <= MAX_ONE_READ:
            raise PackRefused(f"{self._path} has a header of {size:,} bytes: nothing was installed.")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        """Go there, within bounds."""
        self._check(place)
        return self._file.seek(place, whence)

    def tell(self) -> int:
        """Where we are."""
        return self._file.tell()

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def check_end(self, place: int) -> None:
        """Nothing but zeros from there to the end, at least a block; checksums are checked on the way."""
        self.seek(place)
        seen = 0
        while piece := self._file.read(_BLOCK * 128):
            seen += len(piece)
            if piece.strip(b"\0") or seen > MAX_PADDING:
                raise PackRefused(f"{self._path} goes on after its end: nothing was installed.")
        if seen < _BLOCK:
            raise PackRefused(f"{self._path} was cut short: nothing was installed.")

    def _check(self, place: int) -> None:
        if place > self._most:
            raise PackRefused(f"{self._path} is too large when unpacked: nothing was installed.")


def open_stream(path: Path, *, most: int) -> Bounded:
    """Open a file that may be compressed, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(6)
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), open)
    return Bounded(opener(path, "rb"), most=most, path=path)
