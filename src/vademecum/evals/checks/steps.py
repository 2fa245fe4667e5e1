"""The events of a run → steps: what was attempted, what came of it, in words that cases use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from vademecum.runs.record import Event

# What a model can do, in the words of its replies.
ACTIONS = frozenset({"select_skills", "load_resource", "run_script", "call_tool", "final_answer"})
# What comes of it, in the words of cases.
_WORDS = {
    "skill_loaded": "load_skill",
    "child_started": "load_skill",
    "resource_loaded": "read_resource",
    "tool_called": "tool",
    "approval_answered": "approval",
}
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
KINDS = ACTIONS | EVENTS | frozenset(_WORDS.values())
# Events that cases know by another word: as they are, they are steps only for those who name them so.
RAW = frozenset({"action", "observation", *_WORDS})

_NOTHING: Mapping[str, Any] = {}


class TakenStep(Struct, frozen=True):
    """One step: the number of its event, how many actions there were up to it, and what it is.

    An action is seen when it is attempted and, ``again``, when what came of it is known. ``cause`` tells
    attempts apart, and is the same for what an attempt led to. ``run`` is the id of the child run it is of.
    """

    event: int
    actions: int
    kind: str
    name: str
    arguments: Mapping[str, Any]
    outcome: str = ""
    again: bool = False
    cause: int = 0
    run: str = ""


_Attempt = tuple[str, str, Mapping[str, Any]]


class Steps:
    """Turns the events of one run into steps, one after the other, as they happen or as they were recorded.

    ``raw`` are the events that are wanted as they are. Of a child run neither its answer nor the loading of
    the skill that it is for are steps: its parent's record has both.
    """

    def __init__(self, raw: Collection[str] = (), *, run: str = "") -> None:
        self._raw = raw
        self._run = run
        self._actions = self._causes = 0
        self._pending: list[tuple[int, _Attempt]] = []

    def of(self, event: Event) -> Iterator[TakenStep]:
        """Return the steps of one event."""
        data = event.data
        if event.type in self._raw:
            yield self._step(event, event.type, "", data)
        match event.type:
            case "action":
                yield from self._attempted(event)
            case "observation":
                if not str(data.get("line", "")).partition("] ")[2].startswith("plan_update"):
                    yield from self._ended(event, str(data.get("code") or "ok"))
            case "skill_loaded" | "child_started":
                if not self._run or data.get("origin") != "nested":
                    yield self._led(event, "load_skill", skill_of(data), data, "ok")
            case "resource_loaded":
                name = f"{skill_of(data)}/{data.get('path', '')}"
                yield self._led(event, "read_resource", name, data, "ok")
            case "tool_called":
                parameters = data.get("parameters") or {}
                yield self._led(event, "tool", str(data.get("tool", "")), parameters, _came_of(data))
            case "approval_asked":
                yield self._step(event, "approval_asked", str(data.get("wanted", "")), data)
            case "approval_answered":
                verdict = str(data.get("verdict", ""))
                yield self._step(event, "approval", verdict, data, verdict)
            case _:
                yield self._step(event, event.type, "", data)

    def _attempted(self, event: Event) -> Iterator[TakenStep]:
        self._actions += 1
        kind = str(event.data.get("action", ""))
        self._pending = []
        if self._run and kind == "final_answer":
            return
        for attempt in _attempts(kind, event.data.get("payload") or {}):
            self._causes += 1
            self._pending.append((self._causes, attempt))
            yield TakenStep(event.number, self._actions, *attempt, cause=self._causes, run=self._run)

    def _ended(self, event: Event, outcome: str) -> Iterator[TakenStep]:
        for cause, attempt in self._pending:
            yield TakenStep(
                event.number, self._actions, *attempt, outcome, again=True, cause=cause, run=self._run
            )
        self._pending = []

    def _led(
        self, event: Event, kind: str, name: str, arguments: Mapping[str, Any], outcome: str
    ) -> TakenStep:
        """Return a step that some attempt led to: of several skills, the one of that name."""
        causes = [cause for cause, attempt in self._pending if len(self._pending) == 1 or attempt[1] == name]
        cause = causes[0] if causes else 0
        return TakenStep(
            event.number, self._actions, kind, name, arguments, outcome, cause=cause, run=self._run
        )

    def _step(
        self, event: Event, kind: str, name: str, arguments: Mapping[str, Any], outcome: str = ""
    ) -> TakenStep:
        return TakenStep(event.number, self._actions, kind, name, arguments, outcome, run=self._run)


def skill_of(data: Mapping[str, Any]) -> str:
    """Return the name in an event's skill id, ``source:name@version``."""
    whole = str(data.get("skill", ""))
    return whole.partition(":")[2].partition("@")[0] or whole


def _attempts(kind: str, payload: Mapping[str, Any]) -> Iterator[_Attempt]:
    """Return an attempt for each thing that an action wants, such as each of several skills."""
    match kind:
        case "select_skills":
            for named in payload.get("skills") or []:
                yield kind, _named(named), payload
        case "run_script" | "load_resource":
            yield kind, f"{_named(payload.get('skill'))}/{payload.get('relative_path', '')}", payload
        case "call_tool":
            yield kind, str(payload.get("tool", "")), payload.get("arguments") or _NOTHING
        case _:
            yield kind, "", payload


def _named(skill: Any) -> str:
    return str(skill.get("name", "")) if isinstance(skill, Mapping) else str(skill or "")


def _came_of(data: Mapping[str, Any]) -> str:
    return "ok" if data.get("ok") else str(data.get("code") or "failed")
