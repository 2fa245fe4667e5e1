"""Skills that earlier scans read ↔ a file: a document that did not change is not read again.

The file belongs to one list of roots and one way of reading. It is written whole and atomically, so
processes share it without a lock: the last one to write wins, and whatever is there is true.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

from msgspec import MsgspecError, Struct, msgpack

from vademecum.errors import FileRefused
from vademecum.files import keep_newest, read_own, write_atomic
from vademecum.registry.roots import Root
from vademecum.registry.scan import Signature
from vademecum.skill.skill import Problem, Skill
from vademecum.version import VERSION

# Another version may read documents by other rules, so it starts afresh.
FORMAT = f"vademecum-index-5 {VERSION}"
MAX_CACHE_BYTES = 1024 * 1024 * 1024
MAX_CACHE_FILES = 64
MAX_HALF_WRITTEN = 8
CHECKSUM_BYTES = 4
_ENCODER = msgpack.Encoder()
# A file that changed this shortly before it was read could change again and bear the same time.
CLOCK_RESOLUTION_NS = 2_000_000_000

# The signature of a file that must be read again.
UNTRUSTED: Signature = (0, 0, 0, 0)


def trusted(signature: Signature, *, now_ns: int) -> Signature:
    """Return the signature to remember: none for a file that changed just now, so it is read again."""
    changed = signature[1]  # no change of a file leaves this time behind, whatever its other times say
    return signature if changed < now_ns - CLOCK_RESOLUTION_NS else UNTRUSTED


def stamp_of(signature: Signature) -> int:
    """Return the signature as one number; 0 for a file that must be read again."""
    return hash(signature) if signature is not UNTRUSTED and signature[3] else 0


class CachedSkill(Struct, frozen=True, gc=False, array_like=True):
    """One skill as a scan read it, valid or not."""

    signature: Signature
    skill: Skill


class _Content(Struct, frozen=True, array_like=True):
    format: str
    roots: list[list[CachedSkill]]


class IndexCache:
    """The cache of one list of roots; without a directory it remembers nothing."""

    def __init__(self, directory: Path | None, *, roots: Iterable[Root], reading: str) -> None:
        places = [f"{root.source}\0{root.path}" for root in roots]
        key = hashlib.sha256("\0".join([reading, *places]).encode("utf-8", "surrogateescape")).hexdigest()
        self._path = None if directory is None else directory / f"index-{key[:32]}.msgpack"
        # What is remembered of each root, by directory.
        self.known: list[dict[str, CachedSkill]] = [{} for _ in places]
        self.problem: Problem | None = None
        if self._path is not None:
            self._load(self._path)

    def save(self, roots: list[list[CachedSkill]]) -> Problem | None:
        """Write what a scan saw in each root; return the problem if that fails."""
        if self._path is None:
            return None
        data = bytearray(CHECKSUM_BYTES)
        _encode(roots, data)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._path, data, mode=0o600)
        except OSError as error:
            text = (
                f"The index cache {self._path} cannot be written ({error.strerror}): the next start is slower"
            )
            return Problem("cache-not-written", "warning", text)
        # Each list of roots has its own file, and old ones are never asked for again. What a process that
        # was killed had half written, under a hidden name, goes the same way.
        keep_newest(self._path.parent, "index-*.msgpack", MAX_CACHE_FILES)
        keep_newest(self._path.parent, ".index-*", MAX_HALF_WRITTEN)
        return None

    def _load(self, path: Path) -> None:
        try:
            roots = _decoded(read_own(path, cap=MAX_CACHE_BYTES), count=len(self.known))
        except FileNotFoundError:
            return
        except (OSError, FileRefused, MsgspecError) as error:
            text = f"The index cache {path} was not used ({error}) and is built anew"
            self.problem = Problem("cache-rebuilt", "warning", text)
            return
        self.known = [{seen.skill.directory: seen for seen in of_root} for of_root in roots]


def _checksum(content: memoryview) -> bytes:
    """Return a checksum against damage; the file is the user's own, so it need not stop a forger."""
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big")


def _encode(roots: list[list[CachedSkill]], data: bytearray) -> None:
    """Write what is remembered, and its checksum, into ``data``: megabytes, which are not copied."""
    try:
        _ENCODER.encode_into(_Content(FORMAT, roots), data, CHECKSUM_BYTES)
    except UnicodeEncodeError:
        # A document whose path is not UTF-8 is read afresh each time.
        encodable = [list(filter(_is_encodable, of_root)) for of_root in roots]
        _ENCODER.encode_into(_Content(FORMAT, encodable), data, CHECKSUM_BYTES)
    data[:CHECKSUM_BYTES] = _checksum(memoryview(data)[CHECKSUM_BYTES:])


def _is_encodable(seen: CachedSkill) -> bool:
    try:
        _ENCODER.encode(seen)
    except UnicodeEncodeError:
        return False
    return True


def _decoded(data: bytes, *, count: int) -> list[list[CachedSkill]]:
    content = memoryview(data)[CHECKSUM_BYTES:]  # which copies nothing
    if _checksum(content) != data[:CHECKSUM_BYTES]:
        raise FileRefused("it is damaged")
    decoded = msgpack.decode(content, type=_Content)
    if decoded.format != FORMAT:
        raise FileRefused("it is from another version")
    if len(decoded.roots) != count:
        raise FileRefused("it is damaged")
    return decoded.roots
