"""When a run is to end before it is done: the evaluation was interrupted, or its own time is over."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from threading import Event as Flag
from typing import Literal

from vademecum.errors import VademecumError


class Stopped(VademecumError):
    """Ends a run from outside."""

    code = "stopped"


class Stop:
    """Tells one run when it is to end; whoever waits within a run waits here, or looks here now and then.

    It has ``ended`` once somebody was told that the time is over.
    """

    def __init__(
        self, cancelled: Flag, seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cancelled = cancelled
        self._clock = clock
        self.seconds = seconds
        self.ended = False
        self._deadline = clock() + seconds

    @property
    def reason(self) -> Literal["", "time", "cancelled"]:
        """Why it is to end now; nothing where it is not."""
        if self._cancelled.is_set():
            return "cancelled"
        return "time" if self._clock() > self._deadline else ""

    @property
    def overdue(self) -> float:
        """How many seconds it should have been over by now; below zero while there is time."""
        return self._clock() - self._deadline

    def begin_anew(self, seconds: float) -> None:
        """Give so many seconds for what comes now: what a run took says nothing of its checks."""
        self.seconds = seconds
        self._deadline = self._clock() + seconds

    def look(self) -> None:
        """Raise if it is to end: an interruption as Ctrl-C is one, so that records end the same way."""
        reason = self.reason
        if reason == "cancelled":
            raise KeyboardInterrupt
        if reason == "time":
            self.ended = True
            raise Stopped(late(self.seconds))

    def pause(self, seconds: float) -> None:
        """Wait so long, unless it is to end before."""
        self._cancelled.wait(max(0.0, min(seconds, -self.overdue + 0.001)))
        self.look()


def late(seconds: float) -> str:
    """Return the sentence for a run whose time was over, at whatever point that was noticed.

    >>> late(0.5)
    'It was not done after 0.5 s.'
    """
    return f"It was not done after {seconds:g} s."


def interrupt(thread: threading.Thread) -> None:
    """Do to a thread what Ctrl-C does to the main one: it ends what it does, its children, and its record.

    A script is waited for in short looks, so it is stopped at once; within one call into the system it takes
    until that returns.
    """
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
        )
