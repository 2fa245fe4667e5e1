"""A model with fixed replies, for tests, cases and demonstrations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vademecum.models.base import Message, OnText, Reply, ToolCall, Usage, Wire

# A turn is a reply as text or as an object, or an error to raise.
Turn = str | Mapping[str, Any] | Exception


class Scripted:
    """Returns its turns in order, whole or in pieces; then it repeats the last one.

    ``seen`` has the messages of each call. With ``wire="tools"``, its actions are native tool calls.

    >>> model = Scripted([{"action": {"type": "final_answer", "payload": {"text": "hi"}}}])
    >>> model.reply([Message("user", "hello")], schema={}).text
    '{"action": {"type": "final_answer", "payload": {"text": "hi"}}}'
    >>> model.seen[0][0].content
    'hello'
    """

    name = "scripted"

    def __init__(self, turns: Sequence[Turn], *, piece: int = 0, wire: Wire = "json") -> None:
        if not turns:
            raise ValueError("a scripted model needs at least one turn")
        self._turns = list(turns)
        self._piece = piece
        self.wire = wire
        self.seen: list[tuple[Message, ...]] = []

    def reply(self, messages: Sequence[Message], *, on_text: OnText | None = None, **_: Any) -> Reply:
        """Return the next turn."""
        self.seen.append(tuple(messages))
        turn = self._turns[min(len(self.seen), len(self._turns)) - 1]
        if isinstance(turn, Exception):
            raise turn
        text = turn if isinstance(turn, str) else json.dumps(turn, ensure_ascii=False)
        calls: tuple[ToolCall, ...] = ()
        if self.wire == "tools" and not isinstance(turn, str):
            text, calls = _native(turn, len(self.seen))
        if on_text is not None:
            size = self._piece or len(text) or 1
            for start in range(0, len(text), size):
                on_text(text[start : start + size])
        asked = sum(len(message.content) for message in messages)
        return Reply(text, Usage(asked // 4, len(text) // 4), calls)


def _native(turn: Mapping[str, Any], number: int) -> tuple[str, tuple[ToolCall, ...]]:
    """Return a turn of the JSON protocol as native calls, but a complete answer as text."""
    action = turn["action"]
    payload = action.get("payload", {})
    named: list[tuple[str, Mapping[str, Any]]] = []
    if update := turn.get("plan_update"):
        named.append(("update_plan", {"changes" if isinstance(update, list) else "plan": update}))
    match action["type"]:
        case "final_answer" if payload.get("complete", True) and not named:
            return payload["text"], ()
        case "select_skills":
            named += [
                ("skill", {"name": each} if isinstance(each, str) else each) for each in payload["skills"]
            ]
        case "load_resource":
            named.append(("load_skill_asset", payload))
        case "call_tool":
            named.append((payload["tool"], payload.get("arguments", {})))
        case other:
            named.append((other, payload))
    return "", tuple(
        ToolCall(f"call_{number}_{place}", name, json.dumps(arguments, ensure_ascii=False))
        for place, (name, arguments) in enumerate(named, 1)
    )
