"""Evaluations in a place of their own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import Place
from vademecum.evals.cases import Case
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.pool import Processes
from vademecum.evals.results import CaseResult, Evaluation
from vademecum.evals.suite import Suite
from vademecum.evals.units import Configuration, EvalSettings
from vademecum.models.base import Model

BASE = Configuration("default", yes=True)


def final(text: str = "done", **more: Any) -> dict[str, Any]:
    return {"action": {"type": "final_answer", "payload": {"text": text, **more}}}


def select(*names: str) -> dict[str, Any]:
    return {"action": {"type": "select_skills", "payload": {"skills": [{"name": name} for name in names]}}}


def script(skill: str, path: str, *args: str) -> dict[str, Any]:
    payload = {"skill": {"name": skill}, "relative_path": path, "args": list(args)}
    return {"action": {"type": "run_script", "payload": payload}}


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"action": {"type": "call_tool", "payload": {"tool": name, "arguments": arguments}}}


def case(id_: str, *turns: Any, **fields: Any) -> Case:
    mock = {"mock": {"turns": list(turns)}} if turns else {}
    return Case.model_validate({"id": id_, "input": "do it", **mock, **fields})


@dataclass
class Lab:
    """Evaluates cases with the skills of a place."""

    place: Place
    out: Path
    workers: int = 2
    models: dict[str, Model] = field(default_factory=dict)
    project: Path | None = None
    clock: Callable[[], float] = time.monotonic

    def workshop(self) -> EvalSettings:
        return EvalSettings(
            self.place.build(), self.out, self.project, {"PATH": os.environ["PATH"]}, self.models
        )

    def evaluate(self, cases: Sequence[Case], *configurations: Configuration, **more: Any) -> Evaluation:
        suite = Suite("suite", tuple(cases))
        # A process is killed only where a test is about that, however busy the machine is.
        engine = Processes(self.workers, grace=60, clock=self.clock)
        evaluator = Evaluator(engine, self.workshop(), **more)
        return evaluator.evaluate(suite, configurations or [BASE])

    def one(self, only: Case, configuration: Configuration = BASE) -> CaseResult:
        return self.evaluate([only], configuration).results[0]


class StartedBy:
    """A clock that stands still until something has happened, however long that takes on a busy machine."""

    def __init__(self, happened: Callable[[], bool]) -> None:
        self._happened = happened
        self._since: float | None = None

    def __call__(self) -> float:
        if self._since is None and self._happened():
            self._since = time.monotonic()
        return 0.0 if self._since is None else time.monotonic() - self._since


def writes(number: int) -> Case:
    """A case that is right only where no other run can be seen."""
    turns = [
        tool("list_dir", path="."),
        tool("write_file", path="mine.txt", content=str(number)),
        final("written"),
    ]
    files = [{"path": "mine.txt", "equals": str(number)}]
    return case(f"c{number}", *turns, expected={"output": {"files": files}})


def ran_of(lab: Lab, cases: list[Case], *ways: Configuration, **more: Any) -> list[str]:
    """The cases that were really run."""
    ran: list[str] = []

    def progress(*, done: int, total: int, result: CaseResult | None) -> None:
        ran.extend([] if result is None else [result.case])

    lab.evaluate(cases, *ways, progress=progress, **more)
    return sorted(ran)


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        document if isinstance(document, str) else json.dumps(document, ensure_ascii=False), "utf-8"
    )
    return path
