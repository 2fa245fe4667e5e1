"""What all commands share in answering: the JSON form, counting words, and progress."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from vademecum.errors import Denied, LoadRefused, SkillNotFound, VademecumError
from vademecum.skill.text import escaped_lines

if TYPE_CHECKING:
    from vademecum.session.base import Result

MAX_LISTED_FILES = 1000
_BAR_CHARS = 24

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


yes_option = click.option(
    "--yes", is_flag=True, help="Answer every question with yes; rules that deny still deny."
)


def print_json(document: Any) -> None:
    """Print a JSON document, readable, and in ASCII where a name on disk is not valid text.

    A number that JSON has no word for, such as infinity, is ``null``.
    """
    try:
        text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        document = _finite(document)
        text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode("ascii")
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def print_text(text: str) -> None:
    """Print text that came from elsewhere, line by line, with nothing in it that could steer a terminal."""
    click.echo(escaped_lines(text))


def raised(result: Result) -> Result:
    """Return what came of a call, or raise what went wrong with it; a script that ran came to something."""
    if not result.code or result.files:
        return result
    match result.code:
        case "denied" | "declined":
            raise Denied(result.text, advice=result.advice)
        case "skill-not-found":
            raise SkillNotFound(result.text)
        case "missing":
            raise LoadRefused(result.text, code=result.code)
    raise VademecumError(result.text, code=result.code)


def counted(number: int, noun: str) -> str:
    """The number with its noun.

    >>> counted(1, "skill"), counted(1200, "skill")
    ('1 skill', '1,200 skills')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class ReadingProgress:
    """Shows on a terminal how many documents were read, once that takes longer than a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._shown = False

    def __call__(self, read: int) -> None:
        """Show the count, where anybody can see it."""
        if sys.stderr.isatty() and self._clock() - self._started > 1:
            self._shown = True
            click.echo(f"\rreading skills … {read:,}", nl=False, err=True)

    def done(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


class Bar:
    """Shows on a terminal how far something came, once that takes longer than a second."""

    def __init__(
        self, verb: str, *, bytes_: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._verb = verb
        self._bytes = bytes_
        self._clock = clock
        self._started = clock()
        self._drawn = 0.0
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Draw it, ten times a second at most, where anybody can see it."""
        now = self._clock()
        if not sys.stderr.isatty() or now - self._started <= 1 or now - self._drawn < 0.1:
            return
        self._drawn, self._shown = now, True
        amount = f"{done / 1e6:,.1f} MB" if self._bytes else f"{done:,}"
        if total:
            filled = min(_BAR_CHARS, done * _BAR_CHARS // total)
            drawn = "█" * filled + "░" * (_BAR_CHARS - filled)
            amount = f"{drawn} {min(100, done * 100 // total)} % ({amount})"
        click.echo(f"\r\x1b[K{self._verb} … {amount}", nl=False, err=True)

    def done(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False
