"""The mock of a case: what it says turn by turn, how long it takes, and how it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vademecum.errors import ModelFailed, ModelRefused, ModelReplyWrong, ModelUnavailable
from vademecum.evals.cases import Mock
from vademecum.models.base import Message, Model, OnText, Reply
from vademecum.models.by_script import Scripted, Turn

_ERRORS = {"unavailable": ModelUnavailable, "refused": ModelRefused, "wrong": ModelReplyWrong}


class Crash(Exception):
    """A model that breaks in a way that nobody foresaw."""


class MockModel:
    """Says what the case tells it to. ``{"seconds": 2, "reply": …}`` takes its time, ``{"error": …}`` fails.

    >>> model = MockModel(Mock(turns=[{"error": "refused", "message": "I will not."}]))
    >>> model.reply([], schema={})
    Traceback (most recent call last):
    ...
    vademecum.errors.ModelRefused: I will not.
    """

    name = "mock"

    def __init__(self, mock: Mock, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._turns = mock.turns
        self._scripted = Scripted([_said(turn) for turn in mock.turns], piece=mock.piece)
        self._sleep = sleep

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """The next turn; after the last, the last again."""
        turn = self._turns[min(len(self._scripted.seen), len(self._turns) - 1)]
        if isinstance(turn, Mapping) and isinstance(turn.get("seconds"), int | float):
            self._sleep(float(turn["seconds"]))
        if isinstance(turn, Mapping) and turn.get("error") == "crash":
            raise Crash(str(turn.get("message", "the mock crashed")))
        return self._scripted.reply(messages, schema=schema, on_text=on_text)


def _said(turn: Any) -> Turn:
    if not isinstance(turn, Mapping):
        return str(turn)
    if "error" in turn:
        kind = _ERRORS.get(str(turn["error"]), ModelReplyWrong)
        failure: ModelFailed = kind(str(turn.get("message", f"the mock is {turn['error']}")))
        return failure
    if "reply" in turn:
        return _said(turn["reply"])
    return {key: value for key, value in turn.items() if key != "seconds"}


class Steady:
    """A model that sees the same prompt whenever a case is run: no place and no duration of this very run.

    Replies that are kept by what was asked can be found again only so.
    """

    def __init__(self, inner: Model, replaced: Callable[[str], str]) -> None:
        self.name = inner.name
        self._inner = inner
        self._replaced = replaced

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask with what is always the same."""
        steady = [Message(message.role, self._replaced(message.content)) for message in messages]
        return self._inner.reply(steady, schema=schema, on_text=on_text)
