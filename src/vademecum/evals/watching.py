"""Listen to a run while it goes on, and end it at the first violation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vademecum.errors import VademecumError
from vademecum.evals.cases import ANY_SKILL, Case, Expected
from vademecum.evals.results import Check
from vademecum.evals.steps import skill_of
from vademecum.evals.trajectory import Trajectory
from vademecum.runs.record import Event

Reason = Literal["", "violation", "limit", "loaded"]


class Stopped(VademecumError):
    """Ends a run that is decided."""

    code = "stopped"


class Watcher:
    """The listener of one run.

    Events of a child run are counted against the limits, and kept by themselves: ``children`` has them by the
    child's id.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._inside: list[str] = []
        self._asked = 0
        self._calls = self._scripts = 0
        self._pieces: list[str] = []
        self.trajectory = Trajectory(case.expected.trajectory)
        self.broken: Check | None = None
        self.events: list[Event] = []
        self.children: dict[str, list[Event]] = {}
        self.reason: Reason = ""

    @property
    def streamed(self) -> str:
        """The answer as it came in pieces."""
        return "".join(self._pieces)

    def __call__(self, event: Event) -> None:
        """Take an event; raises where the run is to end here."""
        if event.type == "child_finished":
            self._inside = self._inside[:-1]
        self._take(event)
        if event.type == "child_started":
            self._inside.append(str(event.data.get("run", "")))
        if event.type == "run_finished":
            return
        self._look(event)
        if self.reason:
            raise Stopped(self._said())

    def _take(self, event: Event) -> None:
        run = self._inside[-1] if self._inside else ""
        if event.number:
            (self.children.setdefault(run, []) if run else self.events).append(event)
            self.trajectory.see(event, run)
        elif run:
            return
        elif event.type == "answer_piece":
            self._pieces.append(event.data["text"])
        elif event.type == "answer_withdrawn":
            self._pieces.clear()

    def _look(self, event: Event) -> None:
        if self.reason:
            return
        if self.trajectory.violation is not None:
            self.reason = "violation"
        elif self._is_beyond(event):
            self.reason = "limit"
        elif self._case.until == "loaded" and self._is_over(event) and self._is_decided():
            self.reason = "loaded"

    def _is_over(self, event: Event) -> bool:
        """Whether all skills that one action asked for are there, or it is known what became of them."""
        if len(self._inside) > (event.type == "child_started"):
            return False  # what a child does is none of its parent's actions
        if event.type == "action":
            self._asked = len(event.data["payload"].get("skills") or ())
        elif event.type in {"skill_loaded", "child_started"}:
            self._asked -= 1
            return self._asked <= 0
        return event.type == "observation"

    def _is_decided(self) -> bool:
        """Whether nothing that is loaded later can change what the case says of skills."""
        expected, loaded = self._case.expected, set(loaded_skills(self.events))
        unwanted = set(expected.skills_none_of)
        if loaded & unwanted or (loaded and ANY_SKILL in unwanted):
            return True
        if expected.skills_none_of:
            return False
        any_of = set(expected.skills_any_of)
        return loaded >= set(expected.skills_all_of) and (not any_of or bool(loaded & any_of))

    def _is_beyond(self, event: Event) -> bool:
        """Whether this event is more than the case allows; what was attempted counts."""
        limits = self._case.constraints
        if event.type == "model_asked" and not self._inside:
            self._bound("max_turns", event.data["turn"], limits.max_turns, event)
        elif event.type == "action":
            kind = event.data["action"]
            tool = event.data["payload"].get("tool", kind) if kind == "call_tool" else kind
            self._calls += kind in {"call_tool", "run_script"}
            self._scripts += kind == "run_script"
            self._bound("max_tool_calls", self._calls, limits.max_tool_calls, event)
            self._bound("max_script_runs", self._scripts, limits.max_script_runs, event)
            if tool in limits.deny_tools:
                self._break(f"deny_tools {tool}", f"{tool} was called", event)
        return self.broken is not None

    def _bound(self, name: str, used: int, most: int | None, event: Event) -> None:
        if most is not None and used > most:
            self._break(name, f"{used}, at most {most} allowed,", event)

    def _break(self, name: str, what: str, event: Event) -> None:
        """Write down the first limit that is broken, and where."""
        if self.broken is not None:
            return
        if self._inside:
            place = f"{self._inside[-1]}:{event.number}"
            self.broken = Check(name, "fail", f"{what} at event {place}", elsewhere=(place,))
        else:
            self.broken = Check(name, "fail", f"{what} at event {event.number}", (event.number,))

    def _said(self) -> str:
        match self.reason:
            case "violation":
                found = self.trajectory.violation
                return f"Stopped at the first violation: {found.constraint if found else ''}."
            case "limit":
                return f"Stopped: {self.broken.name if self.broken else ''} was exceeded."
            case _:
                return "Stopped: it is known which skill is taken."

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


def loaded_skills(events: Sequence[Event]) -> tuple[str, ...]:
    """The skills that were loaded or given a run of their own, in their order."""
    names = [skill_of(event.data) for event in events if event.type in {"skill_loaded", "child_started"}]
    return tuple(dict.fromkeys(names))


def check_skills(expected: Expected, loaded: Sequence[str]) -> list[Check]:
    """Whether the skills are those that the case names."""
    taken = ", ".join(loaded) or "no skill"
    found = []
    if expected.skills_any_of:
        fits = any(name in loaded for name in expected.skills_any_of)
        found.append(_check(f"skills_any_of {', '.join(expected.skills_any_of)}", taken, holds=fits))
    if expected.skills_all_of:
        missing = [name for name in expected.skills_all_of if name not in loaded]
        found.append(_check(f"skills_all_of {', '.join(expected.skills_all_of)}", taken, holds=not missing))
    if expected.skills_none_of:
        unwanted = expected.skills_none_of
        wrong = loaded if ANY_SKILL in unwanted else [name for name in unwanted if name in loaded]
        found.append(_check(f"skills_none_of {', '.join(expected.skills_none_of)}", taken, holds=not wrong))
    return found


def _check(name: str, taken: str, *, holds: bool) -> Check:
    return Check(name, "pass") if holds else Check(name, "fail", f"it took {taken}")
