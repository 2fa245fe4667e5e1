"""What a step of a run is compared with: its kind, its name, its arguments and its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from vademecum.policy.risk import RISKS
from vademecum.wildcards import is_plain, matches_exactly

MAX_PATTERN_CHARS = 2000

TextTest = Callable[[str], bool]

_FIELDS = frozenset({"kind", "name", "arguments", "outcome"})
# The words of the source designs for the same things.
_OTHER_KINDS = {"select_skill": "select_skills", "answer": "final_answer"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A step by kind, name, arguments and outcome; without an outcome it is the attempt that counts."""

    kind: str = "*"
    name: str = "*"
    arguments: tuple[tuple[str, Any], ...] = ()
    outcome: str = ""

    def __str__(self) -> str:
        """As a person writes it."""
        words = self.kind if self.name == "*" else f"{self.kind}:{self.name}"
        given = ", ".join(f"{key}={_shown(value)}" for key, value in self.arguments)
        return f"{words}{f'({given})' if given else ''}{f' → {self.outcome}' if self.outcome else ''}"


def parse_pattern(value: Any) -> Pattern:
    """A pattern as it is written: ``"run_script"``, ``"load_skill:file-*"``, or an object.

    >>> print(parse_pattern({"kind": "call_tool", "name": "re:^(read|write)_file$", "outcome": "ok"}))
    call_tool:re:^(read|write)_file$ → ok
    >>> print(parse_pattern("write_file"))
    call_tool:write_file
    """
    match value:
        case str() if value.strip():
            return _checked(_short(value.strip()))
        case dict() if value and set(value) <= _FIELDS:
            return _checked(_long(value))
        case dict():
            wrong = ", ".join(map(repr, sorted(set(value) - _FIELDS))) or "nothing in it"
            raise ValueError(f"a pattern has kind, name, arguments and outcome, not {wrong}")
    raise ValueError("a pattern is a text such as 'run_script' or 'load_skill:NAME', or an object")


def text_test(pattern: str) -> TextTest:
    """The test of a pattern: literal, with ``*`` and ``?``, or a regular expression after ``re:``.

    Regular expressions are searched for, in time linear in the text.
    """
    if pattern.startswith("re:"):
        found = _regular(pattern[3:])
        return lambda text: found.search(text) is not None
    if is_plain(pattern):
        return pattern.__eq__
    return lambda text: matches_exactly(pattern, text)


def arguments_test(wanted: tuple[tuple[str, Any], ...]) -> Callable[[Mapping[str, Any]], bool]:
    """The test of some arguments, named by dotted paths; those that are not named may be anything."""
    tests = [(tuple(key.split(".")), _value_test(value)) for key, value in wanted]

    def test(arguments: Mapping[str, Any]) -> bool:
        return all(
            found is not _ABSENT and each(found) for path, each in tests for found in [at(arguments, path)]
        )

    return test


_ABSENT = object()


def at(value: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path of keys and numbers, or a value that nothing equals."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def is_absent(value: Any) -> bool:
    """Whether ``at`` found nothing."""
    return value is _ABSENT


def _value_test(wanted: Any) -> Callable[[Any], bool]:
    if not isinstance(wanted, str):
        return lambda found: bool(found == wanted)
    test = text_test(wanted)
    return lambda found: test(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def _short(text: str) -> Pattern:
    if text.startswith("re:"):
        return Pattern(text)
    kind, colon, name = text.partition(":")
    if kind in RISKS and kind != "run_script" and not colon:
        return Pattern("call_tool", kind)
    return Pattern(_OTHER_KINDS.get(kind, kind), name or "*")


def _long(value: Mapping[str, Any]) -> Pattern:
    kind, name, outcome = (value.get(key, "") for key in ("kind", "name", "outcome"))
    arguments = value.get("arguments", {})
    if not all(isinstance(text, str) for text in (kind, name, outcome)) or not isinstance(arguments, dict):
        raise ValueError("kind, name and outcome of a pattern are texts, arguments are an object")
    kind = _OTHER_KINDS.get(kind, kind)
    return Pattern(
        kind or "*", name or "*", tuple((str(key), item) for key, item in arguments.items()), outcome
    )


def _checked(pattern: Pattern) -> Pattern:
    texts = [
        pattern.kind,
        pattern.name,
        pattern.outcome,
        *(v for _, v in pattern.arguments if isinstance(v, str)),
    ]
    for text in texts:
        if len(text) > MAX_PATTERN_CHARS:
            raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS:,} characters")
        text_test(text)
    return pattern


def _regular(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be read"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"the regular expression {expression[:80]!r} is wrong: {said}") from error


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
