"""Print in the same way for every command: JSON, text and styles, and progress on standard error."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click
import msgspec

from vademecum.errors import Denied, PathRefused, SkillNotFound, VademecumError
from vademecum.skill.text import escaped, escaped_lines, visible

if TYPE_CHECKING:
    from vademecum.runs.record import Event
    from vademecum.session.base import Result

MAX_LISTED_FILES = 1000
MAX_SUMMARY_CHARS = 300
MAX_LINE_CHARS = 100
BAR_CHARS = 24
_SECONDS_BETWEEN = 0.1
# The progress line for each event of a run that users see.
_LINES = {
    "model_asked": "turn {turn}: asking the model",
    "skill_loaded": "loaded {skill}",
    "resource_loaded": "read {path} of {skill}",
    "action run_script": "wants to run {payload[skill][name]}/{payload[relative_path]}",
    "action call_tool": "calling {payload[tool]}",
    "child_started": "starting a child run for {skill}",
    "progress": "{text}",
    "model_failed": "{problem}",
    "reply_wrong": "{problem}",
}

_ERRORS: dict[str, type[VademecumError]] = {
    "denied": Denied,
    "declined": Denied,
    "skill-not-found": SkillNotFound,
    "path-refused": PathRefused,
}

STYLES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
    "cyan": "36", "bold cyan": "1;36",
}  # fmt: skip
MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
yes_option = click.option(
    "--yes", is_flag=True, help="Answer yes to every question. Denied actions stay denied."
)


class CommandResult(NamedTuple):
    """The result of a command: a document for ``--json``, lines for people, and the exit code.

    If there are no lines, people get the document too; ``told`` goes to standard error.
    """

    document: Any
    lines: Iterable[str] | None = None
    code: int = 0
    told: Iterable[str] = ()

    def print(self, *, as_json: bool) -> None:
        """Print the document or the lines."""
        if as_json or self.lines is None:
            print_json(self.document)
            return
        sys.stdout.writelines(f"{line}\n" for line in self.lines)
        sys.stdout.flush()
        for sentence in self.told:
            click.echo(sentence, err=True)


class _Command(click.Command):
    """A command whose summary in the help of its group is not cut."""

    def get_short_help_str(self, limit: int = MAX_SUMMARY_CHARS) -> str:
        return super().get_short_help_str(MAX_SUMMARY_CHARS)


def command(
    name: str, group: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., CommandResult]], click.Command]:
    """Return a decorator for a command that takes ``--json`` and prints the result of its function."""

    def decorate(function: Callable[..., CommandResult]) -> click.Command:
        @wraps(function)
        def run(*arguments: Any, as_json: bool, **options: Any) -> int:
            answer = function(*arguments, **options)
            answer.print(as_json=as_json)
            return answer.code

        found = json_option(click.command(name, _Command, **settings)(run))
        if group is not None:
            group.add_command(found)
        return found

    return decorate


def print_json(document: Any) -> None:
    """Print an indented JSON document, in which Infinity and NaN are ``null``."""
    try:
        text = json.dumps(document, default=_plain, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(document, default=_plain), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, indent=2)
    # A file name that is not valid text has lone surrogates; their escapes are those of JSON.
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


def _plain(value: Any) -> Any:
    """Return a value as plain data: from its ``to_json``, else its fields, else its text."""
    return value.to_json() if hasattr(value, "to_json") else msgspec.to_builtins(value, enc_hook=str)


def raised(result: Result) -> Result:
    """Return the result of a call, or raise its error; a script that ran is a result, even if it failed."""
    if not result.code or result.files:
        return result
    error = _ERRORS.get(result.code, VademecumError)
    raise error(result.text, code=result.code, advice=result.advice)


def paint(text: str, style: str) -> str:
    """Return the text in one of the ``STYLES`` if standard output shows colour."""
    code = STYLES[style] if style else ""
    shown = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if shown and code and text else text


def tell_of_secrets(event: Event) -> None:
    """Name the secrets that a script's skill declares and that are not set, and how to set them."""
    skill = event.data["skill"]
    for name in event.data["result"].get("secrets_not_set", ()):
        text = f"{name} is not set for {skill}: vade secrets set {name} --skill {skill}"
        click.echo(f"vade: {visible(text)}", err=True)


class StatusLine:
    """A line on a terminal that each new text replaces. As a context manager, remove it at the end."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = False
        self._clock = clock
        self._started = clock()
        self._drawn = 0.0

    def is_due(self, *, after: float = 0.0) -> bool:
        """Return whether to draw now: only on a terminal, after ``after`` seconds, ten times a second."""
        now = self._clock()
        if not sys.stderr.isatty() or now - self._started <= after or now - self._drawn < _SECONDS_BETWEEN:
            return False
        self._drawn = now
        return True

    def show(self, text: str) -> None:
        """Replace the line by a text, cut to the width of the terminal."""
        click.echo(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", nl=False, err=True)
        self._shown = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

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
            filled = min(BAR_CHARS, done * BAR_CHARS // total)
            drawn = "█" * filled + "░" * (BAR_CHARS - filled)
            amount = f"{drawn} {min(100, done * 100 // total)} % ({amount})"
        self.show(f"{self._verb} … {amount}")


class RunProgress(StatusLine):
    """Show the events of a run, and the answer while the model writes it."""

    def __init__(self) -> None:
        super().__init__()
        self._live = sys.stderr.isatty()
        self._rest = ""
        self._has_written = False
        self.printed = ""

    def __call__(self, event: Event) -> None:
        """Show an event if its type has a line."""
        if event.type == "answer_piece" and sys.stdout.isatty():
            self.write(event.data["text"])
            self.printed += event.data["text"]
        elif event.type == "answer_withdrawn":
            self.end()
            if self.printed:
                click.echo("(the model withdrew this answer)", err=True)
            self.printed = ""
        elif event.type == "run_finished":
            self.end()
        elif event.type == "output_piece":
            self._quote(event.data["data"])
        elif event.type == "tool_called":
            self.done()
            tell_of_secrets(event)
        elif line := _LINES.get(f"{event.type} {event.data.get('action', '')}".rstrip()):
            text = f"… {visible(line.format_map(event.data))[:MAX_LINE_CHARS]}"
            if self._live:
                self.show(text)
            else:
                click.echo(text, err=True)

    def write(self, text: str) -> None:
        """Print a piece of the answer."""
        self.done()
        click.echo(escaped_lines(text), nl=False)
        self._has_written = True

    def end(self) -> None:
        """End the line of an answer that was begun."""
        self.done()
        if self._has_written:
            click.echo()
        self._has_written = False

    def _quote(self, data: bytes) -> None:
        """Show the last line of a script's output while it runs, on a terminal; the record has all of it."""
        *lines, self._rest = (self._rest + data.decode("utf-8", "replace")).split("\n")
        if self._live and lines:
            self.show(f"  │ {escaped(lines[-1].expandtabs(8))[:MAX_LINE_CHARS]}")
