"""How far an evaluation is: a bar on standard error, with the pass rate so far and the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from vademecum.evals.results import Result

_WIDTH = 24
_PAUSE = 0.1


class EvalProgress:
    """Shows a bar on a terminal, and nothing elsewhere."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = False
        self._live = sys.stderr.isatty() and not quiet
        self._clock = clock
        self._started = clock()
        self._last = 0.0
        self._ran = self._passed = self._judged = 0
        self.done, self.total = 0, 0

    def __call__(self, *, done: int, total: int, result: Result | None) -> None:
        """Take a result, and show where we are."""
        self.done, self.total = done, total
        if result is not None:
            self._ran += 1
            self._judged += result.outcome in {"pass", "fail"}
            self._passed += result.outcome == "pass"
        now = self._clock()
        if self._live and now - self._last >= _PAUSE:
            self._last = now
            self._shown = True
            click.echo(f"\r\x1b[K{self.line(now)}", nl=False, err=True)

    def line(self, now: float) -> str:
        """The bar as it stands."""
        filled = round(_WIDTH * self.done / self.total) if self.total else _WIDTH
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {self.done:,} of {self.total:,}"
        rate = f", {self._passed / self._judged:.0%} pass" if self._judged else ""
        if not self._ran:
            return bar + rate
        left = (self.total - self.done) * (now - self._started) / self._ran
        return f"{bar}{rate}, {int(left) // 60}:{int(left) % 60:02} left"

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False
