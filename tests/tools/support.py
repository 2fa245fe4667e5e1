"""A place to try tools and scripts in: a skill, a project, a home, and a session that allows everything."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support import index_of, write_skill
from vademecum import Context
from vademecum.config import Config, ExecutionSettings, SandboxName
from vademecum.masking import Secrets
from vademecum.policy.approval import Approver, Consent
from vademecum.policy.base import Decider
from vademecum.policy.engine import AllowAll
from vademecum.runs.record import Event
from vademecum.sandbox.available import choose_sandbox
from vademecum.session.base import Place, Result
from vademecum.session.session import Session
from vademecum.tools.workspace import Workspace


@dataclass
class Bench:
    """Tools and scripts of one skill, called through a real session."""

    place: Path
    sandbox: SandboxName = "none"
    execution: ExecutionSettings = field(
        default_factory=lambda: ExecutionSettings(seconds=120, memory_mb=256, disk_mb=32, processes=24)
    )
    policy: Decider = field(default_factory=AllowAll)
    approver: Approver = field(default_factory=Consent)
    env: dict[str, str] = field(default_factory=dict)
    records: list[SimpleNamespace] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.skill = write_skill(self.place / "root", "tried")
        (self.skill / "scripts").mkdir()
        self.project = self.place / "project"
        self.project.mkdir()

    @cached_property
    def session(self) -> Session:
        """A session in which the skill is active."""
        context = Context(cwd=self.project, home=self.place / "home", env=self.env)
        config = replace(Config(), execution=self.execution)
        session = Session(
            index_of(self.place / "root"),
            place=Place(context, config, self.project, Workspace(self.project), Secrets(self.env)),
            policy=self.policy,
            approver=self.approver,
            runs=self.place / "runs",
            listener=self._heard,
            sandbox=lambda _: choose_sandbox(self.sandbox),
        )
        session.activate("tried")
        return session

    def _heard(self, event: Event) -> None:
        if event.type == "tool_called":
            self.records.append(SimpleNamespace(**event.data))

    def call(self, name: Any, arguments: Any, **options: Any) -> Result:
        """Call a tool by its name."""
        return self.session.call_named(name, arguments, **options)

    def script(self, text: str | bytes, name: str = "x.py") -> Path:
        """Write a script of the skill."""
        file = self.skill / "scripts" / name
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        file.write_bytes(data)
        return file

    def run(
        self, *arguments: str, name: str = "x.py", files: tuple[str, ...] = (), network: bool = False
    ) -> Result:
        """Run a script of the skill."""
        call = {
            "skill": "tried",
            "relative_path": name,
            "args": list(arguments),
            "files": list(files),
            "network": network,
        }
        return self.call("run_script", call)

    def printed(
        self, *arguments: str, name: str = "x.py", files: tuple[str, ...] = (), network: bool = False
    ) -> str:
        """What a script prints; it must run."""
        seen = self.run(*arguments, name=name, files=files, network=network)
        assert seen.ok, seen.text
        return (Path(seen.files[0]).read_text() + Path(seen.files[1]).read_text()).strip()

    def goes_on(self) -> bool:
        """Whether the run goes on as if nothing had happened."""
        self.script("print('fine')", "fine.py")
        return self.printed(name="fine.py") == "fine"
