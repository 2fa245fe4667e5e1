"""Taking turns: of the runs of one process one computes at a time, and gives way while it waits.

Threads that all compute only hand the interpreter to each other at every system call, which costs a third of
the time. Nothing depends on it: whoever does not get a turn soon goes on without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vademecum.models.base import Message, Model, OnText, Reply
from vademecum.runs.record import Event, Listener
from vademecum.tools.sandbox.base import Jail, Launch, Sandbox

PATIENCE_SECONDS = 1.0


class Turn:
    """The turn of one run: taken when it computes, given when it waits for somebody else."""

    def __init__(self, turns: threading.Lock) -> None:
        self._turns = turns
        self._held = False

    def take(self) -> None:
        """Wait for the turn, for a moment."""
        if not self._held:
            self._held = self._turns.acquire(timeout=PATIENCE_SECONDS)

    def give(self) -> None:
        """Let somebody else compute."""
        if self._held:
            self._held = False
            self._turns.release()

    def sleep(self, seconds: float) -> None:
        """Wait, and let others compute meanwhile."""
        self.give()
        time.sleep(seconds)

    def heard(self, listener: Listener) -> Listener:
        """A listener that takes the turn back: something happened, so the waiting is over."""

        def hear(event: Event) -> None:
            self.take()
            listener(event)

        return hear


class WaitedFor:
    """A model that answers elsewhere: others compute while it thinks, and between the pieces it sends."""

    def __init__(self, inner: Model, turn: Turn) -> None:
        self.name = inner.name
        self._inner = inner
        self._turn = turn

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask it."""

        def piece(text: str) -> None:
            if on_text is not None:
                on_text(text)
            self._turn.give()

        self._turn.give()
        return self._inner.reply(messages, schema=schema, on_text=None if on_text is None else piece)


class GivesWay:
    """A sandbox in which commands run while others compute."""

    def __init__(self, inner: Sandbox, turn: Turn) -> None:
        self.name = inner.name
        self._inner = inner
        self._turn = turn

    def launch(self, argv: list[str], jail: Jail, *, doors: tuple[str, ...] = ()) -> Launch:
        """Start it, and give way."""
        self._turn.give()
        return self._inner.launch(argv, jail, doors=doors)
