"""A place to run Python code and programs in a sandbox."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vademecum.config import SandboxName
from vademecum.sandbox.available import choose_sandbox
from vademecum.sandbox.base import Jail, Limits, own_python
from vademecum.sandbox.process import Ended, Streams, run_command


@dataclass
class Cell:
    """One sandbox with a working directory; ``jail`` holds what differs from the defaults."""

    place: Path
    name: SandboxName
    limits: Limits = field(default_factory=lambda: Limits(seconds=60))

    def __post_init__(self) -> None:
        self.work = self.place / "work"
        self.work.mkdir()
        self.streams = Streams(self.place / "out", self.place / "err")

    def jail(self, **given: Any) -> Jail:
        """Return a jail in which Python runs and the working directory is writable."""
        readable = (*own_python().readable, *given.pop("readable", ()))
        writable = (self.work, *given.pop("writable", ()))
        environment = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
        return Jail(self.work, environment, readable, writable, limits=self.limits, **given)

    def run(self, argv: list[str], *, jail: Jail | None = None, **options: Any) -> Ended:
        """Run a program."""
        sandbox = choose_sandbox(self.name)
        return run_command(sandbox, argv, jail or self.jail(), streams=self.streams, **options)

    def python(self, code: str, *words: str, jail: Jail | None = None, **options: Any) -> Ended:
        """Run Python code."""
        argv = [*own_python().words, "-c", textwrap.dedent(code), *words]
        return self.run(argv, jail=jail, **options)

    def printed(self, code: str, *words: str, jail: Jail | None = None, **options: Any) -> list[str]:
        """Return the lines that Python code prints; it must end well."""
        ended = self.python(code, *words, jail=jail, **options)
        assert (ended.reason, ended.exit_code) == ("exited", 0), (ended, self.streams.err.read_text())
        return self.streams.out.read_text().splitlines()
