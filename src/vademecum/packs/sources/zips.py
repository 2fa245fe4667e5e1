"""Read the entries of a zip file, and refuse a file that other tools could read differently.

Readers differ: some use the directory at the end, some the headers before each entry, some an extra field.
`zipfile` uses the directory, so the other data must agree with it, and every byte must belong to exactly one
entry.
"""

from __future__ import annotations

import stat
import struct
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from vademecum.errors import PackRefused
from vademecum.packs.sources.entry_names import NameCheck, refused

MAX_ENTRIES = 50_000
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024

_END, _END64, _LOCATOR = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX_COMMENT = 65535
_SHORT_MAX, _LONG_MAX = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _LATER, _UTF8 = 0x2041, 0x0008, 0x0800
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075


def read_zip(file: IO[bytes], path: Path, size: int) -> ZipFile:
    """Open a zip and check all its entries: first in its directory, then in their own headers."""
    directory, count = _find_directory(file, path, size)
    archive = ZipFile(file)
    entries = archive.infolist()
    if len(entries) != count:
        kind = "more" if len(entries) > count else "fewer"
        raise PackRefused(f"{path} contains {kind} entries than it says: nothing was installed.")
    names = NameCheck()
    for entry in entries:
        _check_entry(entry)
        (names.directory if entry.is_dir() else names.file)(entry.filename)
    _check_layout(file, entries, path, directory)
    return archive


def _find_directory(file: IO[bytes], path: Path, size: int) -> tuple[int, int]:
    """Return where the directory begins and the number of its entries, before it is parsed."""
    file.seek(max(0, size - _END.size - _MAX_COMMENT))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise PackRefused(f"{path} is not an archive that can be read: name a zip or a tar.")
    _, *said, comment = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    if end + _END.size + comment != size:
        raise PackRefused(f"{path} contains data after its end: nothing was installed.")
    large = tail[max(0, at - _LOCATOR.size - _END64.size) : at]
    if large[-_LOCATOR.size :].startswith(b"PK\x06\x07"):
        limits = (*[_SHORT_MAX] * 4, *[_LONG_MAX] * 2)
        end, found = _large(large, path, end)
        if any(s not in {f, most} for s, f, most in zip(said, found, limits, strict=True)):
            raise PackRefused(f"{path} contradicts itself about its size: nothing was installed.")
        said = found
    disk, first, here, count, length, offset = said
    if (disk, first) != (0, 0) or here != count or offset + length != end:
        raise PackRefused(f"{path} contradicts itself about its directory: nothing was installed.")
    file.seek(offset)
    if length > MAX_DIRECTORY_BYTES or max(count, file.read(length).count(b"PK\x01\x02")) > MAX_ENTRIES:
        raise PackRefused(f"{path} has more than {MAX_ENTRIES:,} entries: nothing was installed.")
    return offset, count


def _large(data: bytes, path: Path, end: int) -> tuple[int, list[int]]:
    """Return the position and the values of the record for large archives, which comes before its locator."""
    at = end - len(data)
    if len(data) == _END64.size + _LOCATOR.size:
        mark, length, _, _, *found = _END64.unpack_from(data)
        _, _, said_at, _ = _LOCATOR.unpack_from(data, _END64.size)
        if (mark, length, said_at) == (b"PK\x06\x06", _END64.size - 12, at):
            return at, found
    raise PackRefused(f"{path} contradicts itself about its directory: nothing was installed.")


def _check_entry(entry: ZipInfo) -> None:
    """Refuse entries that are not plain files or directories; decode names as UTF-8 even without its flag."""
    raw, mode = _raw_name(entry), entry.external_attr >> 16
    try:
        entry.filename = raw.decode()
    except UnicodeDecodeError:
        entry.filename = entry.orig_filename
    name, kind = entry.filename, stat.S_IFMT(mode)
    _zip64_in(entry.extra, entry)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise refused(name, "is a link" if kind == stat.S_IFLNK else "is not a plain file")
    if entry.flag_bits & _ENCRYPTED:
        raise refused(name, "is encrypted")
    if entry.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
        raise refused(name, "is compressed in a way that is not supported")
    if entry.compress_type == ZIP_STORED and entry.file_size != entry.compress_size:
        raise refused(name, "is not as large as it says")
    if entry.is_dir() and entry.file_size:
        raise refused(name, "is a directory with content")


def _raw_name(entry: ZipInfo) -> bytes:
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")


def _zip64_in(extra: bytes, entry: ZipInfo) -> tuple[int, ...]:
    """Return the sizes in the field for large files; refuse an extra field with another name."""
    found: tuple[int, ...] | None = None
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        data = extra[place + 4 : place + 4 + length]
        place += 4 + length
        if place > len(extra):
            raise refused(entry.filename, "has a damaged extra field")
        if kind == _UNICODE_PATH and data[5:] != _raw_name(entry):
            raise refused(entry.filename, "has a name that is read in two ways")
        if kind == _ZIP64 and found is None:
            found = struct.unpack_from(f"<{length // 8}Q", data)
    return found or ()


def _check_layout(file: IO[bytes], entries: list[ZipInfo], path: Path, directory: int) -> None:
    """Compare each entry with its own header; refuse data between two entries."""
    ordered = sorted(entries, key=lambda entry: entry.header_offset)
    starts = [*(entry.header_offset for entry in ordered[1:]), directory]
    place = 0
    for entry, following in zip(ordered, starts, strict=False):
        if entry.header_offset != place:
            raise refused(entry.filename, "overlaps another one or leaves a gap")
        place = _end_of(file, entry, following)
    if place != directory:
        raise PackRefused(f"{path} contains data outside its entries: nothing was installed.")


def _end_of(file: IO[bytes], entry: ZipInfo, following: int) -> int:
    """Check an entry's own header and the data after its content; return where the entry ends."""
    raw = _raw_name(entry)
    file.seek(entry.header_offset)
    header = file.read(_LOCAL.size + len(raw))
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise refused(entry.filename, "has no header of its own")
    _, _, flags, method, _, _, crc, packed, size, named, extra = _LOCAL.unpack_from(header)
    if header[_LOCAL.size : _LOCAL.size + named] != raw:
        raise refused(entry.filename, "has another name in its own header")
    right = (entry.CRC, entry.compress_size, entry.file_size)
    large = _zip64_in(file.read(extra), entry)
    wide = iter(large)
    if _LONG_MAX in {packed, size}:
        size, packed = (next(wide, -1) if value == _LONG_MAX else value for value in (size, packed))
    elif len(large) > 1 and large[:2] not in {(size, packed), (entry.file_size, entry.compress_size)}:
        raise refused(entry.filename, "is something else in its own header")  # some tools would accept it
    said = (crc, packed, size)
    if flags & _LATER:  # values that are unknown in the header follow the content
        said = tuple(value or known for value, known in zip(said, right, strict=True))  # type: ignore[assignment]
    if method != entry.compress_type or said != right or flags & _ENCRYPTED:
        raise refused(entry.filename, "is something else in its own header")
    end: int = entry.header_offset + _LOCAL.size + named + extra + entry.compress_size
    if flags & _LATER and 0 < following - end <= 24:
        file.seek(end)
        forms = [struct.pack(form, *right) for form in ("<3I", "<IQQ")]
        if file.read(following - end) in {mark + form for form in forms for mark in (b"", b"PK\x07\x08")}:
            return following
    return end
