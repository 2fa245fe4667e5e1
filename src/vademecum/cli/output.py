"""What all commands share in answering: the JSON form, counting words, and progress."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

MAX_LISTED_FILES = 1000

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


yes_option = click.option(
    "--yes", is_flag=True, help="Answer every question with yes; rules that deny still deny."
)


def print_json(document: Any) -> None:
    """Print a JSON document, readable, and in ASCII where a name on disk is not valid text."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode("ascii")
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


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
