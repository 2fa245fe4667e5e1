"""Which skills a run took, and whether they are the right ones."""

from __future__ import annotations

from collections.abc import Sequence

from vademecum.evals.cases import Expected
from vademecum.evals.checks import Check
from vademecum.evals.steps import skill_of
from vademecum.runs.record import Event


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
        wrong = [name for name in expected.skills_none_of if name in loaded]
        found.append(_check(f"skills_none_of {', '.join(expected.skills_none_of)}", taken, holds=not wrong))
    return found


def _check(name: str, taken: str, *, holds: bool) -> Check:
    return Check(name, "pass") if holds else Check(name, "fail", f"it took {taken}")
