"""Print results in the same way for every command: JSON, text and styles."""

from __future__ import annotations

import json
import math
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

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="TOOL[(PATTERN)]",
    help="Approve this tool for this run, such as write_file or 'write_file(reports/*)'; repeatable.",
)

yes_option = click.option(
    "--yes", is_flag=True, help="Answer every question with yes. What a rule denies stays denied."
)


def print_json(document: Any) -> None:
    """Print an indented JSON document, in ASCII if a file name in it is not valid text.

    Infinity and NaN are printed as ``null``.
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


def answer(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command did: the document, whose structs become mappings, or lines for people."""
    if as_json:
        print_json(msgspec.to_builtins(document, enc_hook=str))
        return
    for line in lines:
        click.echo(line)


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
