"""The events of a run → steps: what was attempted, what came of it, in words that cases use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from vademecum.runs.record import Event

# What a model can do, in the words of its replies.
ACTIONS = frozenset({"select_skills", "load_resource", "run_script", "call_tool", "final_answer"})
# Also what comes of it, in the words of cases, and everything that is on a record (docs/agent.md).
KINDS = ACTIONS | frozenset(
    (
        *("load_skill", "read_resource", "tool", "approval"),
        *("run_started", "run_finished", "child_started", "child_finished"),
        *("model_asked", "model_replied", "model_failed", "reply_wrong", "compacted"),
        *("action", "plan", "skill_loaded", "resource_loaded", "tool_called", "observation"),
        *("approval_asked", "approval_answered", "charter_asked"),
    )
)

# Kind, name, arguments and outcome of a step.
_Told = tuple[str, str, Mapping[str, Any], str]


class TakenStep(Struct, frozen=True):
    """One step: its place among those of its run, the number of its event, and what it is.

    An action is a step when it is attempted, without an outcome, and again when its outcome is known. ``run``
    is the id of the child run that the step belongs to.
    """

    place: int
    event: int
    kind: str
    name: str
    arguments: Mapping[str, Any]
    outcome: str
    run: str


class Steps:
    """Turns the events of one run into steps, one after the other, as they happen or as they were recorded.

    Of a child run neither its answer nor the loading of the skill that it is for are steps: its parent's
    record has both. Each event is also a step of the kind of its type.
    """

    def __init__(self, run: str = "") -> None:
        self._run = run
        self._count = 0
        self._pending: list[_Told] = []

    def of(self, event: Event) -> Iterator[TakenStep]:
        """Yield the steps of one event."""
        for told in self._told(event):
            self._count += 1
            yield TakenStep(self._count, event.number, *told, self._run)

    def _told(self, event: Event) -> Iterator[_Told]:
        data = event.data
        match event.type:
            case "action":
                kind = str(data.get("action", ""))
                attempts = _attempts(kind, data.get("payload") or {})
                is_answer = self._run and kind == "final_answer"
                self._pending = [] if is_answer else [(kind, *each, "") for each in attempts]
                yield from self._pending
            case "observation":
                if not str(data.get("line", "")).partition("] ")[2].startswith("plan_update"):
                    code = str(data.get("code") or "ok")
                    yield from ((kind, name, arguments, code) for kind, name, arguments, _ in self._pending)
                    self._pending = []
            case "skill_loaded" | "child_started":
                if not self._run or data.get("origin") != "nested":
                    yield "load_skill", skill_of(data), data, "ok"
            case "resource_loaded":
                yield "read_resource", f"{skill_of(data)}/{data.get('path', '')}", data, "ok"
            case "tool_called":
                outcome = "ok" if data.get("ok") else str(data.get("code") or "failed")
                yield "tool", str(data.get("tool", "")), data.get("parameters") or {}, outcome
            case "approval_answered":
                verdict = str(data.get("verdict", ""))
                yield "approval", verdict, data, verdict
        yield event.type, str(data.get("wanted", "")) if event.type == "approval_asked" else "", data, ""


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
