"""I2: a plan is made, replaced and patched; what does not fit is said, and changes nothing."""

from __future__ import annotations

import pytest

from vademecum.agent.plan import Plan, Step, updated
from vademecum.agent.protocol import plan_in
from vademecum.errors import VademecumError

PLAN = Plan(goal="g", steps=(Step(id="a", title="A"), Step(id="b", title="B"), Step(id="c", title="C")))


def patched(*patches: dict[str, object]) -> Plan:
    update, _ = plan_in(list(patches))
    assert update is not None
    return updated(PLAN, update)


def test_replace() -> None:
    new, _ = plan_in({"goal": "h", "steps": [{"id": "x", "title": "X", "status": "completed"}]})
    assert new is not None
    assert updated(PLAN, new) == Plan(goal="h", steps=(Step(id="x", title="X", status="completed"),))


def test_patches() -> None:
    plan = patched(
        {"op": "update", "id": "a", "status": "completed"},
        {"op": "add", "step": {"id": "d", "title": "D"}, "after": "a"},
        {"op": "move", "id": "c"},
        {"op": "remove", "id": "b"},
        {"op": "assume", "text": "that it holds"},
    )
    assert [(step.id, step.status) for step in plan.steps] == [
        ("c", "pending"),
        ("a", "completed"),
        ("d", "pending"),
    ]
    assert plan.assumptions == ("that it holds",)


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "update", "id": "z", "status": "completed"},
        {"op": "remove", "id": "z"},
        {"op": "add", "step": {"id": "a", "title": "again"}},
        {"op": "add", "step": {"id": "z", "title": "Z"}, "after": "y"},
        {"op": "move", "id": "a", "after": "a"},
    ],
)
def test_what_does_not_fit(patch: dict[str, object]) -> None:
    with pytest.raises(VademecumError, match="plan"):
        patched(patch)


def test_assumptions_and_constraints_can_change() -> None:
    plan = patched(
        {"op": "assume", "text": "the file is small"},
        {"op": "correct", "text": "the file is small", "by": "the file has 3 GB"},
        {"op": "assume", "text": "no header"},
        {"op": "correct", "text": "no header"},
        {"op": "constrain", "constraints": {"max_turns": 4, "write": False}},
        {"op": "constrain", "constraints": {"write": None}},
    )
    assert (plan.assumptions, plan.constraints) == (("the file has 3 GB",), {"max_turns": 4})
    with pytest.raises(VademecumError, match="does not assume 'x': it assumes none"):
        patched({"op": "correct", "text": "x"})
    with pytest.raises(VademecumError, match="at most 4000 characters"):
        patched({"op": "constrain", "constraints": {"a": "x" * 5000}})
