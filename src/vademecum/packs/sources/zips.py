"""A zip file → its entries, read in the one way that every tool reads it.

Readers differ: some follow the directory at the end, some the headers in front of each entry, some an extra
field. So each statement must agree with all others, and every byte must belong to exactly one entry.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from vademecum.errors import PackRefused
from vademecum.packs.sources.entry_names import NameCheck, refused

MAX_ENTRIES = 50_000
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
CHUNK = 256 * 1024

_END, _END64, _LOCATOR = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_CENTRAL, _LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_MAX_COMMENT = 65535
_SHORT_MAX, _LONG_MAX = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _LATER, _UTF8 = 0x2041, 0x0008, 0x0800
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075
_STORED, _DEFLATED = 0, 8


class ZipEntry(Struct):
    """One entry as the directory describes it; ``start`` is where its content begins."""

    name: str
    raw: bytes
    method: int
    crc: int
    packed: int
    size: int
    mode: int
    offset: int
    start: int = 0

    @property
    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        return self.name.endswith("/")


def read_entries(descriptor: int, path: Path, size: int) -> tuple[list[ZipEntry], int]:
    """Return all entries of a zip, checked by its directory alone, and where that directory begins."""
    names = NameCheck()
    offset, length, count = _find_directory(descriptor, path, size)
    entries = []
    data = os.pread(descriptor, length, offset)
    place = 0
    for _ in range(count):
        entry, place = _central(data, place, path)
        entries.append(entry)
        if entry.is_directory:
            names.directory(entry.name)
        else:
            names.file(entry.name)
    if place != len(data):
        raise PackRefused(f"{path} contains more entries than it says: nothing was installed.")
    return entries, offset


def check_layout(descriptor: int, entries: list[ZipEntry], path: Path, directory: int) -> None:
    """Compare each entry with its own header; nothing may lie between two entries."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    place = 0
    for number, entry in enumerate(ordered):
        if entry.offset != place:
            raise refused(entry.name, "overlaps another one or leaves a gap")
        following = ordered[number + 1].offset if number + 1 < len(ordered) else directory
        place = _end_of(descriptor, entry, following)
    if place != directory:
        raise PackRefused(f"{path} contains something beside its entries: nothing was installed.")


def content_of(descriptor: int, entry: ZipEntry) -> Iterator[bytes]:
    """Yield an entry's content; raise ``zlib.error`` or ``EOFError`` if it is damaged."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == _DEFLATED else None
    place, end, crc = entry.start, entry.start + entry.packed, 0
    while place < end:
        raw = os.pread(descriptor, min(CHUNK, end - place), place)
        if not raw:
            raise EOFError("it is cut short")
        place += len(raw)
        for piece in (raw,) if inflate is None else _inflated(inflate, raw):
            crc = zlib.crc32(piece, crc)
            yield piece
    if crc != entry.crc or (inflate is not None and (not inflate.eof or inflate.unused_data)):
        raise zlib.error("its checksum is wrong")


def _inflated(inflate: zlib._Decompress, raw: bytes) -> Iterator[bytes]:
    while True:
        piece = inflate.decompress(raw, CHUNK)
        if piece:
            yield piece
        raw = inflate.unconsumed_tail
        if not raw and len(piece) < CHUNK:
            return


def _find_directory(descriptor: int, path: Path, size: int) -> tuple[int, int, int]:
    """Return the directory's offset, its length and the number of its entries."""
    tail = os.pread(descriptor, _END.size + _MAX_COMMENT, max(0, size - _END.size - _MAX_COMMENT))
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise PackRefused(f"{path} is not an archive that can be read: nothing was installed.")
    _, disk, first, here, count, length, offset, comment = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    if end + _END.size + comment != size:
        raise PackRefused(f"{path} contains something after its end: nothing was installed.")
    said: tuple[int, ...] = (disk, first, here, count, length, offset)
    locator = os.pread(descriptor, _LOCATOR.size, max(0, end - _LOCATOR.size))
    if locator[:4] == b"PK\x06\x07" and len(locator) == _LOCATOR.size:
        found, end = _large(descriptor, path, _LOCATOR.unpack(locator), end - _LOCATOR.size)
        limits = (*[_SHORT_MAX] * 4, *[_LONG_MAX] * 2)
        if any(s not in {f, most} for s, f, most in zip(said, found, limits, strict=True)):
            raise PackRefused(f"{path} contradicts itself about its size: nothing was installed.")
        said = found
    disk, first, here, count, length, offset = said
    if (disk, first) != (0, 0) or here != count or offset + length != end:
        raise PackRefused(f"{path} contradicts itself about its directory: nothing was installed.")
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise PackRefused(f"{path} has more than {MAX_ENTRIES:,} entries: nothing was installed.")
    return offset, length, count


def _large(
    descriptor: int, path: Path, locator: tuple[bytes, int, int, int], end: int
) -> tuple[tuple[int, ...], int]:
    """Return what the record for large archives says, and where it begins; it must end at ``end``."""
    at = locator[2]
    data = os.pread(descriptor, _END64.size, at) if at < end else b""
    if len(data) == _END64.size:
        mark, length, _, _, disk, first, here, count, size, offset = _END64.unpack(data)
        if mark == b"PK\x06\x06" and at + 12 + length == end:
            return (disk, first, here, count, size, offset), at
    raise PackRefused(f"{path} contradicts itself about its directory: nothing was installed.")


def _central(data: bytes, place: int, path: Path) -> tuple[ZipEntry, int]:
    if place + _CENTRAL.size > len(data) or data[place : place + 4] != b"PK\x01\x02":
        raise PackRefused(f"{path} contains fewer entries than it says: nothing was installed.")
    fields = _CENTRAL.unpack_from(data, place)
    _, _, _, flags, method, _, _, crc, packed, size, named, extra, comment, disk, _, mode, offset = fields
    start = place + _CENTRAL.size
    raw = data[start : start + named]
    name = _decoded(raw, flags)
    extras = _extras(data[start + named : start + named + extra], name, raw)
    if _LONG_MAX in {packed, size, offset} or disk == _SHORT_MAX:
        size, packed, offset = _from_extra(extras, (size, packed, offset), name)
    entry = ZipEntry(name, raw, method, crc, packed, size, mode >> 16, offset)
    _check_kind(entry, flags)
    return entry, start + named + extra + comment


def _decoded(raw: bytes, flags: int) -> str:
    """Return a name as text; many tools write UTF-8 without saying so."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if flags & _UTF8:
            raise
        return raw.decode("cp437")


def _extras(data: bytes, name: str, raw: bytes) -> dict[int, bytes]:
    """Return the extra fields of an entry; one with another name for it is refused."""
    found: dict[int, bytes] = {}
    place = 0
    while place + 4 <= len(data):
        kind, length = struct.unpack_from("<HH", data, place)
        found.setdefault(kind, data[place + 4 : place + 4 + length])
        place += 4 + length
        if place > len(data):
            raise refused(name, "has a damaged extra field")
        if kind == _UNICODE_PATH and data[place - length + 5 : place] != raw:
            raise refused(name, "has a name that is read in two ways")
    return found


def _from_extra(extras: dict[int, bytes], values: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Replace each value that did not fit by the one in the field for large files."""
    field, place, found = extras.get(_ZIP64, b""), 0, []
    for value in values:
        if value != _LONG_MAX:
            found.append(value)
            continue
        if place + 8 > len(field):
            raise refused(name, "does not say how large it is")
        found.append(int.from_bytes(field[place : place + 8], "little"))
        place += 8
    return tuple(found)


def _check_kind(entry: ZipEntry, flags: int) -> None:
    kind = stat.S_IFMT(entry.mode)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise refused(entry.name, "is a link" if kind == stat.S_IFLNK else "is not a plain file")
    if flags & _ENCRYPTED:
        raise refused(entry.name, "is encrypted")
    if entry.method not in {_STORED, _DEFLATED}:
        raise refused(entry.name, "is compressed in a way that is not supported")
    if entry.method == _STORED and entry.size != entry.packed:
        raise refused(entry.name, "is not as large as it says")
    if entry.is_directory and entry.size:
        raise refused(entry.name, "is a directory with content")


def _end_of(descriptor: int, entry: ZipEntry, following: int) -> int:
    """Check an entry's own header and what follows its content; return where the entry ends."""
    header = os.pread(descriptor, _LOCAL.size + len(entry.raw), entry.offset)
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise refused(entry.name, "has no header of its own")
    _, _, flags, method, _, _, crc, packed, size, named, extra = _LOCAL.unpack_from(header)
    if header[_LOCAL.size : _LOCAL.size + named] != entry.raw:
        raise refused(entry.name, "has another name in its own header")
    start = _LOCAL.size + named
    extras = _extras(os.pread(descriptor, extra, entry.offset + start), entry.name, entry.raw)
    large = extras.get(_ZIP64, b"")
    if _LONG_MAX in {packed, size}:
        size, packed = _from_extra(extras, (size, packed), entry.name)
    elif len(large) >= 16:  # not needed, but some tools read it all the same, so it must not say otherwise
        also = struct.unpack_from("<2Q", large)
        if also not in {(size, packed), (entry.size, entry.packed)}:
            raise refused(entry.name, "is something else in its own header")
    right = (entry.crc, entry.packed, entry.size)
    said = (crc, packed, size)
    if flags & _LATER:  # what is not known in front stands behind the content
        said = tuple(value or known for value, known in zip(said, right, strict=True))  # type: ignore[assignment]
    if method != entry.method or said != right or flags & _ENCRYPTED:
        raise refused(entry.name, "is something else in its own header")
    entry.start = entry.offset + start + extra
    end = entry.start + entry.packed
    gap = following - end
    if gap and flags & _LATER and 0 < gap <= 24:
        behind = os.pread(descriptor, gap, end)
        forms = [
            struct.pack(form, *right) for form in ("<3I", "<IQQ") if max(right) <= _LONG_MAX or "Q" in form
        ]
        if behind in {mark + form for form in forms for mark in (b"", b"PK\x07\x08")}:
            return following
    return end
