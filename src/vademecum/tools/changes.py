"""Files and directories that a command changes in place: what was in them before, and what changed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vademecum.errors import ToolRefused
from vademecum.tools.inputs import Stamp, stamp_of

MAX_KEPT_FILES = 20_000
MAX_KEPT_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class Changes:
    """The content of some paths before a command runs, kept in ``trash`` until it is known to be the same."""

    trash: Path
    paths: tuple[Path, ...]
    before: dict[Path, Stamp] = field(default_factory=dict)
    made: tuple[Path, ...] = ()

    def files(self) -> Iterator[Path]:
        """Yield the plain files and links that are there now."""
        for path in self.paths:
            yield from _files(path)

    def keep(self) -> None:
        """Copy everything that the command could change, and make the files that it is to write.

        Refuse more than can be kept.
        """
        left = MAX_KEPT_BYTES
        for file in self.files():
            self.before[file] = stamp_of(file)
            left -= file.lstat().st_size
            if left < 0 or len(self.before) > MAX_KEPT_FILES:
                raise ToolRefused(
                    f"What may be changed is too large to keep its old content (at most {MAX_KEPT_FILES:,} "
                    f"files and {MAX_KEPT_BYTES:,} bytes): name a smaller part of it.",
                    code="too-large",
                )
            kept = self._kept(file)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, kept, follow_symlinks=False)
        self.made = tuple(path for path in self.paths if not os.path.lexists(path))
        for path in self.made:
            path.touch()

    def found(self) -> list[Path]:
        """Return what was changed, made or removed; what is the same is not kept any longer."""
        after = {file: stamp_of(file) for file in self.files()}
        for path in self.made:
            if path in after and not path.stat().st_size:
                path.unlink()
                del after[path]
        same = [file for file, stamp in self.before.items() if after.get(file) == stamp]
        for file in same:
            self._kept(file).unlink(missing_ok=True)
        return sorted({*self.before, *after} - set(same))

    def take_away(self, file: Path) -> None:
        """Move a file that the command may not make to the trash."""
        kept = self._kept(file)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, kept)

    def _kept(self, file: Path) -> Path:
        return self.trash / str(file).lstrip("/")


def _files(path: Path) -> Iterator[Path]:
    """Yield the plain files and links at or below a path."""
    if not path.is_dir() or path.is_symlink():
        if os.path.lexists(path):
            yield path
        return
    for place, directories, files in os.walk(path):
        for name in (*files, *directories):
            file = Path(place, name)
            mode = file.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                yield file
