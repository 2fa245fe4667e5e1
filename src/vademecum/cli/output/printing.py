"""Print results in the same way for every command: JSON, text and styles."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vademecum.errors import Denied, LoadRefused, PathRefused, SkillNotFound, VademecumError
from vademecum.skill.text import escaped_lines

if TYPE_CHECKING:
    from vademecum.session.base import Result

MAX_LISTED_FILES = 1000

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
MARKS = {"ok": ("✓", GREEN), "note": ("!", YELLOW), "problem": ("✗", RED)}

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
yes_option = click.option(
    "--yes", is_flag=True, help="Answer every question with yes. What a rule denies stays denied."
)


def answer(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command found or did: the document as JSON, or the lines for people."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        click.echo(line)


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
    """Return a value as plain data: as its ``to_json`` says, else its fields, else its text."""
    return value.to_json() if hasattr(value, "to_json") else msgspec.to_builtins(value, enc_hook=str)


def print_text(text: str) -> None:
    """Print untrusted text, with control characters written as escapes."""
    click.echo(escaped_lines(text))


def raised(result: Result) -> Result:
    """Return the result of a call, or raise its error; a script that ran is a result, even if it failed."""
    if not result.code or result.files:
        return result
    match result.code:
        case "denied" | "declined":
            raise Denied(result.text, advice=result.advice)
        case "skill-not-found":
            raise SkillNotFound(result.text)
        case "missing" | "no-section":
            raise LoadRefused(result.text, code=result.code)
        case "path-refused":
            raise PathRefused(result.text)
    raise VademecumError(result.text, code=result.code)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "skill"), counted(1200, "skill")
    ('1 skill', '1,200 skills')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def paint(text: str, style: str) -> str:
    """Return the text in an ANSI style such as ``1;36`` if standard output shows colour."""
    shown = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if shown and style and text else text
