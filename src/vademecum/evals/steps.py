"""The events of a run → steps: what was attempted, what came of it, in words that cases use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from vademecum.runs.record import Event

_NOTHING: Mapping[str, Any] = {}


class Step(Struct, frozen=True):
    """One step: the number of its event, how many actions there were up to it, and what it is.

    An action is seen twice: as an attempt, without an outcome, and when what came of it is known.
    """

    event: int
    actions: int
    kind: str
    name: str
    arguments: Mapping[str, Any]
    outcome: str = ""


class Steps:
    """Turns events into steps, one after the other, as they happen or as they were recorded."""

    def __init__(self) -> None:
        self._actions = 0
        self._pending: list[tuple[str, str, Mapping[str, Any]]] = []

    def of(self, event: Event) -> Iterator[Step]:
        """The steps of one event."""
        data = event.data
        match event.type:
            case "action":
                self._actions += 1
                self._pending = list(_attempts(str(data.get("action", "")), data.get("payload") or {}))
                yield from self._made(event, "")
            case "observation":
                yield from self._made(event, str(data.get("code") or "ok"))
                self._pending = []
            case "skill_loaded":
                yield self._step(event, "load_skill", skill_of(data), data, "ok")
            case "resource_loaded":
                name = f"{skill_of(data)}/{data.get('path', '')}"
                yield self._step(event, "read_resource", name, data, "ok")
            case "tool_called":
                yield self._step(
                    event, "tool", str(data.get("tool", "")), data.get("parameters") or {}, _came_of(data)
                )
            case "approval_asked":
                yield self._step(event, "approval_asked", str(data.get("wanted", "")), data)
            case "approval_answered":
                yield self._step(
                    event, "approval", str(data.get("verdict", "")), data, str(data.get("verdict", ""))
                )
            case "child_started":
                yield self._step(event, "load_skill", skill_of(data), data, "ok")
            case _:
                yield self._step(event, event.type, "", data)

    def _made(self, event: Event, outcome: str) -> Iterator[Step]:
        for kind, name, arguments in self._pending:
            yield self._step(event, kind, name, arguments, outcome)

    def _step(
        self, event: Event, kind: str, name: str, arguments: Mapping[str, Any], outcome: str = ""
    ) -> Step:
        return Step(event.number, self._actions, kind, name, arguments, outcome)


def skill_of(data: Mapping[str, Any]) -> str:
    """The name in an event's skill id, ``source:name@version``."""
    whole = str(data.get("skill", ""))
    return whole.partition(":")[2].partition("@")[0] or whole


def _attempts(kind: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """One for each thing that an action wants: of several skills, one for each."""
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
