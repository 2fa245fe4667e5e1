"""A place to try scripts in: a skill, a project, a home, and tools that allow everything."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from tests.support import index_of, write_skill
from vademecum.config import ExecutionSettings, SandboxName
from vademecum.policy.approval import Approver, Consent
from vademecum.policy.base import AllowAll, Decider
from vademecum.policy.gate import Gate
from vademecum.tools.base import AuditRecord, Observation
from vademecum.tools.runtime import Surroundings, Tools
from vademecum.tools.sandbox.choose import choose_sandbox
from vademecum.tools.workspace import Workspace


@dataclass
class Bench:
    """Scripts of one skill, run by real tools."""

    place: Path
    sandbox: SandboxName = "none"
    execution: ExecutionSettings = field(
        default_factory=lambda: ExecutionSettings(seconds=120, memory_mb=256, disk_mb=32, processes=24)
    )
    policy: Decider = field(default_factory=AllowAll)
    approver: Approver = field(default_factory=Consent)
    env: dict[str, str] = field(default_factory=dict)
    records: list[AuditRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.skill = write_skill(self.place / "root", "tried")
        (self.skill / "scripts").mkdir()
        self.project = self.place / "project"
        self.project.mkdir()

    @cached_property
    def tools(self) -> Tools:
        around = Surroundings(
            workspace=Workspace(self.project),
            record=self.place / "run",
            skill=lambda name: index_of(self.place / "root").get(name),
            sandbox=partial(choose_sandbox, self.sandbox),
            execution=self.execution,
            env=self.env,
            observer=self.records.append,
        )
        gate = Gate(self.policy, project=self.project, approver=self.approver)
        return Tools(gate, around)

    def script(self, text: str | bytes, name: str = "x.py") -> Path:
        """Write a script of the skill."""
        file = self.skill / "scripts" / name
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        file.write_bytes(data)
        return file

    def run(
        self, *arguments: str, name: str = "x.py", files: tuple[str, ...] = (), network: bool = False
    ) -> Observation:
        """Run a script of the skill."""
        call = {
            "skill": "tried",
            "script": name,
            "arguments": list(arguments),
            "files": list(files),
            "network": network,
        }
        return self.tools.call("run_script", call)

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
