"""What a step of a run is compared with: its kind, its name, its arguments and its outcome."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from vademecum.evals.steps import KINDS
from vademecum.policy.bounds import RISKS
from vademecum.wildcards import is_plain, matches_exactly

MAX_PATTERN_CHARS = 2000
MAX_INDEX_DIGITS = 9

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
        found = regular(pattern[3:])
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
        elif isinstance(value, list | tuple) and _is_number(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _is_number(text: str) -> bool:
    """Whether a step of a path counts items; what only looks like a digit does not."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_INDEX_DIGITS


def is_absent(value: Any) -> bool:
    """Whether ``at`` found nothing."""
    return value is _ABSENT


def same(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are the same; unlike in Python, true is not 1.

    >>> same(True, 1), same([1.0], [1]), same({"a": [None]}, {"a": [None]})
    (False, True, True)
    """
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def _value_test(wanted: Any) -> Callable[[Any], bool]:
    if not isinstance(wanted, str):
        return lambda found: same(found, wanted)
    test = text_test(wanted)
    return lambda found: test(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def _short(text: str) -> Pattern:
    if text.startswith("re:"):
        return Pattern(text)
    kind, _, name = text.partition(":")
    return Pattern(*_named(kind, name))


def _named(kind: str, name: str) -> tuple[str, str]:
    """Kind and name as steps have them; a tool by itself stands for calling it."""
    kind = _OTHER_KINDS.get(kind, kind)
    if kind in RISKS and kind != "run_script":
        if name not in {"", "*"}:
            advice = f'say {{"kind": "call_tool", "name": "{kind}", "arguments": …}}'
            raise ValueError(f"{kind!r} is a tool, and has no name after it: {advice}")
        return "call_tool", kind
    return kind or "*", name or "*"


def _long(value: Mapping[str, Any]) -> Pattern:
    kind, name, outcome = (value.get(key, "") for key in ("kind", "name", "outcome"))
    arguments = value.get("arguments", {})
    if not all(isinstance(text, str) for text in (kind, name, outcome)) or not isinstance(arguments, dict):
        raise ValueError("kind, name and outcome of a pattern are texts, arguments are an object")
    kind, name = _named(kind, name) if not kind.startswith("re:") else (kind, name or "*")
    return Pattern(kind, name, tuple((str(key), item) for key, item in arguments.items()), outcome)


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
    if is_literal(pattern.kind) and pattern.kind not in KINDS:
        raise ValueError(_unknown("kind of step", pattern.kind, (*KINDS, *RISKS)))
    if pattern.kind in {"call_tool", "tool"} and is_literal(pattern.name) and pattern.name not in RISKS:
        raise ValueError(_unknown("tool", pattern.name, RISKS))
    return pattern


def is_literal(text: str) -> bool:
    """Whether a text of a pattern stands for itself alone."""
    return is_plain(text) and not text.startswith("re:")


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A name that nothing has would never match, and so say nothing."""
    listed = sorted(known)
    near = difflib.get_close_matches(name, listed, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(listed)}"
    return f"there is no {what} {name[:80]!r}: {advice}"


@lru_cache(maxsize=1024)
def regular(expression: str) -> Any:
    """A regular expression whose search takes time linear in the text, whatever it is."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be read"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"the regular expression {expression[:80]!r} is none of RE2's: {said}") from error


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
