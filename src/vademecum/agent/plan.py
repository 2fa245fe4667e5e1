"""The plan of a run: made on the first turn, replaced or patched later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from vademecum.errors import VademecumError

Status = Literal["pending", "in_progress", "completed", "skipped"]
MAX_STEPS = 100
MAX_ASSUMPTIONS = 50
MAX_CONSTRAINTS_CHARS = 4000

Short = Annotated[str, Field(max_length=500)]


def _brief(value: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(value)) > MAX_CONSTRAINTS_CHARS:
        raise ValueError(f"should have at most {MAX_CONSTRAINTS_CHARS} characters")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Strict):
    """One step of a plan."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    title: Annotated[str, Field(max_length=500)]
    status: Status = "pending"


class Plan(_Strict):
    """What is to be reached, by which steps, assuming what, within what."""

    goal: Annotated[str, Field(max_length=2000)] = ""
    steps: Annotated[tuple[Step, ...], Field(max_length=MAX_STEPS)] = ()
    assumptions: Annotated[tuple[Short, ...], Field(max_length=MAX_ASSUMPTIONS)] = ()
    constraints: Annotated[dict[str, Any], AfterValidator(_brief)] = {}


class AddStep(_Strict):
    """Put a step behind another, or at the end."""

    op: Literal["add"]
    step: Step
    after: str | None = None


class UpdateStep(_Strict):
    """Change a step's title or status."""

    op: Literal["update"]
    id: str
    title: str | None = None
    status: Status | None = None


class RemoveStep(_Strict):
    """Take a step out."""

    op: Literal["remove"]
    id: str


class MoveStep(_Strict):
    """Put a step behind another, or first."""

    op: Literal["move"]
    id: str
    after: str | None = None


class Assume(_Strict):
    """Add an assumption."""

    op: Literal["assume"]
    text: Short


Patch = Annotated[AddStep | UpdateStep | RemoveStep | MoveStep | Assume, Field(discriminator="op")]
PlanUpdate = Plan | list[Patch]

PLAN_UPDATE: TypeAdapter[PlanUpdate] = TypeAdapter(PlanUpdate)


def updated(plan: Plan, update: PlanUpdate) -> Plan:
    """The plan after an update; a patch that does not fit raises, and leaves the plan as it was."""
    if isinstance(update, Plan):
        _check_ids(update.steps)
        return update
    for patch in update:
        plan = _patched(plan, patch)
    return plan


def _patched(plan: Plan, patch: AddStep | UpdateStep | RemoveStep | MoveStep | Assume) -> Plan:
    steps = list(plan.steps)
    match patch:
        case AddStep(step=step, after=after):
            steps.insert(len(steps) if after is None else _place(steps, after) + 1, step)
        case UpdateStep(id=name, title=title, status=status):
            place = _place(steps, name)
            old = steps[place]
            steps[place] = Step(id=name, title=title or old.title, status=status or old.status)
        case RemoveStep(id=name):
            del steps[_place(steps, name)]
        case MoveStep(id=name, after=after):
            step = steps.pop(_place(steps, name))
            steps.insert(0 if after is None else _place(steps, after) + 1, step)
        case Assume(text=text):
            if len(plan.assumptions) >= MAX_ASSUMPTIONS:
                raise VademecumError(f"The plan has {MAX_ASSUMPTIONS} assumptions: replace it.", code="plan")
            return plan.model_copy(update={"assumptions": (*plan.assumptions, text)})
    _check_ids(steps)
    return plan.model_copy(update={"steps": tuple(steps)})


def _place(steps: Sequence[Step], name: str) -> int:
    for place, step in enumerate(steps):
        if step.id == name:
            return place
    known = ", ".join(step.id for step in steps) or "none"
    raise VademecumError(f"The plan has no step {name!r}: its steps are {known}.", code="plan")


def _check_ids(steps: Sequence[Step]) -> None:
    names = [step.id for step in steps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VademecumError(f"The plan has two steps {twice!r}: give each its own id.", code="plan")
    if len(steps) > MAX_STEPS:
        raise VademecumError(f"The plan has more than {MAX_STEPS} steps: merge some.", code="plan")
