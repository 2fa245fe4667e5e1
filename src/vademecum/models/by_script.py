"""A model that says what it was told to say: for tests, cases and demonstrations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vademecum.errors import ModelFailed
from vademecum.models.base import Message, OnText, Reply, Usage

# A turn is a reply as text, as an object, or an error to raise.
Turn = str | Mapping[str, Any] | ModelFailed


class Scripted:
    """Gives its turns one after the other, whole or in pieces; after the last it gives the last again.

    What it was asked is kept in ``seen``.

    >>> model = Scripted([{"action": {"type": "final_answer", "payload": {"text": "hi"}}}])
    >>> model.reply([Message("user", "hello")], schema={}).text
    '{"action": {"type": "final_answer", "payload": {"text": "hi"}}}'
    >>> model.seen[0][0].content
    'hello'
    """

    name = "scripted"

    def __init__(self, turns: Sequence[Turn], *, piece: int = 0) -> None:
        if not turns:
            raise ValueError("a scripted model needs at least one turn")
        self._turns = list(turns)
        self._piece = piece
        self.seen: list[tuple[Message, ...]] = []

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any],  # noqa: ARG002 - its turns are what they are
        on_text: OnText | None = None,
    ) -> Reply:
        """The next turn."""
        self.seen.append(tuple(messages))
        turn = self._turns[min(len(self.seen), len(self._turns)) - 1]
        if isinstance(turn, ModelFailed):
            raise turn
        text = turn if isinstance(turn, str) else json.dumps(turn, ensure_ascii=False)
        if on_text is not None:
            size = self._piece or len(text) or 1
            for start in range(0, len(text), size):
                on_text(text[start : start + size])
        return Reply(text, Usage(sum(len(message.content) for message in messages) // 4, len(text) // 4))
