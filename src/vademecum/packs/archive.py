"""An archive → its files, each inspected before any is written."""

from __future__ import annotations

import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar, cast

from msgspec import Struct

from vademecum.errors import PackRefused
from vademecum.packs.names import check_name, check_together, refused
from vademecum.packs.streams import open_stream

MAX_PACKED_BYTES = 512 * 1024 * 1024
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
MAX_ENTRIES = 50_000
MAX_RATIO = 200  # no text shrinks so much
_RATIO_FROM = 10 * 1024 * 1024
_CHUNK = 256 * 1024
_LOCAL_HEADER = 30
_LARGE = 0xFFFFFFFF
_TAR_OVERHEAD = 4096
_END_RECORD, _MAX_COMMENT, _MAX_DIRECTORY_ENTRY = 22, 65535, 2048
_MAX_DESCRIPTOR = 24

# What the libraries raise for bytes that are not what they should be.
_UNREADABLE = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)

Kind = TypeVar("Kind")


class Entry(Struct, frozen=True):
    """One file of a source, and how to read it; with an objection, no skill may hold it."""

    name: str
    size: int
    executable: bool
    open: Callable[[], IO[bytes]]
    objection: str = ""


class Opened(Struct, frozen=True):
    """All files of a source; those that came packed were all inspected, by name, size and kind."""

    entries: tuple[Entry, ...]
    close: Callable[[], None]
    packed: bool = False


def open_archive(path: Path) -> Opened:
    """Open a zip or tar archive and inspect all of it; nothing is written."""
    size = path.stat().st_size
    if size > MAX_PACKED_BYTES:
        raise PackRefused(f"{path} is larger than {MAX_PACKED_BYTES:,} bytes: nothing was installed.")
    with open(path, "rb") as file:
        head = file.read(4)
    try:
        opened = _open_zip(path, size) if head[:2] == b"PK" else _open_tar(path)
    except (*_UNREADABLE, struct.error) as error:
        raise PackRefused(
            f"{path} is no archive that can be read ({str(error)[:200]}): nothing was installed."
        ) from error
    except (NotImplementedError, UnicodeDecodeError, ValueError, RuntimeError) as error:
        raise PackRefused(f"{path} cannot be taken ({error}): nothing was installed.") from error
    total = sum(entry.size for entry in opened.entries)
    if total > MAX_UNPACKED_BYTES or (total > _RATIO_FROM and total > size * MAX_RATIO):
        opened.close()
        raise PackRefused(f"{path} would unpack to {total:,} bytes: nothing was installed.")
    return opened


def pieces_of(entry: Entry) -> Iterator[bytes]:
    """Read an entry to its end; one that is not as large as it says is refused."""
    left = entry.size
    with _whatever_fails(entry, entry.open) as file:
        while piece := _whatever_fails(entry, file.read, min(_CHUNK, left + 1)):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    if left:
        raise refused(entry.name, "is not as large as it says")


def _whatever_fails(entry: Entry, read: Callable[..., Kind], *words: int) -> Kind:
    """Read; what goes wrong with that is told of the entry, and nothing else is."""
    try:
        return read(*words)
    except (*_UNREADABLE, RuntimeError) as error:
        raise refused(entry.name, f"cannot be read ({error})") from error


def _open_zip(path: Path, size: int) -> Opened:
    _check_directory_size(path, size)
    archive = zipfile.ZipFile(path)
    try:
        infos = archive.infolist()
        _check_count(len(infos), path)
        for info in infos:
            _check_zip_entry(info)
        _check_layout(path, archive, infos, size)
        files = [info for info in infos if not info.is_dir()]
        names = [info.filename for info in files]
        check_together(names, [info.filename.rstrip("/") for info in infos if info.is_dir()])
    except BaseException:
        archive.close()
        raise
    entries = [
        Entry(name, info.file_size, bool(info.external_attr >> 16 & stat.S_IXUSR), _opener(archive, info))
        for name, info in zip(names, files, strict=True)
    ]
    return Opened(tuple(entries), archive.close, packed=True)


def _opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _check_zip_entry(info: zipfile.ZipInfo) -> None:
    # `zipfile` cuts a name at NUL; the name as it is stored is what counts.
    if check_name(info.orig_filename) != info.filename.rstrip("/"):
        raise refused(info.filename, "has a name that is read in two ways")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise refused(info.filename, "is a link" if kind == stat.S_IFLNK else "is no plain file")
    if info.flag_bits & 0x41:
        raise refused(info.filename, "is encrypted")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise refused(info.filename, "is compressed in a way that is not taken")
    if info.is_dir() and info.file_size:
        raise refused(info.filename, "is a directory with content")


def _check_layout(path: Path, archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], size: int) -> None:
    """Every byte must belong to exactly one entry or to the one directory at the end.

    Readers that look from the front and readers that look from the back then see the same archive.
    """
    with open(path, "rb") as file:
        place = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            gap = info.header_offset - place
            if gap < 0 or gap > (_MAX_DESCRIPTOR if place else 0):
                raise refused(info.filename, "overlaps another one or leaves a gap")
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER)
            if header[:4] != b"PK\x03\x04":
                raise refused(info.filename, "has no header of its own")
            _check_header(header, info)
            name, extra = struct.unpack("<HH", header[26:30])
            if file.read(name) != info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437"):
                raise refused(info.filename, "has another name in its own header")
            place = info.header_offset + _LOCAL_HEADER + name + extra + info.compress_size
        start = archive.start_dir
        if not 0 <= start - place <= (_MAX_DESCRIPTOR if infos else 0):
            raise PackRefused(f"{path} holds something beside its entries: nothing was installed.")
        file.seek(start)
        tail = file.read(size - start)
    if tail.count(b"PK\x05\x06") != 1 or tail.find(b"PK\x05\x06") + 22 + len(archive.comment) != len(tail):
        raise PackRefused(f"{path} has more than one directory: nothing was installed.")


def _check_header(header: bytes, info: zipfile.ZipInfo) -> None:
    """An entry's own header must say what the directory says of it."""
    flags, method = struct.unpack("<HH", header[6:10])
    crc, packed, size = struct.unpack("<III", header[14:26])
    said = (crc, packed, size) == (info.CRC, info.compress_size, info.file_size)
    later = bool(flags & 8) and (crc, packed, size) == (0, 0, 0)  # in a descriptor behind the content
    large = _LARGE in {packed, size}  # in an extra field
    if method != info.compress_type or not (said or later or large):
        raise refused(info.filename, "is something else in its own header")


def _check_directory_size(path: Path, size: int) -> None:
    """Refuse a directory that is too large, before all of it is read."""
    with open(path, "rb") as file:
        file.seek(max(0, size - _END_RECORD - _MAX_COMMENT))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0:
        return  # no zip at all, as will be said
    count, directory = struct.unpack("<HI", tail[end + 10 : end + 16].ljust(6, b"\0"))
    if directory == _LARGE or count == 0xFFFF:
        directory = _large_directory(tail)
    if directory > MAX_ENTRIES * _MAX_DIRECTORY_ENTRY:
        raise PackRefused(f"{path} has more than {MAX_ENTRIES:,} entries: nothing was installed.")


def _large_directory(tail: bytes) -> int:
    end = tail.rfind(b"PK\x06\x06")
    return int.from_bytes(tail[end + 40 : end + 48], "little") if end >= 0 else 0


def _open_tar(path: Path) -> Opened:
    stream = open_stream(path, most=MAX_UNPACKED_BYTES + MAX_ENTRIES * _TAR_OVERHEAD)
    files: list[tarfile.TarInfo] = []
    directories: list[str] = []
    try:
        archive = tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:")  # noqa: SIM115 - closed with it
        total = 0
        for count, member in enumerate(archive, 1):
            _check_count(count, path)
            total += member.size
            _check_total(total, member)
            name = member.name.removeprefix("./")
            if member.isdir():
                if name not in {"", "."}:
                    directories.append(check_name(name))
                continue
            _check_tar_member(member, name)
            files.append(member)
        stream.check_end(archive.offset)
        names = [member.name.removeprefix("./") for member in files]
        check_together(names, directories)
    except BaseException:
        stream.close()
        raise
    entries = [
        Entry(name, member.size, bool(member.mode & stat.S_IXUSR), _extractor(archive, member))
        for name, member in zip(names, files, strict=True)
    ]
    return Opened(tuple(entries), stream.close, packed=True)


def _check_count(count: int, path: Path) -> None:
    if count > MAX_ENTRIES:
        raise PackRefused(f"{path} has more than {MAX_ENTRIES:,} entries: nothing was installed.")


def _check_total(total: int, member: tarfile.TarInfo) -> None:
    if total > MAX_UNPACKED_BYTES or member.size < 0:
        raise refused(member.name, "makes the archive too large")


def _extractor(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def extract() -> IO[bytes]:
        found = archive.extractfile(member)
        if found is None:
            raise refused(member.name, "is no plain file")
        return found

    return extract


def _check_tar_member(member: tarfile.TarInfo, name: str) -> None:
    if check_name(name) != name:
        raise refused(name, "is a file with the name of a directory")
    if member.issym() or member.islnk():
        raise refused(member.name, "is a link")
    if member.sparse is not None or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise refused(member.name, "is sparse")
    if not member.isreg():
        raise refused(member.name, "is no plain file")
