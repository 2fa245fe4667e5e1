"""How results reach people (text, colour on a terminal only) and programs (one JSON document)."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vademecum.skill.text import visible

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def print_json(document: Any) -> None:
    """Print a JSON document, readable, and in ASCII where a name on disk is not valid text."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = json.dumps(document, indent=2).encode("ascii")
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def console() -> Console:
    """A console on standard output: no colour unless it is a terminal, and NO_COLOR is honoured.

    Nothing is wrapped away when the output goes to a file or a pipe.
    """
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    return Console(highlight=False, width=wide, emoji=False, markup=False)


def plain(text: str, *, style: str = "", most: int | None = None) -> Text:
    """Text from outside, on one line, with nothing in it that could steer a terminal."""
    shown = visible(text)
    if most is not None and len(shown) > most:
        head, space, tail = shown[:most].rpartition(" ")
        shown = f"{head if space and len(tail) < most // 4 else shown[: most - 1]}…"
    return Text(shown, style=style)


def print_table(out: Console, table: Table) -> None:
    """Print a table without the blanks that would fill each line to its end."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(f"{line.rstrip()}\n")


def counted(number: int, noun: str) -> str:
    """The number with its noun.

    >>> counted(1, "skill"), counted(1200, "skill")
    ('1 skill', '1,200 skills')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class ReadingProgress:
    """Shows on a terminal how many documents were read, once that takes longer than a second."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = False

    def __call__(self, read: int) -> None:
        """Show the count, where anybody can see it."""
        if sys.stderr.isatty() and time.monotonic() - self._started > 1:
            self._shown = True
            click.echo(f"\rreading skills … {read:,}", nl=False, err=True)

    def done(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
