"""Listens to a run while it goes on: keeps its events, and stops it at the first violation or out of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event as Flag
from typing import Literal

from vademecum.errors import VademecumError
from vademecum.evals.cases import Case
from vademecum.evals.checks import Check
from vademecum.evals.trajectory import Trajectory
from vademecum.runs.record import Event

Reason = Literal["", "violation", "limit", "loaded", "time", "cancelled"]


class Stopped(VademecumError):
    """Ends a run from outside."""

    code = "stopped"


class Watcher:
    """The listener of one run.

    Events of a child run are counted against the limits, and are not steps of the run itself.
    """

    def __init__(
        self, case: Case, *, deadline: float, cancelled: Flag, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._case = case
        self._deadline = deadline
        self._cancelled = cancelled
        self._clock = clock
        self._children = 0
        self._calls = self._scripts = 0
        self._pieces: list[str] = []
        self.trajectory = Trajectory(case.expected.trajectory)
        self.broken: Check | None = None
        self.events: list[Event] = []
        self.reason: Reason = ""

    @property
    def streamed(self) -> str:
        """The answer as it came in pieces."""
        return "".join(self._pieces)

    def __call__(self, event: Event) -> None:
        """Take an event; raises where the run is to end here."""
        if event.type == "child_finished":
            self._children -= 1
        if self._children == 0:
            self._take(event)
        if event.type == "child_started":
            self._children += 1
        if event.type == "run_finished":
            return
        self._look(event)
        if self.reason:
            raise Stopped(self._said())

    def _take(self, event: Event) -> None:
        if event.type == "answer_piece":
            self._pieces.append(event.data["text"])
        elif event.type == "answer_withdrawn":
            self._pieces.clear()
        if event.number:
            self.events.append(event)
            self.trajectory.see(event)

    def _look(self, event: Event) -> None:
        if self.reason:
            return
        if self._cancelled.is_set():
            self.reason = "cancelled"
        elif self._clock() > self._deadline:
            self.reason = "time"
        elif self.trajectory.violation is not None:
            self.reason = "violation"
        elif self._is_beyond(event):
            self.reason = "limit"
        elif self._case.until == "loaded" and event.type in {"skill_loaded", "child_started"}:
            self.reason = "loaded"

    def _is_beyond(self, event: Event) -> bool:
        """Whether this event is more than the case allows; what was attempted counts."""
        limits = self._case.constraints
        if event.type == "model_asked" and self._children == 0:
            self._bound("max_turns", event.data["turn"], limits.max_turns, event)
        elif event.type == "action":
            kind = event.data["action"]
            tool = event.data["payload"].get("tool", kind) if kind == "call_tool" else kind
            self._calls += kind in {"call_tool", "run_script"}
            self._scripts += kind == "run_script"
            self._bound("max_tool_calls", self._calls, limits.max_tool_calls, event)
            self._bound("max_script_runs", self._scripts, limits.max_script_runs, event)
            if tool in limits.deny_tools:
                detail = f"{tool} was called at event {event.number}"
                self.broken = self.broken or Check(f"deny_tools {tool}", "fail", detail, (event.number,))
        return self.broken is not None

    def _bound(self, name: str, used: int, most: int | None, event: Event) -> None:
        if most is not None and used > most and self.broken is None:
            detail = f"{used} at event {event.number}, at most {most} allowed"
            self.broken = Check(name, "fail", detail, (event.number,))

    def _said(self) -> str:
        match self.reason:
            case "violation":
                found = self.trajectory.violation
                return f"Stopped at the first violation: {found.constraint if found else ''}."
            case "limit":
                return f"Stopped: {self.broken.name if self.broken else ''} was exceeded."
            case "loaded":
                return "Stopped: it is known which skill is taken."
            case "time":
                return "Stopped: out of time."
            case _:
                return "Stopped: the evaluation was interrupted."

    def limits(self) -> list[Check]:
        """What the case limits, and whether it was kept."""
        limits = self._case.constraints
        broken = [] if self.broken is None else [self.broken]
        kept = [
            Check(name, "pass")
            for name in ("max_turns", "max_tool_calls", "max_script_runs")
            if getattr(limits, name) is not None and not any(check.name == name for check in broken)
        ]
        kept += [
            Check(f"deny_tools {tool}", "pass")
            for tool in limits.deny_tools
            if not any(check.name == f"deny_tools {tool}" for check in broken)
        ]
        return [*broken, *kept]
