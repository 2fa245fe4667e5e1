"""What a tool call comes to: text for the model, and facts for programs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Observation(Struct, frozen=True):
    """What came of a call: text to go on with, and facts for programs.

    ``code`` is the code of the refusal or fault; ``""`` where there was none. ``files`` are where the whole
    of what ``text`` only shows a part of is kept.
    """

    tool: str
    text: str
    code: str = ""
    facts: dict[str, Any] = {}
    files: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the tool did what it does; a script that exits with 1 did."""
        return not self.code
