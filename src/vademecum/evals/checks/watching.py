"""Watch a run: stop it if it breaks a constraint or a limit, and check its skills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from vademecum.errors import VademecumError
from vademecum.evals.cases import ANY_SKILL, Case, Expected, RunLimits
from vademecum.evals.checks.steps import Pattern, parse_pattern, skill_of
from vademecum.evals.checks.trajectory import ANY_CALL, CheckResult, Constraint, Trajectory
from vademecum.runs.record import Event


class Stopped(VademecumError):
    """Raised to stop a run whose result is known."""

    code = "stopped"


class Watcher:
    """The listener of one run; steps of child runs count towards the limits too."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._violation: CheckResult | None = None
        self._inside: list[str] = []
        self.trajectory = Trajectory([*_limits(case.constraints), *case.expected.trajectory])
        self.events: list[Event] = []
        self.reason: Literal["", "violation", "loaded"] = ""

    def __call__(self, event: Event) -> None:
        """Process an event; raise ``Stopped`` if the run must end here."""
        if event.type == "child_finished":
            self._inside.pop()
        run = self._inside[-1] if self._inside else ""
        if event.number:
            if not run:
                self.events.append(event)
            self.trajectory.see(event, run)
        if not self.reason and event.type != "run_finished":
            self._look(event, is_own=not run)
        if event.type == "child_started":
            self._inside.append(str(event.data.get("run", "")))
        if self.reason and event.type != "run_finished":
            known = "the skill is known."
            found = self._violation
            raise Stopped(f"Stopped at the first violation: {found.name}." if found else f"Stopped: {known}")

    def _look(self, event: Event, *, is_own: bool) -> None:
        most = self._case.constraints.max_turns
        self._violation = self.trajectory.violation
        if is_own and most is not None and event.type == "model_asked" and event.data["turn"] > most:
            detail = f"{event.data['turn']}, at most {most} allowed, at event {event.number}"
            self._violation = CheckResult("max_turns", "fail", detail, (event.number,))
        if self._violation is not None:
            self.reason = "violation"
        elif self._case.until == "loaded" and is_own and event.type in {"observation", "child_started"}:
            self.reason = "loaded" if self._is_decided() else ""

    def _is_decided(self) -> bool:
        """Return whether later events cannot change the result of the skill checks."""
        expected = self._case.expected
        checks = check_skills(expected, loaded_skills(self.events))
        if expected.skills_none_of:
            return checks[-1].holds == "fail"
        return all(check.holds == "pass" for check in checks)

    def checks(self) -> list[CheckResult]:
        """Return the results of limits and constraints; if the run broke one, only that result."""
        if self._violation is not None:
            return [self._violation]
        turns = [] if self._case.constraints.max_turns is None else [CheckResult("max_turns", "pass")]
        return turns + self.trajectory.verdicts()


def _limits(limits: RunLimits) -> Iterator[Constraint]:
    """Yield the limits of a case as constraints, except the limit of turns."""
    for tool in limits.deny_tools:
        yield Constraint(f"deny_tools {tool}", "count", (parse_pattern(tool),), most=0)
    if limits.max_tool_calls is not None:
        yield Constraint("max_tool_calls", "count", (ANY_CALL,), most=limits.max_tool_calls)
    if limits.max_script_runs is not None:
        yield Constraint("max_script_runs", "count", (Pattern("run_script"),), most=limits.max_script_runs)


def loaded_skills(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the skills that were loaded or ran in a child run, in order."""
    names = [skill_of(event.data) for event in events if event.type in {"skill_loaded", "child_started"}]
    return tuple(dict.fromkeys(names))


def check_skills(expected: Expected, loaded: Sequence[str]) -> list[CheckResult]:
    """Check the skills that were loaded against those that the case names."""
    taken, unwanted = set(loaded), set(expected.skills_none_of)
    none_of = not (taken if ANY_SKILL in unwanted else taken & unwanted)
    kinds = (
        ("skills_any_of", expected.skills_any_of, bool(taken & set(expected.skills_any_of))),
        ("skills_all_of", expected.skills_all_of, taken >= set(expected.skills_all_of)),
        ("skills_none_of", expected.skills_none_of, none_of),
    )
    why = f"it took {', '.join(loaded) or 'no skill'}"
    return [
        CheckResult(f"{kind} {', '.join(names)}", "pass" if holds else "fail", "" if holds else why)
        for kind, names, holds in kinds
        if names
    ]


def check_status(expected: Expected, status: str) -> list[CheckResult]:
    """Check the status of the run against the case."""
    if not expected.status:
        return []
    name, fits = f"status {' or '.join(expected.status)}", status in expected.status
    return [CheckResult(name, "pass" if fits else "fail", "" if fits else f"it is {status}")]
