"""Packs that were installed before, kept to show later edits and to restore offline.

Any of them may be gone; what comes from here is checked against the lock like any source.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from vademecum.errors import VademecumError
from vademecum.files import write_atomic
from vademecum.packs.content import files_of
from vademecum.packs.outgoing import PackedSkill, pack_bytes

MAX_STORE_BYTES = 512 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class PackCache:
    """A directory of packs, each named by its own digest or that of the one skill in it."""

    def __init__(self, place: Path | None) -> None:
        self._place = place

    def find(self, *digests: str) -> Path | None:
        """Return the pack of the first of these digests that is here."""
        if self._place is None:
            return None
        files = [self._file(digest) for digest in digests if _DIGEST.match(digest)]
        return next((file for file in files if file.is_file()), None)

    def keep_pack(self, path: Path, digest: str, signature: bytes | None = None) -> None:
        """Keep a whole archive by the digest of its bytes, and the signature that lay beside it."""
        if self._place is None or self.find(digest) or not _DIGEST.match(digest):
            return
        kept = self._file(digest)
        temporary = kept.with_name(f"{kept.name}.{os.urandom(4).hex()}")
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            if signature is not None:
                write_atomic(kept.with_name(f"{kept.name}.sig"), signature)
            shutil.copyfile(path, temporary)
            os.replace(temporary, kept)
            self._prune()
        except OSError:
            temporary.unlink(missing_ok=True)  # it is only a cache

    def forget(self, path: Path) -> None:
        """Remove a pack that turned out to be damaged."""
        with contextlib.suppress(OSError):
            path.unlink()

    def keep_skill(self, directory: Path, digest: str) -> None:
        """Keep one installed skill by the digest of its files."""
        if self._place is None or self.find(digest) or not _DIGEST.match(digest):
            return
        try:
            skill = PackedSkill(directory.name, None, directory, files_of(directory))
            write_atomic(self._file(digest), pack_bytes(skill))
            self._prune()
        except (OSError, VademecumError):
            return  # it is only a cache

    def _file(self, digest: str) -> Path:
        assert self._place is not None
        return self._place / f"{digest.removeprefix('sha256:')}.zip"

    def _prune(self) -> None:
        """Remove the oldest packs if all of them are too large."""
        assert self._place is not None
        found = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(self._place)
        )
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= MAX_STORE_BYTES:
                return
            os.unlink(path)
            total -= size
