"""Show how far a run, an evaluation or a transfer is, in a line on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from vademecum.skill.text import escaped, escaped_lines, visible

if TYPE_CHECKING:
    from vademecum.evals.results import CaseResult
    from vademecum.runs.record import Event

MAX_LINE_CHARS = 100
_BAR_CHARS = 24
_SECONDS_BETWEEN = 0.1
# The events of a run that people want to see, and what is said of each.
_LINES = {
    "model_asked": "turn {turn}: asking the model",
    "skill_loaded": "loaded {skill}",
    "resource_loaded": "read {path} of {skill}",
    "action run_script": "wants to run {payload[skill][name]}/{payload[relative_path]}",
    "action call_tool": "calling {payload[tool]}",
    "child_started": "a run of its own for {skill}",
    "progress": "{text}",
    "model_failed": "{problem}",
    "reply_wrong": "{problem}",
}


class StatusLine:
    """A line on a terminal that each new text replaces."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = False
        self._clock = clock
        self._started = clock()
        self._drawn = 0.0

    def is_due(self, *, after: float = 0.0) -> bool:
        """Return whether to draw now: on a terminal, ``after`` seconds of work, ten times a second."""
        now = self._clock()
        if not sys.stderr.isatty() or now - self._started <= after or now - self._drawn < _SECONDS_BETWEEN:
            return False
        self._drawn = now
        return True

    def show(self, text: str) -> None:
        """Replace the line by a text."""
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        self._shown = True

    def done(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False


class ProgressBar(StatusLine):
    """Show progress on a terminal, for work that takes longer than a second."""

    def __init__(
        self, verb: str, *, bytes_: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock=clock)
        self._verb = verb
        self._bytes = bytes_

    def __call__(self, done: int, total: int = 0) -> None:
        """Draw the progress."""
        if not self.is_due(after=1.0):
            return
        amount = f"{done / 1e6:,.1f} MB" if self._bytes else f"{done:,}"
        if total:
            filled = min(_BAR_CHARS, done * _BAR_CHARS // total)
            drawn = "█" * filled + "░" * (_BAR_CHARS - filled)
            amount = f"{drawn} {min(100, done * 100 // total)} % ({amount})"
        self.show(f"{self._verb} … {amount}")


class EvalProgress(StatusLine):
    """Show a bar on a terminal, with the pass rate so far and the time that is left."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._quiet = quiet
        self._ran = self._passed = self._judged = 0
        self.finished, self.total = 0, 0

    def __call__(self, *, done: int, total: int, result: CaseResult | None) -> None:
        """Count a result and draw the bar."""
        self.finished, self.total = done, total
        if result is not None:
            self._ran += 1
            self._judged += result.outcome in {"pass", "fail"}
            self._passed += result.outcome == "pass"
        if not self._quiet and self.is_due():
            self.show(self.line(self._drawn))

    def line(self, now: float) -> str:
        """Return the bar with the rate and the time left."""
        filled = round(_BAR_CHARS * self.finished / self.total) if self.total else _BAR_CHARS
        bar = f"[{'#' * filled}{'.' * (_BAR_CHARS - filled)}] {self.finished:,} of {self.total:,}"
        rate = f", {self._passed / self._judged:.0%} pass" if self._judged else ""
        if not self._ran:
            return bar + rate
        left = (self.total - self.finished) * (now - self._started) / self._ran
        return f"{bar}{rate}, {int(left) // 60}:{int(left) % 60:02} left"


class RunProgress(StatusLine):
    """Show the events of a run, and the answer while the model writes it."""

    def __init__(self) -> None:
        super().__init__()
        self._live = sys.stderr.isatty()
        self._rest = ""
        self.printed = ""

    def __call__(self, event: Event) -> None:
        """Show an event, if it is one that people want to see."""
        if event.type == "answer_piece" and sys.stdout.isatty():
            self.done()
            self.printed += event.data["text"]
            click.echo(escaped_lines(event.data["text"]), nl=False)
        elif event.type == "answer_withdrawn":
            if self.printed:
                click.echo("\n(the model withdrew this answer)", err=True)
            self.printed = ""
        elif event.type == "run_finished" and self.printed:
            click.echo()
        elif event.type == "output_piece":
            self._quote(event.data["data"])
        elif line := _LINES.get(f"{event.type} {event.data.get('action', '')}".rstrip()):
            text = f"… {visible(line.format_map(event.data))[:MAX_LINE_CHARS]}"
            if self._live:
                self.show(text)
            else:
                click.echo(text, err=True)

    def _quote(self, data: bytes) -> None:
        """Show the output of a script while it runs, on a terminal."""
        if not self._live:
            return
        *lines, self._rest = (self._rest + data.decode("utf-8", "replace")).split("\n")
        self.done()
        for line in lines:
            click.echo(f"  │ {escaped(line.expandtabs(8))}", err=True)
