"""Fetch the files of one commit of a repository with git, without checking it out or running its code.

Objects are read from git's store by their names. Without a work tree no hook, filter or attribute of the
repository applies, and links are only entries in a list.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from vademecum.errors import PackRefused
from vademecum.packs.sources.archive import MAX_UNPACKED_BYTES, Opened, SourceFile
from vademecum.packs.sources.references import GitSource

MAX_FETCHED_BYTES = 2 * 1024 * 1024 * 1024
MAX_SECONDS = 600.0
MAX_LISTED_BYTES = 50 * 1024 * 1024
MAX_COMPLAINT_CHARS = 300

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_EXECUTABLE, _FILES = "100755", frozenset({"100644", "100755", "100664"})
_LOOK_SECONDS = 0.05
# The user's git settings (keys, proxies, aliases of hosts) apply, except those that run commands.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
# Set by git for its hooks: they would lead into another repository.
_OF_ANOTHER = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|(?:ALTERNATE_)?OBJECT_DIRECTOR(?:Y|IES)|NAMESPACE|COMMON_DIR|PREFIX)\Z"
)


class Repository:
    """An empty bare repository that others are fetched into."""

    def __init__(self, place: Path, *, seconds: float = MAX_SECONDS) -> None:
        git = shutil.which("git")
        if git is None:
            raise PackRefused("git is not installed, and this source needs it: install git.")
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._seconds = seconds
        self._words = [git, *(word for setting in _SETTINGS for word in ("-c", setting)), "-C", str(place)]
        self._run("init", "--quiet", "--bare", "--template=", ".")

    def fetch(self, source: GitSource, *, commit: str | None = None) -> str:
        """Fetch one commit, without its history, and return its name."""
        wanted = commit or source.ref or "HEAD"
        try:
            self._fetch(source.url, wanted)
        except PackRefused:
            if commit is None:
                raise
            # Some servers do not serve a commit by its name; the branch may still point to it.
            self._fetch(source.url, source.ref or "HEAD")
        found = self._run("rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}").strip()
        if not _COMMIT.match(found):
            raise PackRefused(f"{source.url} has no commit at {wanted!r}: nothing was installed.")
        return found

    @contextlib.contextmanager
    def open(self, commit: str, directory: str) -> Iterator[Opened]:
        """Open all files of a commit below a directory; links and submodules have an objection."""
        listed = self._run(
            "ls-tree", "-r", "-z", "-l", "--full-tree", f"{commit}:{directory}", most=MAX_LISTED_BYTES
        )
        with subprocess.Popen(  # noqa: S603 - git, told object names only
            [*self._words, "cat-file", "--batch"],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as reader:
            try:
                yield Opened(tuple(_files(listed, reader)))
            finally:
                reader.kill()

    def _fetch(self, url: str, wanted: str) -> None:
        self._run("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, wanted)

    def _run(self, *words: str, most: int = MAX_FETCHED_BYTES) -> str:
        """Run git and return its output; kill it if it takes too long, or fetches or prints too much."""
        deadline = time.monotonic() + self._seconds
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(  # noqa: S603 - git, with addresses behind a "--"
                [*self._words, *words],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_SECONDS)
                        break
                    if time.monotonic() > deadline:
                        late = f"git {words[0]} took longer than {self._seconds:.0f} seconds"
                        raise PackRefused(f"{late}: nothing was installed.")
                    if os.fstat(out.fileno()).st_size > most or _size_of(self._place) > MAX_FETCHED_BYTES:
                        raise PackRefused("The repository is too large: name a smaller one.")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            err.seek(0)
            if process.returncode:
                # After an empty line, git gives general advice.
                said = err.read(8192).decode("utf-8", "replace").strip().partition("\n\n")[0].splitlines()
                lines = (line.removeprefix("fatal: ").rstrip(".") for line in said)
                reason = "; ".join(lines)[:MAX_COMPLAINT_CHARS] or "no message"
                raise PackRefused(f"git {words[0]} failed ({reason}): nothing was installed.")
            return os.fsdecode(out.read())


def _files(listed: str, reader: subprocess.Popen[bytes]) -> Iterator[SourceFile]:
    for line in filter(None, listed.split("\0")):
        about, _, name = line.partition("\t")
        mode, _, blob, length = about.split()
        size = int(length) if length.isdigit() else 0
        objection = "is too large" if size > MAX_UNPACKED_BYTES else ""
        if mode not in _FILES:
            objection = "is a link or another repository"
        yield SourceFile(name, size, mode == _EXECUTABLE, partial(_read, reader, name, blob), objection)


def _read(reader: subprocess.Popen[bytes], name: str, blob: str) -> IO[bytes]:
    """Return an object's content, exactly as it was committed."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(f"{blob}\n".encode())
    reader.stdin.flush()
    head = reader.stdout.readline().split()
    if len(head) != 3 or head[1] != b"blob":
        raise PackRefused(f"{name!r} cannot be read from the repository: nothing was installed.")
    data = reader.stdout.read(int(head[2]))
    reader.stdout.read(1)
    return io.BytesIO(data)


def _size_of(place: Path) -> int:
    """Return the size of all files below a directory; files that git removes meanwhile do not count."""
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(f"{directory}/{name}").st_size
    return total


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _OF_ANOTHER.match(name)}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
