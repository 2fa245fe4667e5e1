"""The plan of a run (made on the first turn, replaced or patched later), and the limits of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from vademecum.errors import VademecumError

Status = Literal["pending", "in_progress", "completed", "skipped"]
MAX_STEPS = 100
MAX_ASSUMPTIONS = 50
MAX_CONSTRAINTS_CHARS = 4000

Short = Annotated[str, Meta(max_length=500)]
StepId = Annotated[str, Meta(min_length=1, max_length=64)]


class Step(Struct, forbid_unknown_fields=True):
    """One step of a plan."""

    id: StepId
    title: Short
    status: Status = "pending"


class Plan(Struct, forbid_unknown_fields=True):
    """A goal, the steps that lead to it, what is assumed, and within which limits."""

    goal: Annotated[str, Meta(max_length=2000)] = ""
    steps: Annotated[tuple[Step, ...], Meta(max_length=MAX_STEPS)] = ()
    assumptions: Annotated[tuple[Short, ...], Meta(max_length=MAX_ASSUMPTIONS)] = ()
    constraints: dict[str, Any] = {}


class Patch(Struct, forbid_unknown_fields=True):
    """One change: ``add`` a ``step`` after another or last, ``update`` or ``remove`` the step ``id``,
    ``move`` it after another or first, ``assume`` a ``text``, ``correct`` it ``by`` another or none,
    or set ``constraints`` by name, with null for none.
    """

    op: Literal["add", "update", "remove", "move", "assume", "correct", "constrain"]
    step: Step | None = None
    id: str | None = None
    after: str | None = None
    title: str | None = None
    status: Status | None = None
    text: Short | None = None
    by: Short = ""
    constraints: dict[str, Any] | None = None


PlanUpdate = Plan | list[Patch]


def updated(plan: Plan, update: PlanUpdate) -> Plan:
    """Return the plan after an update; raise if the update does not fit the plan."""
    new = update if isinstance(update, Plan) else _patched(plan, update)
    names = [step.id for step in new.steps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _misfit(f"has two steps {twice!r}: give each its own id")
    if len(new.steps) > MAX_STEPS:
        raise _misfit(f"has more than {MAX_STEPS} steps: merge some")
    if len(new.assumptions) > MAX_ASSUMPTIONS:
        raise _misfit(f"has more than {MAX_ASSUMPTIONS} assumptions: replace it")
    if len(msgspec.json.encode(new.constraints)) > MAX_CONSTRAINTS_CHARS:
        raise _misfit(f"cannot take this: the constraints have at most {MAX_CONSTRAINTS_CHARS} characters")
    return new


def _patched(plan: Plan, patches: Sequence[Patch]) -> Plan:
    steps, assumed, limits = list(plan.steps), list(plan.assumptions), dict(plan.constraints)
    for patch in patches:
        match patch:
            case Patch(op="add", step=Step() as step, after=after):
                steps.insert(len(steps) if after is None else _place(steps, after) + 1, step)
            case Patch(op="update", id=str(name), title=title, status=status):
                place = _place(steps, name)
                steps[place] = Step(name, title or steps[place].title, status or steps[place].status)
            case Patch(op="remove", id=str(name)):
                del steps[_place(steps, name)]
            case Patch(op="move", id=str(name), after=after):
                step = steps.pop(_place(steps, name))
                steps.insert(0 if after is None else _place(steps, after) + 1, step)
            case Patch(op="assume", text=str(text)):
                assumed.append(text)
            case Patch(op="correct", text=str(text), by=by):
                if text not in assumed:
                    raise _misfit(f"does not assume {text!r}: it assumes {'; '.join(assumed) or 'none'}")
                assumed = [by if each == text else each for each in assumed if by or each != text]
            case Patch(op="constrain", constraints=dict(changed)):
                limits |= changed
            case _:
                raise _misfit(f"cannot take this: the change {patch.op!r} is not complete")
    kept = {name: limit for name, limit in limits.items() if limit is not None}
    return Plan(plan.goal, tuple(steps), tuple(assumed), kept)


def _place(steps: Sequence[Step], name: str) -> int:
    names = [step.id for step in steps]
    if name not in names:
        raise _misfit(f"has no step {name!r}: its steps are {', '.join(names) or 'none'}")
    return names.index(name)


def _misfit(words: str) -> VademecumError:
    return VademecumError(f"The plan {words}.", code="plan")


# The limits

# The stop reason of each limit (also its option), its field, and its description.
LIMITS = {
    "max_turns": ("turns", "Maximum number of model calls"),
    "max_tool_calls": ("tool_calls", "Maximum number of tool calls"),
    "max_script_runs": ("script_runs", "Maximum number of script runs"),
    "max_context": ("context_tokens", "Maximum number of tokens in one request to the model"),
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run; ``context_tokens`` is the size of one request to the model.

    >>> Budget(turns=4)
    Budget(turns=4, tool_calls=30, script_runs=10, context_tokens=100000)
    """

    turns: int = 12
    tool_calls: int = 30
    script_runs: int = 10
    context_tokens: int = 100_000

    def share(self, spent: Spent) -> Budget:
        """Return half of the rest, for a child."""
        return replace(
            self,
            turns=(self.turns - spent.turns) // 2,
            tool_calls=(self.tool_calls - spent.tool_calls + 1) // 2,
            script_runs=(self.script_runs - spent.script_runs + 1) // 2,
        )

    def __str__(self) -> str:
        """Return the limits in the form of the first message."""
        return f"{self.turns} turns, {self.tool_calls} tool calls, {self.script_runs} script runs"


@dataclass(slots=True)
class Spent:
    """The turns and calls that a run has used so far."""

    turns: int = 0
    tool_calls: int = 0
    script_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, other: Spent) -> None:
        """Add the use of a child."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
