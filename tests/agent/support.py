"""An agent in a place of its own, with a scripted model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import Place, write_skill
from vademecum import Agent, Budget, Outcome
from vademecum.errors import ModelFailed
from vademecum.models.scripted_model import Scripted
from vademecum.policy.approval import Approver, Consent
from vademecum.policy.base import Decider
from vademecum.runs.record import Event
from vademecum.runs.stored import PastRun, read_run


def final(text: str = "done", *, complete: bool = True) -> dict[str, Any]:
    payload: dict[str, Any] = {"text": text} if complete else {"text": text, "complete": False}
    return {"action": {"type": "final_answer", "payload": payload}}


def select(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "action": {"type": "select_skills", "payload": {"skills": [{"name": name} for name in names]}},
        **more,
    }


def run_script(skill: str, path: str, *args: str) -> dict[str, Any]:
    payload = {"skill": {"name": skill}, "relative_path": path, "args": list(args)}
    return {"action": {"type": "run_script", "payload": payload}}


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"action": {"type": "call_tool", "payload": {"tool": name, "arguments": arguments}}}


@dataclass
class Stage:
    """Runs requests with given turns, and gives what came of them."""

    place: Place
    approver: Approver | None = field(default_factory=Consent)
    policy: Decider | None = None
    budget: Budget = field(default_factory=Budget)
    piece: int = 0
    heard: list[Event] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        return self.place.cwd / ".agent" / "runs"

    def skill(self, name: str, fields: str = "", body: str = "# Body\n") -> Path:
        text = f"---\nname: {name}\ndescription: What {name} does.\n{fields}---\n{body}"
        return write_skill(self.place.cwd, f".agent/skills/{name}", text)

    def script(self, skill: str, text: str, name: str = "x.py", fields: str = "") -> Path:
        place = self.skill(skill, fields)
        (place / "scripts").mkdir(exist_ok=True)
        (place / "scripts" / name).write_text(text)
        return place

    def run(
        self,
        *turns: str | Mapping[str, Any] | ModelFailed,
        request: str = "do it",
        skills: tuple[str, ...] = (),
    ) -> Outcome:
        self.model = Scripted(list(turns), piece=self.piece)
        self.heard.clear()
        agent = Agent(
            model=self.model,
            index=self.place.build(),
            policy=self.policy,
            approver=self.approver,
            budget=self.budget,
            context=self.place.context,
            listener=self.heard.append,
        )
        return agent.run(request, skills=skills)

    def past(self, outcome: Outcome) -> PastRun:
        return read_run(self.runs, outcome.run_id)

    def types(self, outcome: Outcome) -> list[str]:
        return [event.type for event in self.past(outcome).events]

    def lines(self, outcome: Outcome) -> list[str]:
        return [event.data["line"] for event in self.past(outcome).events if event.type == "observation"]

    def prompt(self, number: int = -1) -> str:
        """All that the model was told by us: the catalogue, the requests and what came of its actions."""
        system, *told = self.model.seen[number]
        texts = [
            system.content.partition("=== catalogue ===")[2],
            *(m.content for m in told if m.role != "assistant"),
        ]
        return "\n".join(texts)
