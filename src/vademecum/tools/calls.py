"""The tools and what each is called with, checked as it comes in."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from vademecum.errors import ToolRefused

MAX_ARGUMENTS = 20_000
MAX_CONTENT_CHARS = 10 * 1024 * 1024

_HALF = re.compile("[\ud800-\udfff]")

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
PathText = Annotated[str, Meta(description="A path relative to the project.", max_length=4096)]


class Parameters(Struct, forbid_unknown_fields=True):
    """Arguments of a tool."""


class ReadFile(Parameters):
    """Read a text file, or a part of it by lines."""

    path: PathText
    first_line: Annotated[int, Meta(ge=1)] = 1
    lines: Annotated[int, Meta(ge=1, le=10_000)] = 2000


class ListDir(Parameters):
    """List a directory: names, with a slash after directories, and sizes."""

    path: PathText = "."


class Grep(Parameters):
    """Find the lines that match a regular expression (RE2 syntax) in the files below a path."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1000)]
    path: PathText = "."
    ignore_case: bool = False


class WriteFile(Parameters):
    """Write a text file, whole. What was there before is shown as a difference in the record."""

    path: PathText
    content: Annotated[str, Meta(max_length=MAX_CONTENT_CHARS)]


class DeleteFile(Parameters):
    """Delete a file. It is kept in the trash of the run."""

    path: PathText


class NetworkRequest(Parameters):
    """Send one HTTP request and read the answer."""

    url: Annotated[str, Meta(max_length=8192)]
    method: Method = "GET"
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(max_length=1024 * 1024)] = ""


class RunScript(Parameters):
    """Run a script of a skill in a sandbox, with arguments, and with files it may read."""

    skill: str
    script: Annotated[str, Meta(description="Its name below scripts/, such as compare.py.", max_length=4096)]
    arguments: Annotated[list[str], Meta(max_length=MAX_ARGUMENTS)] = []
    files: Annotated[list[str], Meta(description="Files of the project it may read.", max_length=1000)] = []
    network: bool = False


Call = ReadFile | ListDir | Grep | WriteFile | DeleteFile | NetworkRequest | RunScript

TOOLS: dict[str, type[Call]] = {
    "read_file": ReadFile,
    "list_dir": ListDir,
    "grep": Grep,
    "run_script": RunScript,
    "write_file": WriteFile,
    "delete_file": DeleteFile,
    "network_request": NetworkRequest,
}
NAMES = {parameters: name for name, parameters in TOOLS.items()}


def parse_call(tool: object, arguments: Any) -> Call:
    """The arguments as the tool's own type, or an error that says what to change.

    >>> parse_call("read_file", {"path": "a.txt"})
    ReadFile(path='a.txt', first_line=1, lines=2000)
    >>> parse_call("grep", {"path": "."})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    vademecum.errors.ToolRefused: The arguments of grep are wrong ...
    """
    parameters = TOOLS.get(tool) if isinstance(tool, str) else None
    if parameters is None:
        raise ToolRefused(
            f"There is no tool {str(tool)[:80]!r}: there are {', '.join(TOOLS)}.", code="no-tool"
        )
    try:
        call = msgspec.convert(arguments, parameters)
        _check_text(msgspec.structs.astuple(call))
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ToolRefused(
            f"The arguments of {tool} are wrong ({error}): correct them.", code="arguments"
        ) from error
    return call


def _check_text(value: Any) -> None:
    """Refuse half characters everywhere, and NUL: no program, file or protocol takes them."""
    match value:
        case str():
            if "\0" in value or (not value.isascii() and _HALF.search(value)):
                raise ValueError("a text holds NUL or half a character")
        case dict():
            _check_text([*value, *value.values()])
        case list() | tuple():
            for item in value:
                _check_text(item)
