"""Where a command runs: working directory, home directory and environment, as one value."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vademecum.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings everything else is computed from; tests build their own.

    >>> place = Context(cwd=Path("/srv/app"), home=Path("/home/ada"), env={})
    >>> str(place.expand("~/skills")), str(place.expand("skills"))
    ('/home/ada/skills', '/srv/app/skills')
    """

    cwd: Path
    home: Path
    env: Mapping[str, str]

    @classmethod
    def current(cls) -> Context:
        """The surroundings of this process."""
        try:
            cwd = Path.cwd()
        except FileNotFoundError as error:
            raise ConfigError("The working directory no longer exists: change to another one.") from error
        return cls(cwd=cwd, home=_home(os.environ), env=dict(os.environ))

    def expand(self, path: str | Path, *, base: Path | None = None) -> Path:
        """The absolute form of ``path``: ``~`` is this context's home, the rest is relative to ``base``."""
        text = str(path)
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return Path(os.path.normpath((base or self.cwd) / text))

    def project_directories(self) -> list[Path]:
        """The working directory and its parents up to the repository's root, nearest first.

        Outside a repository only the working directory counts: a directory further up
        may belong to somebody else. The home directory is never a project.

        >>> Context(cwd=Path("/nonexistent/a"), home=Path("/home/ada"), env={}).project_directories()
        [PosixPath('/nonexistent/a')]
        """
        chain = [self.cwd, *self.cwd.parents]
        top = next((i for i, place in enumerate(chain) if os.path.lexists(place / ".git")), 0)
        home = os.path.realpath(self.home)
        return [place for place in chain[: top + 1] if os.path.realpath(place) != home]

    def cache_directory(self) -> Path | None:
        """The platform's cache directory for vademecum; ``None`` where there is no home to put it in."""
        directory = self._cache_directory()
        return None if self.home in directory.parents and not self.home.is_dir() else directory

    def _cache_directory(self) -> Path:
        if override := self.env.get("VADE_CACHE_DIR"):
            return self.expand(override)
        if sys.platform == "darwin":
            return self.home / "Library" / "Caches" / "vademecum"
        if sys.platform == "win32":
            return Path(self.env.get("LOCALAPPDATA") or self.home / "AppData" / "Local") / "vademecum"
        base = self.env.get("XDG_CACHE_HOME", "")
        # The XDG specification says that a relative value is to be ignored.
        return (Path(base) if base.startswith("/") else self.home / ".cache") / "vademecum"


def _home(env: Mapping[str, str]) -> Path:
    """The home directory, which need not exist; without one, a place where nothing is."""
    return Path(os.path.abspath(env.get("HOME") or os.path.expanduser("~") or "/nonexistent"))
