"""Cache the skills that earlier scans read, so that unchanged documents are not read again.

A cache file belongs to one list of roots and one set of reading options. It is written completely and
atomically, so processes share it without a lock: the last writer wins, and every version is correct.
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

# Another version may read documents by other rules, so it needs a new cache.
FORMAT = f"vademecum-index-6 {VERSION}"
MAX_CACHE_BYTES = 1024 * 1024 * 1024
MAX_CACHE_FILES = 64
MAX_HALF_WRITTEN = 8
CHECKSUM_BYTES = 4
# A file that changed this shortly before it was read could change again with the same time.
CLOCK_RESOLUTION_NS = 2_000_000_000

# The signature of a file that must be read again.
UNTRUSTED: Signature = (0, 0, 0, 0)


def trusted(signature: Signature, *, now_ns: int) -> Signature:
    """Return the signature to store: none for a file that changed just now, so that it is read again."""
    changed = signature[1]  # every change of a file updates this time, whatever its other times are
    return signature if changed < now_ns - CLOCK_RESOLUTION_NS else UNTRUSTED


def stamp_of(signature: Signature) -> int:
    """Return the signature as one number; 0 for a file that must be read again."""
    return hash(signature) if signature[3] else 0


class CachedSkill(Struct, frozen=True, gc=False, array_like=True):
    """One skill as a scan read it, valid or not."""

    signature: Signature
    skill: Skill


class _Content(Struct, frozen=True, array_like=True):
    format: str
    roots: list[list[CachedSkill]]


def cache_key(roots: Iterable[Root], *more: str) -> str:
    """Return the name of the cache for one list of roots and one set of reading options."""
    places = [f"{root.source}\0{root.path}" for root in roots]
    return hashlib.sha256("\0".join([*more, *places]).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def load_cache(path: Path, *, count: int) -> tuple[list[dict[str, CachedSkill]], Problem | None]:
    """Return the cached skills of each root by directory, and a problem if the file cannot be used."""
    try:
        roots = _decoded(read_own(path, cap=MAX_CACHE_BYTES), count=count)
    except FileNotFoundError:
        return [{} for _ in range(count)], None
    except (OSError, FileRefused, MsgspecError) as error:
        text = f"The index cache {path} was not used ({error}) and is rebuilt"
        return [{} for _ in range(count)], Problem("cache-rebuilt", "warning", text)
    return [{seen.skill.directory: seen for seen in of_root} for of_root in roots], None


def save_cache(path: Path, roots: list[list[CachedSkill]]) -> Problem | None:
    """Write the skills that a scan found in each root; return the problem if that fails."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, _encoded(roots), mode=0o600)
    except OSError as error:
        text = f"The index cache {path} cannot be written ({error.strerror}): the next start is slower"
        return Problem("cache-not-written", "warning", text)
    # Each list of roots has its own file, and old ones are never read again. They are removed, as are the
    # hidden, half-written files of killed processes.
    keep_newest(path.parent, "index-*.msgpack", MAX_CACHE_FILES)
    keep_newest(path.parent, ".index-*", MAX_HALF_WRITTEN)
    return None


def _checksum(content: memoryview) -> bytes:
    """Return a checksum against damage. It is no protection against forgery: the file is the user's own."""
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big")


def _encoded(roots: list[list[CachedSkill]]) -> bytearray:
    """Return the content of the cache after its checksum. It can be megabytes, so it is not copied."""
    data = bytearray(CHECKSUM_BYTES)
    encoder = msgpack.Encoder()
    try:
        encoder.encode_into(_Content(FORMAT, roots), data, CHECKSUM_BYTES)
    except UnicodeEncodeError:
        # A document with half a character, or with a path that is not UTF-8, is read again each time.
        encodable = [list(filter(_is_encodable, of_root)) for of_root in roots]
        encoder.encode_into(_Content(FORMAT, encodable), data, CHECKSUM_BYTES)
    data[:CHECKSUM_BYTES] = _checksum(memoryview(data)[CHECKSUM_BYTES:])
    return data


def _is_encodable(seen: CachedSkill) -> bool:
    try:
        msgpack.encode(seen)
    except UnicodeEncodeError:
        return False
    return True


def _decoded(data: bytes, *, count: int) -> list[list[CachedSkill]]:
    content = memoryview(data)[CHECKSUM_BYTES:]  # without a copy
    if _checksum(content) != data[:CHECKSUM_BYTES]:
        raise FileRefused("it is damaged")
    decoded = msgpack.decode(content, type=_Content)
    if decoded.format != FORMAT:
        raise FileRefused("it is from another version")
    if len(decoded.roots) != count:
        raise FileRefused("it is damaged")
    return decoded.roots
