"""A reply as it comes, in pieces → what it plans to do, and the words of its answer, before it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

from vademecum.agent.protocol import MAX_REPLY_CHARS
from vademecum.errors import ModelReplyWrong

_GROWTH = 1.06  # the text is parsed anew when it is so much longer, so that the work stays linear


class Watched:
    """Looks at a reply while it grows. Nothing is done because of what is seen here: it is only shown."""

    def __init__(
        self,
        on_planned: Callable[[str], None],
        on_piece: Callable[[str], None],
        on_withdrawn: Callable[[], None],
    ) -> None:
        self._on_planned = on_planned
        self._on_piece = on_piece
        self._on_withdrawn = on_withdrawn
        self._pieces: list[str] = []
        self._length = 0
        self._next = 1
        self._planned = ""
        self.shown = ""

    def __call__(self, piece: str) -> None:
        """Take the next piece."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > MAX_REPLY_CHARS:
            raise ModelReplyWrong(f"The reply has more than {MAX_REPLY_CHARS:,} characters.")
        if self._length < self._next:
            return
        self._next = int(self._length * _GROWTH) + 8
        self._pieces = ["".join(self._pieces)]
        self._look(self._pieces[0])

    def finish(self, answer: str | None) -> None:
        """Show what is missing of the answer, now that it is known; without one, take back what was shown."""
        if self.shown and (answer is None or not answer.startswith(self.shown)):
            self._on_withdrawn()
            self.shown = ""
        if answer is not None and answer != self.shown:
            self._on_piece(answer[len(self.shown) :])
            self.shown = answer

    def _look(self, text: str) -> None:
        start = text.find("{")
        if start < 0:
            return
        try:
            found = from_json(text[start:], allow_partial="trailing-strings")
        except ValueError:
            return
        action = found.get("action") if isinstance(found, dict) else None
        if isinstance(action, dict):
            self._see(action)

    def _see(self, action: dict[str, Any]) -> None:
        type_, payload = action.get("type"), action.get("payload")
        # The type may still be growing; only once its payload has begun, it is whole.
        if not isinstance(type_, str) or not isinstance(payload, dict):
            return
        if type_ != self._planned:
            self._planned = type_
            self._on_planned(type_)
        text = payload.get("text")
        if type_ == "final_answer" and isinstance(text, str):
            whole = _without_half(text)
            if whole.startswith(self.shown) and len(whole) > len(self.shown):
                self._on_piece(whole[len(self.shown) :])
                self.shown = whole


def _without_half(text: str) -> str:
    """The text without half a character at its end, whose other half is still to come."""
    return text[:-1] if text and "\ud800" <= text[-1] <= "\udfff" else text
