"""``read_file``, ``list_dir`` and ``grep``, with limits on what they return."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vademecum.errors import ToolRefused
from vademecum.files import read_up_to
from vademecum.skill.text import counted, without_hidden
from vademecum.tools.calls import Grep, Observation, ReadFile
from vademecum.tools.workspace import Located, files_below, open_located

MAX_READ_BYTES = 10 * 1024 * 1024
MAX_SHOWN_CHARS = 40_000
MAX_ENTRIES = 1000
MAX_MATCHES = 200
MAX_MATCH_CHARS = 300
MAX_SEARCHED_FILES = 20_000
MAX_SEARCHED_BYTES = 2 * 1024 * 1024
MAX_SEARCH_SECONDS = 10.0
MAX_PATTERN_MEMORY = 8 * 1024 * 1024

MayRead = Callable[[Path], bool]


def read_file(call: ReadFile, located: Located) -> Observation:
    """Return some lines of a text file, and the number of all lines."""
    with os.fdopen(open_located(located), "rb") as file:
        data = file.read(MAX_READ_BYTES + 1)
    if len(data) > MAX_READ_BYTES:
        raise ToolRefused(f"{located.name!r} is larger than {MAX_READ_BYTES:,} bytes.", code="too-large")
    if b"\0" in data:
        raise ToolRefused(f"{located.name!r} is not text ({counted(len(data), 'byte')}).", code="not-text")
    try:
        text = without_hidden(data.decode("utf-8-sig").replace("\r\n", "\n"))[0]
    except UnicodeDecodeError as error:
        raise ToolRefused(f"{located.name!r} is not UTF-8 text.", code="not-text") from error
    lines = text.splitlines(keepends=True)
    last = min(len(lines), call.first_line - 1 + call.lines)
    shown, note = "".join(lines[call.first_line - 1 : last]), ""
    if len(shown) > MAX_SHOWN_CHARS:
        shown = shown[:MAX_SHOWN_CHARS]
        note = f"\n[cut after {MAX_SHOWN_CHARS:,} characters; ask for fewer lines]"
    elif last < len(lines):
        note = f"\n[lines {call.first_line} to {last} of {len(lines)}]"
    facts = {"lines": len(lines), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return Observation("read_file", shown + note, facts=facts)


def list_dir(located: Located, may_read: MayRead) -> Observation:
    """Return the names in a directory, sorted, with sizes; leave out what may not be read."""
    base = Path(os.path.realpath(located.path))
    descriptor = open_located(located, directory=True)
    try:
        names = sorted(name for name in os.listdir(descriptor) if may_read(base / name))
        shown = [_entry(name, descriptor) for name in names[:MAX_ENTRIES]]
    finally:
        os.close(descriptor)
    note = f"\n[the first {MAX_ENTRIES:,} of {len(names):,}]" if len(names) > MAX_ENTRIES else ""
    return Observation("list_dir", "\n".join(shown) + note, facts={"entries": len(names)})


def grep(call: Grep, located: Located, may_read: MayRead) -> Observation:
    """Return the matching lines with file and line number. RE2 matches any pattern in linear time."""
    expression = _compiled(call)
    deadline = time.monotonic() + MAX_SEARCH_SECONDS
    matches: list[str] = []
    searched, note = 0, ""
    if not located.path.is_dir():
        with os.fdopen(open_located(located), "rb") as file:
            matches, searched = _matching(located.name, file.fileno(), expression), 1
    else:
        for name, descriptor in files_below(located, may_read):
            searched += 1
            matches += _matching(name, descriptor, expression)
            if len(matches) >= MAX_MATCHES:
                note = f"[stopped after {MAX_MATCHES} matches]"
            elif searched >= MAX_SEARCHED_FILES or time.monotonic() > deadline:
                note = f"[stopped after {searched:,} files]"
            if note:
                break
    shown = matches[:MAX_MATCHES]
    text = "\n".join([*shown, note] if note else shown) or "no line matches"
    return Observation("grep", text, facts={"matches": len(shown), "searched": searched})


def _compiled(call: Grep) -> Any:
    import re2  # noqa: PLC0415 - 15 ms, for this tool alone

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    options.case_sensitive = not call.ignore_case
    try:
        return re2.compile(call.pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise ToolRefused(
            f"The pattern {call.pattern[:200]!r} is not valid RE2 ({reason}): correct it.", code="pattern"
        ) from error


def _matching(name: str, descriptor: int, expression: Any) -> list[str]:
    data = read_up_to(descriptor, MAX_SEARCHED_BYTES)
    if b"\0" in data[:8192]:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    found = ((n, line) for n, line in enumerate(lines, 1) if expression.search(line))
    return [f"{name}:{n}: {without_hidden(line)[0][:MAX_MATCH_CHARS]}" for n, line in found][:MAX_MATCHES]


def _entry(name: str, directory: int) -> str:
    try:
        found = os.lstat(name, dir_fd=directory)
    except OSError:
        return name
    if stat.S_ISDIR(found.st_mode):
        return f"{name}/"
    if stat.S_ISLNK(found.st_mode):
        return f"{name} (a link)"
    return f"{name} ({counted(found.st_size, 'byte')})"
