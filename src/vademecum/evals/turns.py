"""Taking turns: of the runs of one process one computes at a time, and gives way while it waits.

Threads that all compute only hand the interpreter to each other at every system call, which costs a third of
the time. Nothing depends on it: whoever computes for long loses the turn to the others, and goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vademecum.evals.stopping import Stop
from vademecum.models.base import Message, Model, OnText, Reply
from vademecum.runs.record import Event, Listener
from vademecum.sandbox.base import Jail, Launch, Sandbox

PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 0.2


class Turns:
    """The turn that the runs of one process share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._since = 0.0

    @property
    def patience(self) -> float:
        """How long it is worth waiting for: whoever has had it for long does not give it soon."""
        return (
            max(0.0, self._since + PATIENCE_SECONDS - self._clock())
            if self._lock.locked()
            else PATIENCE_SECONDS
        )

    def take(self) -> bool:
        """Wait until nobody has it, or whoever has it has had it too long: then all go on without."""
        held = self._lock.acquire(timeout=self.patience)
        if held:
            self._since = self._clock()
        return held

    def give(self) -> None:
        """Let somebody else have it."""
        self._lock.release()


class Turn:
    """The turn of one run: taken when it computes, given when it waits for somebody else."""

    def __init__(self, turns: Turns, stop: Stop) -> None:
        self._turns = turns
        self._held = False
        self.stop = stop

    def take(self) -> None:
        """Wait for the turn, for a moment."""
        if not self._held:
            self._held = self._turns.take()

    def give(self) -> None:
        """Let somebody else compute."""
        if self._held:
            self._held = False
            self._turns.give()

    def sleep(self, seconds: float) -> None:
        """Wait, and let others compute meanwhile."""
        self.give()
        self.stop.pause(seconds)

    def heard(self, listener: Listener) -> Listener:
        """A listener that takes the turn back: something happened, so the waiting is over."""

        def hear(event: Event) -> None:
            self.take()
            listener(event)

        return hear


class WaitedFor:
    """A model that answers elsewhere: others compute while it thinks, and between the pieces it sends.

    It is asked in a thread of its own, which nobody waits for once the run is to end.
    """

    def __init__(self, inner: Model, turn: Turn) -> None:
        self.name = inner.name
        self._inner = inner
        self._turn = turn

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask it."""
        said: queue.SimpleQueue[str | Reply | BaseException] = queue.SimpleQueue()
        gone = threading.Event()

        def piece(text: str) -> None:
            if gone.is_set():
                raise ConnectionAbortedError("nobody listens any more")
            said.put(text)

        def ask() -> None:
            try:
                said.put(
                    self._inner.reply(messages, schema=schema, on_text=None if on_text is None else piece)
                )
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                said.put(error)

        self._turn.give()
        threading.Thread(target=ask, daemon=True).start()
        try:
            return self._heard(said, on_text)
        finally:
            gone.set()

    def _heard(self, said: queue.SimpleQueue[str | Reply | BaseException], on_text: OnText | None) -> Reply:
        while True:
            try:
                found = said.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._turn.stop.look()
                continue
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, Reply):
                return found
            if on_text is not None:
                on_text(found)
            self._turn.give()


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
