"""Build an environment with the required packages, once and outside the sandbox.

No code of a package runs during the build. uv resolves the requirements to exact versions with
hashes, from wheels only, and unpacks them below a directory that is not yet an environment. The base
interpreter compiles them with ``-I -S``, so it neither imports them nor reads their ``.pth`` files. Then the
files that make it an environment are written, and it is renamed to its place. Its interpreter starts only
inside the sandbox, where it can be read but not written.

If the user's configuration allows building packages from source, which runs their code, uv itself runs in the
sandbox, with the network and its own cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vademecum.context import Context
from vademecum.errors import FileRefused, ToolRefused
from vademecum.files import read_capped, read_own, try_lock, write_atomic
from vademecum.sandbox.available import Unconfined
from vademecum.sandbox.base import BASE_PYTHON, SYSTEM_PATH, Jail, Limits, Sandbox, own_python
from vademecum.sandbox.process import Streams, run_command
from vademecum.tools.packages.uv import DISK_FULL, explained, failed, find_uv, uv_environment

BUILD_SECONDS = 900.0
MAX_LOCK_BYTES = 4 * 1024 * 1024
MAX_DESCRIPTION_BYTES = 8 * 1024 * 1024
MAX_COMPLAINT_BYTES = 16 * 1024

_FORMAT = "1"
_DESCRIPTION = "environment.json"
_UNFINISHED = ".new-"
_WAIT_SECONDS = 0.05
_UV_OPTIONS = ("--no-config", "--no-progress", "--color", "never", "--no-python-downloads")
_WHEELS_ONLY = ("--only-binary", ":all:")
_GB = 1024**3

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment to run a script in: its interpreter, and the paths that the script must be able to read.

    ``lock`` has the exact versions with their hashes; ``cached`` is true if it existed already.
    """

    python: Path
    readable: tuple[Path, ...]
    lock: str
    cached: bool


@dataclass(frozen=True, slots=True)
class EnvironmentUsage:
    """The number of environments, and their size in bytes."""

    number: int = 0
    bytes: int = 0


class _Description(msgspec.Struct, frozen=True):
    lock: str
    names: str  # the digest of the names directly in site-packages, a cheap check that none is missing
    bytes: int


class Environments:
    """The environments in the user's cache directory, by interpreter and requirements."""

    def __init__(
        self, context: Context, *, seconds: float = BUILD_SECONDS, builder: Sandbox | None = None
    ) -> None:
        """Use wheels only, unless ``builder`` is a sandbox in which to build sources."""
        self._context, self._seconds, self._builder = context, seconds, builder
        self._cache = context.cache_directory()
        self._directory = (self._cache or Path("/nonexistent")) / "environments"

    def find(self, requirements: tuple[str, ...]) -> Environment | None:
        """Return the environment if it exists and is not damaged, without starting a process."""
        home = self._directory / _key(requirements)
        found = _described(home)
        return None if found is None else _environment(home, found.lock, cached=True)

    def get(
        self,
        requirements: tuple[str, ...],
        *,
        progress: Progress = lambda _: None,
        cancelled: Callable[[], bool] = bool,
    ) -> Environment:
        """Return the environment, and build it first if it does not exist.

        Raise ``ToolRefused`` with one sentence if that fails; an unfinished environment is never used.
        """
        found = self.find(requirements)
        if found is not None:
            return found
        uv, env = find_uv(self._context.env), uv_environment(self._context)
        deadline = time.monotonic() + self._seconds

        def stopped() -> bool:
            """Raise if the caller cancelled or the time is over."""
            if cancelled():
                text = "The installation of the packages was cancelled."
                raise ToolRefused(text, code="stopped-cancelled")
            if time.monotonic() > deadline:
                raise failed("it takes too long: try again, downloads are kept")
            return False

        with self._locked(progress, stopped) as directory:
            found = self.find(requirements)  # another process may have built it meanwhile
            if found is not None:
                return found
            _sweep(directory)
            place, home = directory / f"{_UNFINISHED}{os.urandom(6).hex()}", directory / _key(requirements)
            try:
                lock = _Build(place, uv, env, stopped, progress, self._builder).run(requirements)
                _discard(home)
                os.rename(place, home)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        return _environment(home, lock, cached=False)

    def usage(self) -> EnvironmentUsage:
        """Return the number and the size of all environments."""
        described = [_described(place) for place in self._directory.glob("[!.]*")]
        return EnvironmentUsage(len(described), sum(found.bytes for found in described if found is not None))

    def clear(self) -> EnvironmentUsage:
        """Remove all environments and return their number and size."""
        if not self._directory.is_dir():
            return EnvironmentUsage()
        with self._locked(lambda _: None, bool) as directory:
            before = self.usage()
            for place in list(self._directory.glob("[!.]*")):
                _discard(place)
            _sweep(directory)
        return before

    @contextlib.contextmanager
    def _locked(self, progress: Progress, stopped: Callable[[], bool]) -> Iterator[Path]:
        """Lock all environments; the lock ends with this process, however it ends."""
        if self._cache is None:
            raise failed("there is no home directory to keep them in: set VADE_CACHE_DIR")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._directory.stat().st_uid != os.geteuid():
                raise failed(f"{self._directory} belongs to another user: set VADE_CACHE_DIR")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self._directory / ".lock", flags, 0o600), "r+b") as lock:
                if not try_lock(lock.fileno()):
                    progress("waiting for another process that installs packages")
                    while not stopped() and not try_lock(lock.fileno()):
                        time.sleep(_WAIT_SECONDS)
                yield self._directory
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise failed(DISK_FULL) from error
            reason = f"{self._directory} cannot be used ({error.strerror}): correct it, or set VADE_CACHE_DIR"
            raise failed(reason) from error


@dataclass(frozen=True, slots=True)
class _Build:
    """The steps that build one environment in a directory that is not in use yet."""

    place: Path
    uv: str
    env: dict[str, str]
    stopped: Callable[[], bool]
    progress: Progress
    builder: Sandbox | None = None

    def run(self, requirements: tuple[str, ...]) -> str:
        """Do all steps and return the lock; the files that make it an environment are written last."""
        site, scratch = _site(self.place), self.place / "scratch"
        site.mkdir(parents=True)
        (scratch / "empty").mkdir(parents=True)
        self.progress(f"resolving {', '.join(requirements)}")
        (scratch / "wanted").write_text("\n".join(requirements) + "\n")
        words = ("--generate-hashes", "--no-header", "--no-annotate", "--output-file", str(scratch / "lock"))
        self._uv("compile", *words, str(scratch / "wanted"))
        lock = read_capped(scratch / "lock", cap=MAX_LOCK_BYTES).decode()  # exact versions with hashes
        if any(" @ " in line or line.startswith("-") for line in lock.splitlines()):
            raise failed("uv resolved one of them to an address: require another version")
        packages = sum("==" in line for line in lock.splitlines())
        self.progress(f"installing {packages:,} {'package' if packages == 1 else 'packages'}")
        # Copies: a change through a hard link would reach uv's cache and every other environment.
        self._uv(
            "sync", "--require-hashes", "--link-mode", "copy", "--target", str(site), str(scratch / "lock")
        )
        _plain_size(site)  # before anything follows a link
        self.progress("compiling")
        # Ignore the exit code: many packages have files for other versions, which do not compile.
        self._run((BASE_PYTHON, "-I", "-S", "-m", "compileall", "-qq", str(site)), {})
        shutil.rmtree(scratch)
        if os.listdir(self.place) != ["lib"]:
            raise failed("one of them has files for a place outside its directory: require another version")
        description = _Description(lock, _names(site), _plain_size(site))
        (self.place / "bin").mkdir()
        (self.place / "bin" / "python").symlink_to(BASE_PYTHON)
        config = f"home = {os.path.dirname(BASE_PYTHON)}\ninclude-system-site-packages = false\n"
        (self.place / "pyvenv.cfg").write_text(config)
        write_atomic(self.place / _DESCRIPTION, msgspec.json.encode(description), mode=0o600)
        return lock

    def _uv(self, verb: str, *words: str) -> None:
        base = ("--python", BASE_PYTHON, *_UV_OPTIONS, *(() if self.builder else _WHEELS_ONLY))
        command = (self.uv, "pip", verb, *base, *words)
        if self.builder is None:
            code, complaint = self._run(command, self.env)
        else:  # where uv and the build can change only this environment
            with tempfile.TemporaryDirectory(prefix="vade-build-") as name:
                own = {"HOME": name, "TMPDIR": name, "UV_CACHE_DIR": f"{name}/cache", "PATH": SYSTEM_PATH}
                code, complaint = self._run(command, self.env | own, self.builder, Path(name))
            _plain_size(self.place)  # before any file of the build is read
        if code:
            raise explained(complaint)

    def _run(
        self, command: tuple[str, ...], env: dict[str, str], sandbox: Sandbox | None = None, *own: Path
    ) -> tuple[int, str]:
        """Run a program and return its exit code and error output; package code needs a sandbox."""
        named = (env.get("SSL_CERT_FILE", ""), *env.get("UV_FIND_LINKS", "").split(","))
        empty = self.place / "scratch" / "empty"  # since uv reads some files in the working directory
        jail = Jail(
            directory=empty,
            environment=env,
            readable=(Path(self.uv), *_base_readable(), *(Path(each) for each in named if each[:1] == "/")),
            writable=() if sandbox is None else (self.place, *own),
            network="all",
            limits=Limits(
                seconds=math.inf,  # the caller has the deadline
                memory_bytes=4 * _GB,
                processes=256,
                disk_bytes=8 * _GB,
                file_bytes=(64 if sandbox is None else 2) * _GB,
                open_files=1024,
            ),
        )
        streams = Streams(empty.with_name("out"), empty.with_name("err"))
        ended = run_command(
            sandbox or Unconfined(), list(command), jail, streams=streams, cancelled=self.stopped
        )
        self.stopped()
        if ended.reason == "disk":
            raise failed(DISK_FULL)
        with open(streams.err, "rb") as said:
            complaint = said.read(MAX_COMPLAINT_BYTES).decode("utf-8", "replace")
        return 1 if ended.exit_code is None else ended.exit_code, complaint


def _environment(home: Path, lock: str, *, cached: bool) -> Environment:
    return Environment(home / "bin" / "python", (home, *_base_readable()), lock, cached)


def _base_readable() -> tuple[Path, ...]:
    return tuple(place for place in own_python().readable if place.is_relative_to(sys.base_prefix))


def _key(requirements: tuple[str, ...]) -> str:
    parts = (_FORMAT, sys.version, BASE_PYTHON, sysconfig.get_platform(), *requirements)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _site(place: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(place)}))


def _names(site: Path) -> str:
    return hashlib.sha256(b"\0".join(sorted(os.listdir(os.fsencode(site))))).hexdigest()


def _described(place: Path) -> _Description | None:
    """Return the description of an environment, or None if it is missing or visibly damaged."""
    try:
        found = msgspec.json.decode(
            read_own(place / _DESCRIPTION, cap=MAX_DESCRIPTION_BYTES), type=_Description
        )
        whole = found.names == _names(_site(place)) and os.access(place / "bin" / "python", os.X_OK)
    except (OSError, FileRefused, msgspec.MsgspecError):
        return None
    return found if whole else None


def _plain_size(site: Path) -> int:
    """Return the size of all files; raise if there is anything except files and directories."""
    size = 0
    for directory, names, files in os.walk(site):
        for name in (*names, *files):
            about = os.lstat(os.path.join(directory, name))
            if not stat.S_ISDIR(about.st_mode) and not stat.S_ISREG(about.st_mode):
                raise failed(f"{name!r} in one of them is not a plain file: require another version")
            size += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return size


def _sweep(directory: Path) -> None:
    """Remove the unfinished directories of killed processes; the caller must hold the lock."""
    for place in directory.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(place, ignore_errors=True)


def _discard(place: Path) -> None:
    """Remove an environment so that no process sees it half removed."""
    with contextlib.suppress(FileNotFoundError):
        aside = place.with_name(f"{_UNFINISHED}{os.urandom(6).hex()}")
        os.rename(place, aside)
        shutil.rmtree(aside, ignore_errors=True)
