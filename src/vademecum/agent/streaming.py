"""A reply as it comes, in pieces → what it plans to do, and the words of its answer, before it is whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from vademecum.models import sections

_GROWTH = 1.06  # the text is searched anew when it is so much longer, so that the work stays linear
_PLANNED = re.compile(r'"action"\s*:\s*\{\s*"type"\s*:\s*"(\w+)"\s*,\s*"payload"\s*:\s*\{')
_ANSWER = re.compile(r'"type"\s*:\s*"final_answer"\s*,\s*"payload"\s*:\s*\{\s*"text"\s*:\s*"')
# An answer does not end with blanks, and a character does not end with its first half.
_UNFINISHED = re.compile("(?:\\s|[\ud800-\udbff])+$")
# Up to here a JSON text is whole: no quotation mark ends it, no escape is cut.
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)


class Watched:
    """Looks at a reply while it grows. Nothing is done because of what is seen here: it is only shown.

    If ``is_plain``, the text is the answer itself; otherwise the answer is in a JSON object.
    """

    def __init__(
        self,
        on_planned: Callable[[str], object],
        on_piece: Callable[[str], None],
        on_withdrawn: Callable[[], None],
        *,
        is_plain: bool = False,
    ) -> None:
        self._on_planned = on_planned
        self._on_piece = on_piece
        self._on_withdrawn = on_withdrawn
        self._is_plain = is_plain
        self.shown = ""
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._length = 0
        self._next = 1
        self._planned = ""
        self._answer: str | None = None  # what came of the answer's text and is not shown yet

    def __call__(self, piece: str) -> None:
        """Take the next piece."""
        self._length += len(piece)
        if self._is_plain:
            text = self._held + piece if self.shown else piece.lstrip()
            end = _UNFINISHED.search(text)
            whole = text[: end.start() if end else None]
            self._held = text[len(whole) :]
            self._show(sections.mended(whole))
            return
        if self._answer is not None:
            self._take(self._answer + piece)
            return
        self._pieces.append(piece)
        if self._length < self._next:
            return
        self._next = int(self._length * _GROWTH) + 1
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

    def restart(self) -> None:
        """Take back what was shown: the reply broke off, and another one comes."""
        self.finish(None)
        self._begin()

    def _show(self, text: str) -> None:
        if text:
            self.shown += text
            self._on_piece(text)

    def _look(self, text: str) -> None:
        if found := _ANSWER.search(text):
            self._plan("final_answer")
            self._take(text[found.end() :])
            return
        if planned := _PLANNED.search(text):
            self._plan(planned[1])

    def _plan(self, type_: str) -> None:
        if type_ != self._planned:
            self._planned = type_
            self._on_planned(type_)

    def _take(self, raw: str) -> None:
        """Show as much of a JSON text as is whole; the rest waits for the next piece."""
        whole = _WHOLE.match(raw)
        end = whole.end() if whole else 0
        try:
            self._show(json.loads(f'"{raw[:end]}"', strict=False))
        except ValueError:
            end = 0
        self._answer = '"' if raw[end : end + 1] == '"' else raw[end:]
