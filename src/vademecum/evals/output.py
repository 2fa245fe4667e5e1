"""What came out of a run → checks: words, patterns, JSON, Markdown, files, a function, a command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vademecum.errors import ConfigError, FileRefused, PathRefused
from vademecum.evals.cases import FileCheck, JsonCheck, MarkdownCheck, OutputChecks
from vademecum.evals.checks import Check, Left
from vademecum.evals.confined import check_command, check_function
from vademecum.evals.patterns import at, is_absent, text_test
from vademecum.files import read_capped
from vademecum.paths import contained
from vademecum.tools.sandbox.base import Sandbox

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_SHOWN_CHARS = 160

_FENCE = re.compile(r"^(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_ROW = re.compile(r"^[ \t]*\|(.+)\|[ \t]*\n[ \t]*\|?[ \t:|-]*-[ \t:|-]*$", re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+\S", re.MULTILINE)


def check_output(wanted: OutputChecks, left: Left, *, sandbox: Callable[[], Sandbox]) -> Iterator[Check]:
    """Everything that a case says about what comes out, the judge's part aside."""
    yield from _words(wanted, left.answer)
    for each in wanted.json_:
        yield _json(each, left.answer)
    if wanted.markdown is not None:
        yield from _markdown(wanted.markdown, left.answer)
    for file in wanted.files:
        yield _file(file, left)
    if wanted.python is not None:
        yield check_function(wanted.python, left, sandbox=sandbox())
    if wanted.command is not None:
        yield check_command(wanted.command, left, sandbox=sandbox())


def _words(wanted: OutputChecks, answer: str) -> Iterator[Check]:
    for text in wanted.contains:
        yield _check(f"output contains {text!r}", text in answer, f"the answer is {_shown(answer)}")
    if wanted.contains_any:
        found = [text for text in wanted.contains_any if text in answer]
        name = f"output contains one of {', '.join(map(repr, wanted.contains_any))}"
        yield _check(name, bool(found), f"the answer is {_shown(answer)}")
    for text in wanted.contains_none:
        yield _check(
            f"output does not contain {text!r}", text not in answer, f"the answer is {_shown(answer)}"
        )
    for pattern in wanted.regex:
        fits = text_test(f"re:{pattern}")(answer)
        yield _check(f"output matches {pattern!r}", fits, f"the answer is {_shown(answer)}")


def _json(wanted: JsonCheck, answer: str) -> Check:
    where = f" at {wanted.path}" if wanted.path else ""
    name = f"output JSON{where} {'equals' if wanted.schema_ is None else 'fits its schema'}"
    document = json_in(answer)
    if document is None:
        return Check(name, "fail", f"there is no JSON in the answer {_shown(answer)}")
    value = at(document[0], tuple(filter(None, wanted.path.split("."))))
    if is_absent(value):
        return Check(name, "fail", f"there is nothing at {wanted.path!r}")
    if wanted.schema_ is not None:
        problem = _against(wanted.schema_, value)
        return _check(name, not problem, problem)
    return _check(name, value == wanted.equals, f"it is {_shown(json.dumps(value, ensure_ascii=False))}")


def json_in(text: str) -> tuple[Any] | None:
    """The JSON that a text is, or that it has between fences, or that begins somewhere in it.

    >>> json_in('Here it is: {"a": [1]} as you asked')
    ({'a': [1]},)
    """
    for candidate in (text, *(found[3] for found in _FENCE.finditer(text))):
        try:
            return (json.loads(candidate),)
        except (ValueError, RecursionError):
            continue
    decoder = json.JSONDecoder()
    for start in [found.start() for found in re.finditer(r"[{\[]", text)][:100]:
        try:
            return (decoder.raw_decode(text, start)[0],)
        except (ValueError, RecursionError):
            continue
    return None


def _against(schema: dict[str, Any], value: Any) -> str:
    """What is wrong with a value, by a schema; nothing where it fits."""
    try:
        import jsonschema  # noqa: PLC0415 - an extra, and only where a case asks for it
    except ImportError as error:
        advice = "pip install 'vademecum[evals]'"
        raise ConfigError(f"Checking a JSON schema needs a package that is not here: {advice}.") from error
    try:
        validator = jsonschema.validators.validator_for(schema)
        validator.check_schema(schema)
        first = next(iter(validator(schema).iter_errors(value)), None)
    except jsonschema.exceptions.SchemaError as error:
        return f"the schema itself is wrong: {error.message}"
    if first is None:
        return ""
    where = ".".join(map(str, first.absolute_path))
    return f"{where or 'the value'}: {first.message}"


def _markdown(wanted: MarkdownCheck, answer: str) -> Iterator[Check]:
    plain = _FENCE.sub("", answer)
    headings = [found[1].strip() for found in _HEADING.finditer(plain)]
    for heading in wanted.headings:
        shown = ", ".join(headings) or "none"
        yield _check(f"output has the heading {heading!r}", heading in headings, f"its headings are {shown}")
    if wanted.table_columns:
        tables = [[cell.strip() for cell in found[1].split("|")] for found in _ROW.finditer(plain)]
        fits = any(set(wanted.table_columns) <= set(columns) for columns in tables)
        name = f"output has a table with {', '.join(wanted.table_columns)}"
        yield _check(name, fits, f"its tables have {tables or 'no columns'}")
    if wanted.code is not None:
        languages = [found[2] for found in _FENCE.finditer(answer)]
        fits = wanted.code in languages if isinstance(wanted.code, str) else bool(languages) is wanted.code
        yield _check(f"output has code ({wanted.code})", fits, f"its code blocks are {languages or 'none'}")
    if wanted.list_items:
        items = len(_ITEM.findall(plain))
        yield _check(
            f"output has {wanted.list_items} list items", items >= wanted.list_items, f"it has {items}"
        )


def _file(wanted: FileCheck, left: Left) -> Check:
    name = f"file {wanted.path}"
    text = _read(wanted.path, left)
    if text is None:
        return Check(name, "fail", "no such file was left by the run")
    if wanted.equals is not None and text != wanted.equals:
        return Check(name, "fail", f"its content is {_shown(text)}")
    for part in wanted.contains:
        if part not in text:
            return Check(name, "fail", f"it does not contain {part!r}: its content is {_shown(text)}")
    for pattern in wanted.regex:
        if not text_test(f"re:{pattern}")(text):
            return Check(name, "fail", f"it does not match {pattern!r}: its content is {_shown(text)}")
    return Check(name, "pass")


def _read(relative: str, left: Left) -> str | None:
    """A file of the project as the run left it, else the last one of that name that a script made."""
    for base in (left.project, *reversed(left.made)):
        try:
            path: Path = contained(base, relative)
            if os.path.isfile(path):
                return read_capped(path, cap=MAX_FILE_BYTES).decode("utf-8", "replace")
        except (PathRefused, FileRefused, OSError):
            continue
    return None


def _check(name: str, holds: bool, otherwise: str) -> Check:  # noqa: FBT001 - the one thing it is about
    return Check(name, "pass") if holds else Check(name, "fail", otherwise)


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= MAX_SHOWN_CHARS else f"{flat[:MAX_SHOWN_CHARS]}…")
