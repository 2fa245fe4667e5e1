"""The events of a run → steps: what was attempted, what came of it, in words that cases use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from vademecum.runs.record import Event

# What a model can do, in the words of its replies.
ACTIONS = frozenset({"select_skills", "load_resource", "run_script", "call_tool", "final_answer"})
# What comes of it, in the words of cases.
_OUTCOMES = frozenset({"load_skill", "read_resource", "tool", "approval"})
# Everything that is on a record (docs/agent.md).
EVENTS = frozenset(
    [
        "run_started",
        "run_finished",
        "model_asked",
        "model_replied",
        "model_failed",
        "reply_wrong",
        "action",
        "plan",
        "approval_asked",
        "approval_answered",
        "skill_loaded",
        "resource_loaded",
        "tool_called",
        "observation",
        "compacted",
        "child_started",
        "child_finished",
        "charter_asked",
    ]
)
KINDS = ACTIONS | EVENTS | _OUTCOMES


class TakenStep(Struct, frozen=True):
    """One step: its place among those of its run, the number of its event, and what it is.

    An action is seen when it is attempted and, ``again``, when its outcome is known. ``run`` is the id of the
    child run that the step belongs to.
    """

    place: int
    event: int
    kind: str
    name: str
    arguments: Mapping[str, Any]
    outcome: str = ""
    again: bool = False
    run: str = ""


class Steps:
    """Turns the events of one run into steps, one after the other, as they happen or as they were recorded.

    Of a child run neither its answer nor the loading of the skill that it is for are steps: its parent's
    record has both. Each event is also a step of the kind of its type.
    """

    def __init__(self, run: str = "") -> None:
        self._run = run
        self._count = 0
        self._pending: list[TakenStep] = []

    def of(self, event: Event) -> Iterator[TakenStep]:
        """Yield the steps of one event."""
        data = event.data
        match event.type:
            case "action":
                kind = str(data.get("action", ""))
                attempts = _attempts(kind, data.get("payload") or {})
                is_answer = self._run and kind == "final_answer"
                self._pending = [] if is_answer else [self._step(event, kind, *each) for each in attempts]
                yield from self._pending
            case "observation":
                if not str(data.get("line", "")).partition("] ")[2].startswith("plan_update"):
                    code = str(data.get("code") or "ok")
                    for step in self._pending:
                        yield self._step(event, step.kind, step.name, step.arguments, code, again=True)
                    self._pending = []
            case "skill_loaded" | "child_started":
                if not self._run or data.get("origin") != "nested":
                    yield self._step(event, "load_skill", skill_of(data), data, "ok")
            case "resource_loaded":
                name = f"{skill_of(data)}/{data.get('path', '')}"
                yield self._step(event, "read_resource", name, data, "ok")
            case "tool_called":
                outcome = "ok" if data.get("ok") else str(data.get("code") or "failed")
                yield self._step(
                    event, "tool", str(data.get("tool", "")), data.get("parameters") or {}, outcome
                )
            case "approval_answered":
                verdict = str(data.get("verdict", ""))
                yield self._step(event, "approval", verdict, data, verdict)
        asked = str(data.get("wanted", "")) if event.type == "approval_asked" else ""
        yield self._step(event, event.type, asked, data)

    def _step(  # noqa: PLR0913 - the fields of a step
        self,
        event: Event,
        kind: str,
        name: str,
        arguments: Mapping[str, Any],
        outcome: str = "",
        *,
        again: bool = False,
    ) -> TakenStep:
        self._count += 1
        return TakenStep(self._count, event.number, kind, name, arguments, outcome, again, self._run)


def skill_of(data: Mapping[str, Any]) -> str:
    """Return the name in an event's skill id, ``source:name@version``."""
    whole = str(data.get("skill", ""))
    return whole.partition(":")[2].partition("@")[0] or whole


def _attempts(kind: str, payload: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a name and arguments for each thing that an action wants, such as each of several skills."""
    match kind:
        case "select_skills":
            return [(_named(named), payload) for named in payload.get("skills") or []]
        case "run_script" | "load_resource":
            return [(f"{_named(payload.get('skill'))}/{payload.get('relative_path', '')}", payload)]
        case "call_tool":
            return [(str(payload.get("tool", "")), payload.get("arguments") or {})]
        case _:
            return [("", payload)]


def _named(skill: Any) -> str:
    return str(skill.get("name", "")) if isinstance(skill, Mapping) else str(skill or "")
