"""Change files and keep the old content: ``write_file``, ``edit_file``, ``delete_file``, and commands."""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vademecum.errors import ToolRefused, VademecumError
from vademecum.skill.text import counted
from vademecum.tools.calls import EditFile, Observation
from vademecum.tools.exchange import Stamp, stamp_of
from vademecum.tools.workspace import Located, open_located, open_parent

MAX_COMPARED_BYTES = 1024 * 1024
MAX_EDITED_BYTES = 10 * 1024 * 1024
MAX_DIFF_CHARS = 20_000
MAX_KEPT_FILES = 20_000
MAX_KEPT_BYTES = 256 * 1024 * 1024


def difference(before: str, after: str, name: str) -> str:
    r"""Return a unified diff of two texts.

    >>> print(difference("a\n", "b\n", "x"))
    --- x (before)
    +++ x (after)
    @@ -1 +1 @@
    -a
    +b
    """
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (before)", f"{name} (after)", lineterm=""
    )
    text = "\n".join(lines)
    return text if len(text) <= MAX_DIFF_CHARS else f"{text[:MAX_DIFF_CHARS]}\n[the rest is left out]"


def planned(located: Located, after: bytes) -> str:
    """Return the difference that new content would make to a file."""
    before = content(located) or b""
    if max(len(after), len(before)) > MAX_COMPARED_BYTES or b"\0" in after or b"\0" in before:
        return f"replaces {len(before):,} bytes by {len(after):,} that are not shown"
    return difference(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"), located.name)


def edited(call: EditFile, located: Located) -> bytes:
    """Return the content of a file with one text replaced, which must occur exactly once."""
    before = content(located, cap=MAX_EDITED_BYTES)
    if before is None:
        raise ToolRefused(f"There is no {located.name!r} here.", code="missing")
    if len(before) > MAX_EDITED_BYTES:
        raise ToolRefused(f"{located.name!r} is larger than {MAX_EDITED_BYTES:,} bytes.", code="too-large")
    old, new = call.old.encode(), call.new.encode()
    if b"\r\n" in before and b"\r\n" not in old:  # a Windows file, which the model sees with plain line ends
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
    found = before.count(old)
    if found != 1:
        often, hint = f"is {found} times", "name a longer text"
        if not found:
            often, hint = "is not", "read the file again"
        raise ToolRefused(f"The text to replace {often} in {located.name!r}: {hint}.", code="not-unique")
    return before.replace(old, new)


def content_digest(located: Located) -> str:
    """Return the digest of a file's content, or an empty text if it does not exist."""
    try:
        with os.fdopen(open_located(located), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (VademecumError, OSError):
        return ""


def content(located: Located, *, cap: int = MAX_COMPARED_BYTES) -> bytes | None:
    """Return a file's content, at most one byte more than the cap, or ``None`` if it does not exist."""
    try:
        with os.fdopen(open_located(located), "rb") as file:
            return file.read(cap + 1)
    except VademecumError:
        return None


def refuse_link(located: Located) -> None:
    """Raise if a file is a link: its target must be changed under its own name."""
    if os.path.islink(located.path):
        text = f"{located.name!r} is a link: name the file that it leads to."
        raise ToolRefused(text, code="not-a-file")


def replace_file(tool: str, located: Located, data: bytes, trash: Path) -> Observation:
    """Replace the content of a file in one step; move the old content to the trash."""
    shown = planned(located, data)
    with open_parent(located, make=True) as (directory, name):
        mode = _mode(name, directory, located)
        temporary = f".vade-{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, mode, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            kept = _kept(directory, name, trash, located.relative)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
    facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "diff": shown}
    text = f"Wrote {located.name} ({counted(len(data), 'byte')})."
    return Observation(tool, text, facts=facts, files=(str(kept),) if kept else ())


def delete_file(located: Located, trash: Path) -> Observation:
    """Move a file to the trash."""
    with open_parent(located) as (directory, name):
        if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            raise ToolRefused(f"{located.name!r} is a directory: name a file.", code="not-a-file")
        kept = _kept(directory, name, trash, located.relative)
        os.unlink(name, dir_fd=directory)
    return Observation("delete_file", f"Deleted {located.name}; it is kept as {kept}.", files=(str(kept),))


def _kept(directory: int, name: str, trash: Path, relative: str) -> Path | None:
    """Keep a file in the trash as a hard link or a copy; return its path, or ``None`` if there is no file."""
    if not os.access(name, os.F_OK, dir_fd=directory, follow_symlinks=False):
        return None
    kept = trash / relative
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(name, kept, src_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM}:  # another file system, or another user's file
            raise
        shutil.copy2(f"/proc/self/fd/{directory}/{name}", kept, follow_symlinks=False)
    return kept


def _mode(name: str, directory: int, located: Located) -> int:
    """Return the mode of the file to replace, which must be a plain file or missing."""
    try:
        mode = os.lstat(name, dir_fd=directory).st_mode
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(mode):
        raise ToolRefused(f"{located.name!r} is not a plain file: name another.", code="not-a-file")
    return stat.S_IMODE(mode) & 0o777


@dataclass(slots=True)
class Changes:
    """The content of some paths before a command runs, kept in ``trash`` until known to be unchanged."""

    trash: Path
    paths: tuple[Path, ...]
    before: dict[Path, Stamp] = field(default_factory=dict)
    made: tuple[Path, ...] = ()

    def files(self) -> Iterator[Path]:
        """Yield the plain files and links that exist now."""
        for path in self.paths:
            if not path.is_dir() or path.is_symlink():
                yield from (path,) if os.path.lexists(path) else ()
                continue
            for place, directories, files in os.walk(path):
                for file in (Path(place, name) for name in (*files, *directories)):
                    if stat.S_ISREG(mode := file.lstat().st_mode) or stat.S_ISLNK(mode):
                        yield file

    def keep(self) -> None:
        """Copy everything that the command could change, up to a limit, and create the files to write."""
        left = MAX_KEPT_BYTES
        for file in self.files():
            self.before[file] = stamp_of(file)
            left -= file.lstat().st_size
            if left < 0 or len(self.before) > MAX_KEPT_FILES:
                raise ToolRefused(
                    f"The paths to change are too large to keep (at most {MAX_KEPT_FILES:,} "
                    f"files and {MAX_KEPT_BYTES:,} bytes): name a smaller part.",
                    code="too-large",
                )
            shutil.copy2(file, self._kept(file), follow_symlinks=False)
        self.made = tuple(path for path in self.paths if not os.path.lexists(path))
        for path in self.made:
            path.touch()

    def found(self) -> list[Path]:
        """Return what was changed, created or removed; drop the copies of unchanged files."""
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
        """Move a file that the command must not create to the trash."""
        shutil.move(file, self._kept(file))

    def _kept(self, file: Path) -> Path:
        """Return the path for the old content of a file, and create its directory."""
        kept = self.trash / str(file).lstrip("/")
        kept.parent.mkdir(parents=True, exist_ok=True)
        return kept
