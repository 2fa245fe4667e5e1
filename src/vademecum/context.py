"""Where a command runs: working directory, home directory and environment, as one value."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Context:
    """The directories and environment that everything else is computed from; tests build their own.

    >>> place = Context(cwd=Path("/srv/app"), home=Path("/home/ada"), env={})
    >>> str(place.expand("~/skills")), str(place.expand("skills"))
    ('/home/ada/skills', '/srv/app/skills')
    """

    cwd: Path
    home: Path
    env: Mapping[str, str]

    @classmethod
    def current(cls) -> Context:
        """Return the context of this process."""
        try:
            cwd = Path.cwd()
        except FileNotFoundError as error:
            raise ConfigError("The working directory no longer exists: change to another one.") from error
        # The home directory need not exist; if the user has none, this path never exists.
        home = os.environ.get("HOME") or os.path.expanduser("~") or "/nonexistent"
        return cls(cwd=cwd, home=Path(os.path.abspath(home)), env=dict(os.environ))

    def expand(self, path: str | Path, *, base: Path | None = None) -> Path:
        """Return an absolute path: ``~`` is this context's home, other paths are relative to ``base``."""
        text = str(path)
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return Path(os.path.normpath((base or self.cwd) / text))

    def project_directories(self) -> list[Path]:
        """Return the working directory and its parents up to the repository's root, nearest first.

        Outside a repository, the search ends at the nearest directory with an ``.agent`` of this user.
        The home directory is never a project, nor is a directory above it.

        >>> Context(cwd=Path("/nonexistent/a"), home=Path("/home/ada"), env={}).project_directories()
        [PosixPath('/nonexistent/a')]
        """
        chain = [self.cwd, *self.cwd.parents]
        home = Path(os.path.realpath(self.home))
        top = next((i for i, place in enumerate(chain) if os.path.lexists(place / ".git")), None)
        if top is None:
            around = {home, *home.parents}
            top = next((i for i, place in enumerate(chain) if _has_own_agent(place, around)), 0)
        return [place for place in chain[: top + 1] if Path(os.path.realpath(place)) != home]

    @property
    def project(self) -> Path:
        """The outermost directory of the project; without one, the working directory."""
        return (self.project_directories() or [self.cwd])[-1]

    @property
    def agent_directory(self) -> Path:
        """The ``.agent`` of the nearest project directory that has one, else of the outermost."""
        places = self.project_directories() or [self.cwd]
        return next((place for place in places if (place / ".agent").is_dir()), places[-1]) / ".agent"

    @property
    def speaks_chinese(self) -> bool:
        """Return whether the user's locale asks for messages in Chinese.

        >>> Context(cwd=Path("/"), home=Path("/root"), env={"LANG": "zh_CN.UTF-8"}).speaks_chinese
        True
        """
        values = (self.env.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
        return next(filter(None, values), "").lower().startswith("zh")

    def cache_directory(self) -> Path | None:
        """Return the platform's cache directory for vademecum, or ``None`` without a home directory."""
        base = self.env.get("XDG_CACHE_HOME", "")
        if override := self.env.get("VADE_CACHE_DIR"):
            directory = self.expand(override)
        elif sys.platform == "darwin":
            directory = self.home / "Library" / "Caches" / "vademecum"
        else:  # the XDG specification says that a relative value must be ignored
            directory = (Path(base) if base.startswith("/") else self.home / ".cache") / "vademecum"
        return None if self.home in directory.parents and not self.home.is_dir() else directory


def _has_own_agent(place: Path, around_home: set[Path]) -> bool:
    """Return whether a directory that does not contain the home has an ``.agent`` of this user or root.

    Another user's ``.agent``, for example in ``/tmp``, does not count.
    """
    try:
        about = os.stat(place / ".agent")
    except OSError:
        return False
    is_apart = Path(os.path.realpath(place)) not in around_home
    return is_apart and stat.S_ISDIR(about.st_mode) and about.st_uid in {os.getuid(), 0}
