"""Open an archive or a directory, and inspect all its files before any is written."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from msgspec import Struct

from vademecum.errors import FileRefused, PackRefused
from vademecum.packs.content import walk
from vademecum.packs.sources.entry_names import NameCheck, document_in, refused
from vademecum.packs.sources.zips import MAX_ENTRIES, read_zip
from vademecum.paths import open_contained

CHUNK = 256 * 1024
MAX_PACKED_BYTES = 512 * 1024 * 1024
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
MAX_RATIO = 200  # no text shrinks so much
MAX_HEADER_BYTES = 1024 * 1024
MAX_PADDING = 16 * 1024 * 1024  # after the end of a tar
_RATIO_FROM = 10 * 1024 * 1024
_TAR_OVERHEAD = 4096
_PASSED_OVER = ("/.git/", "/node_modules/", "/__pycache__/")

# The errors of the libraries for damaged data.
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    FileRefused,
)


# The bytes or skills done, and the total, or 0 if it is unknown.
Progress = Callable[[int, int], None]


def silently(done: int, total: int) -> None:
    """Show no progress."""


class SourceFile(Struct, frozen=True):
    """One file of a source and a way to open it; a file with an objection must not be in a skill."""

    name: str
    size: int
    executable: bool
    open: Callable[[], IO[bytes]]
    objection: str = ""


class Opened(Struct, frozen=True):
    """All files of a source; in a packed source, all names have been checked."""

    files: tuple[SourceFile, ...]
    packed: bool = False
    directories: tuple[str, ...] = ()


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Opened]:
    """Open a zip or tar archive and inspect all of it, without writing anything."""
    size = path.stat().st_size
    if size > MAX_PACKED_BYTES:
        raise PackRefused(f"{path} is larger than {MAX_PACKED_BYTES:,} bytes: nothing was installed.")
    if path.name.endswith(".json"):
        raise PackRefused(f"{path} is a list, not an archive: name the directory that it lists.")
    if document_in([path.name]):
        raise PackRefused(f"{path} is one file of a skill: name its directory, {path.parent}.")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            head = file.read(6)
            file.seek(0)
            if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
                opened = _zipped(file, path, size)
            else:
                opened = _tarred(stack.enter_context(_expanded(file, path, head)), path)
        except (*_UNREADABLE, struct.error, ValueError) as error:
            raise PackRefused(
                f"{path} is not an archive that can be read ({str(error)[:200]}): name a zip or a tar."
            ) from error
        total = sum(file.size for file in opened.files)
        if total > MAX_UNPACKED_BYTES or (total > _RATIO_FROM and total > size * MAX_RATIO):
            raise PackRefused(f"{path} would unpack to {total:,} bytes: nothing was installed.")
        yield opened


@contextlib.contextmanager
def open_directory(path: Path) -> Iterator[Opened]:
    """Open all files below a directory; links are listed and not followed."""
    try:
        entries = walk(str(path), passed_over=lambda place: f"/{place}".endswith(_PASSED_OVER))
        found = [_found(path, *entry) for entry in islice(entries, MAX_ENTRIES + 1)]
    except OSError as error:
        raise PackRefused(
            f"{error.filename} cannot be read ({error.strerror}): nothing was changed."
        ) from error
    if len(found) > MAX_ENTRIES:
        raise PackRefused(f"{path} contains more than {MAX_ENTRIES:,} files: name a directory in it.")
    yield Opened(tuple(sorted(found, key=lambda file: file.name)))


def open_path(path: Path) -> contextlib.AbstractContextManager[Opened]:
    """Open a directory or an archive."""
    return open_directory(path) if path.is_dir() else open_archive(path)


def pieces_of(file: SourceFile) -> Iterator[bytes]:
    """Yield the content of a file; refuse one that is damaged or has another size than declared."""
    left = file.size
    try:
        with file.open() as stream:
            while left >= 0 and (piece := stream.read(CHUNK)):
                left -= len(piece)
                if left >= 0:
                    yield piece
    except _UNREADABLE as error:
        raise refused(file.name, f"cannot be read ({error})") from error
    if left:
        raise refused(file.name, "is not as large as it says")


def _zipped(file: IO[bytes], path: Path, size: int) -> Opened:
    archive = read_zip(file, path, size)
    files = tuple(
        SourceFile(
            entry.filename,
            entry.file_size,
            bool(entry.external_attr >> 16 & stat.S_IXUSR),
            partial(archive.open, entry),
        )
        for entry in archive.infolist()
        if not entry.is_dir()
    )
    directories = tuple(entry.filename.rstrip("/") for entry in archive.infolist() if entry.is_dir())
    return Opened(files, packed=True, directories=directories)


class _Bounded:
    """A file for `tarfile` that refuses to read a header above the limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._read = file.read
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise PackRefused(f"The archive has a header of {size:,} bytes: nothing was installed.")
        return self._read(size)


def _tarred(file: IO[bytes], path: Path) -> Opened:
    names, total = NameCheck(), 0
    files: list[SourceFile] = []
    directories: list[str] = []
    archive = tarfile.open(fileobj=cast(IO[bytes], _Bounded(file)), mode="r:")  # noqa: SIM115 - closed with the file
    for count, member in enumerate(archive, 1):
        total += member.size
        _check_member(member, count, total, path)
        name = member.name.removeprefix("./")
        if not member.isdir():
            executable = bool(member.mode & stat.S_IXUSR)
            content = cast(Callable[[], IO[bytes]], partial(archive.extractfile, member))
            files.append(SourceFile(names.file(name), member.size, executable, content))
        elif name not in {"", "."}:
            directories.append(names.directory(name))
    _check_end(file, archive.offset, path)
    return Opened(tuple(files), packed=True, directories=tuple(directories))


def _check_member(member: tarfile.TarInfo, count: int, total: int, path: Path) -> None:
    if count > MAX_ENTRIES:
        raise PackRefused(f"{path} has more than {MAX_ENTRIES:,} entries: nothing was installed.")
    if total > MAX_UNPACKED_BYTES or member.size < 0:
        raise refused(member.name, "makes the archive too large")
    if member.issym() or member.islnk():
        raise refused(member.name, "is a link")
    if member.sparse is not None or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise refused(member.name, "is sparse")
    if not member.isreg() and not member.isdir():
        raise refused(member.name, "is not a plain file")


@contextlib.contextmanager
def _expanded(file: IO[bytes], path: Path, head: bytes) -> Iterator[IO[bytes]]:
    """Unpack a compressed file into a temporary one, which also checks the checksums."""
    opener = next((opener for magic, opener in _COMPRESSED.items() if head.startswith(magic)), None)
    if opener is None:
        yield file
        return
    content = min(MAX_UNPACKED_BYTES, max(_RATIO_FROM, path.stat().st_size * MAX_RATIO))
    with tempfile.TemporaryFile() as out:
        with opener(path, "rb") as stream:
            while piece := stream.read(CHUNK):
                out.write(piece)
                if out.tell() > content + MAX_ENTRIES * _TAR_OVERHEAD:
                    raise PackRefused(f"{path} is too large when unpacked: nothing was installed.")
        out.seek(0)
        yield out


@contextlib.contextmanager
def _open_zstd(path: Path, _mode: str) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise PackRefused(f"{path} is compressed with zstd: install the program zstd, or unpack it first.")
    words = [program, "-dcq"]
    with (
        open(path, "rb") as file,
        subprocess.Popen(words, stdin=file, stdout=subprocess.PIPE, env={}) as process,  # noqa: S603 - no words from outside
    ):
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise EOFError("zstd refused it")


_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
    b"\x28\xb5\x2f\xfd": _open_zstd,
}


def _check_end(file: IO[bytes], place: int, path: Path) -> None:
    """Raise ``PackRefused`` unless only zeros follow from ``place`` to the end."""
    file.seek(place)
    rest = file.read(MAX_PADDING + 1)
    if rest.strip(b"\0") or len(rest) > MAX_PADDING:
        raise PackRefused(f"{path} contains data after its end: nothing was installed.")
    if len(rest) < tarfile.BLOCKSIZE:
        raise PackRefused(f"{path} was cut short: nothing was installed.")


def _found(base: Path, relative: str, entry: os.DirEntry[str]) -> SourceFile:
    about = entry.stat(follow_symlinks=False)
    plain = "" if stat.S_ISREG(about.st_mode) else "is not a plain file"
    reason = "is a link" if stat.S_ISLNK(about.st_mode) else plain
    executable = bool(about.st_mode & stat.S_IXUSR)

    def opened() -> IO[bytes]:
        return os.fdopen(open_contained(base, relative), "rb")

    return SourceFile(relative, about.st_size, executable, opened, reason)
