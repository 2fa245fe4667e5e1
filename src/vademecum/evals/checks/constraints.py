"""Constraints on the steps of a run, and the patterns that they are made of, parsed from a case."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import re2

from vademecum.evals.checks.steps import ACTIONS, KINDS
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
        """Return it as a person writes it."""
        words = self.kind if self.name == "*" else f"{self.kind}:{self.name}"
        given = ", ".join(f"{key}={_shown(value)}" for key, value in self.arguments)
        return f"{words}{f'({given})' if given else ''}{f' → {self.outcome}' if self.outcome else ''}"


def parse_pattern(value: Any) -> Pattern:
    """Return a pattern as it is written: ``"run_script"``, ``"load_skill:file-*"``, or an object.

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
    """Return the test of a pattern: literal, with ``*`` and ``?``, or a regular expression after ``re:``.

    Regular expressions are searched for, in time linear in the text.
    """
    if pattern.startswith("re:"):
        found = regular(pattern[3:])
        return lambda text: found.search(text) is not None
    if is_plain(pattern):
        return pattern.__eq__
    return lambda text: matches_exactly(pattern, text)


def arguments_test(wanted: tuple[tuple[str, Any], ...]) -> Callable[[Mapping[str, Any]], bool]:
    """Return the test of some arguments, named by dotted paths; those that are not named may be anything."""
    tests = [(tuple(key.split(".")), _value_test(value)) for key, value in wanted]

    def test(arguments: Mapping[str, Any]) -> bool:
        return all(
            found is not _ABSENT and each(found) for path, each in tests for found in [at(arguments, path)]
        )

    return test


_ABSENT = object()


def at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys and numbers, or a value that is equal to no other."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and _is_number(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _is_number(text: str) -> bool:
    """Return whether a step of a path is an index: ASCII digits only."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_INDEX_DIGITS


def is_absent(value: Any) -> bool:
    """Return whether ``at`` found nothing."""
    return value is _ABSENT


def same(found: Any, wanted: Any) -> bool:
    """Return whether two JSON values are the same; unlike in Python, true is not 1.

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
    """Return whether a pattern contains no wildcard."""
    return is_plain(text) and not text.startswith("re:")


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Refuse a name that nothing has: it would never match."""
    listed = sorted(known)
    near = difflib.get_close_matches(name, listed, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(listed)}"
    return f"there is no {what} {name[:80]!r}: {advice}"


@lru_cache(maxsize=1024)
def regular(expression: str) -> Any:
    """Return a regular expression whose search takes time linear in the text, whatever it is."""
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


MAX_PATTERNS = 100
MAX_COUNT = 1_000_000

Mode = Literal["in_order", "exact", "any_order"]
MODES: tuple[Mode, ...] = ("in_order", "exact", "any_order")


@dataclass(frozen=True, slots=True)
class Before:
    """Whenever ``later`` happens, ``first`` happened before; where it ``must`` happen, it does."""

    first: Pattern
    later: Pattern
    must: bool = False

    def __str__(self) -> str:
        """Return it as a report says it."""
        return f"{self.first} before {self.later}"


@dataclass(frozen=True, slots=True)
class After:
    """Whenever ``first`` happens, ``then`` follows, within so many actions or at all."""

    first: Pattern
    then: Pattern
    within: int | None = None

    def __str__(self) -> str:
        """Return it as a report says it."""
        within = "" if self.within is None else f" within {self.within} actions"
        return f"after {self.first} comes {self.then}{within}"


@dataclass(frozen=True, slots=True)
class Between:
    """From each ``start`` to the next ``end``, ``what`` happens, or never does."""

    start: Pattern
    end: Pattern
    what: Pattern
    wanted: bool

    def __str__(self) -> str:
        """Return it as a report says it."""
        return f"{'require' if self.wanted else 'never'} {self.what} between {self.start} and {self.end}"


@dataclass(frozen=True, slots=True)
class Sequence:
    """These happen: in this order, as the only actions of the run, or in any order."""

    steps: tuple[Pattern, ...]
    mode: Mode = "in_order"

    def __str__(self) -> str:
        """Return it as a report says it."""
        return f"sequence ({self.mode.replace('_', ' ')}) {', '.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class Count:
    """It happens so many times: ``require`` is at least once, ``never`` at most 0 times."""

    what: Pattern
    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        """Return it as a report says it."""
        if self.most is None:
            return f"require {self.what}" if self.least == 1 else f"at least {self.least} {self.what}"
        return f"at most {self.most} {self.what}" if self.most else f"never {self.what}"


Constraint = Before | After | Between | Sequence | Count


def parse_constraint(value: Any) -> Constraint:
    """Return a constraint as a case writes it; the words of the source designs are accepted as well.

    >>> print(parse_constraint({"must_occur": "load_skill", "before": "run_script"}))
    load_skill before run_script
    >>> print(parse_constraint({"at_most": 2, "of": "write_file"}))
    at most 2 call_tool:write_file
    """
    if not isinstance(value, dict):
        raise ValueError('a constraint is an object such as {"never": "write_file"}')  # noqa: TRY004 - pydantic
    keys = frozenset(value)
    for wanted, parse in _FORMS:
        if wanted == keys or (wanted < keys and keys - wanted <= _OPTIONAL.get(wanted, frozenset())):
            return parse(value)
    known = "; ".join(" + ".join(sorted(form)) for form, _ in _FORMS)
    raise ValueError(f"no constraint has the keys {', '.join(sorted(map(str, keys)))}: there are {known}")


def _once(value: Mapping[str, Any], *, key: str, most: int | None) -> Constraint:
    return Count(parse_pattern(value[key]), least=1 if most is None else 0, most=most)


def _before(value: Mapping[str, Any]) -> Constraint:
    first, later = _pair(value["before"], "before")
    return Before(first, later)


def _after(value: Mapping[str, Any]) -> Constraint:
    within = value.get("within")
    return After(
        parse_pattern(value["after"]),
        parse_pattern(value["then"]),
        None if within is None else _number(within, "within", least=1),
    )


def _between(value: Mapping[str, Any]) -> Constraint:
    start, end = _pair(value["between"], "between")
    wanted = "require" in value
    return Between(start, end, parse_pattern(value["require" if wanted else "never"]), wanted)


def _sequence(value: Mapping[str, Any]) -> Constraint:
    steps, mode = value["sequence"], value.get("mode", "in_order")
    if mode not in MODES:
        raise ValueError(f"the mode of a sequence is one of {', '.join(MODES)}, not {mode!r}")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_PATTERNS:
        raise ValueError(f"a sequence is a list of 1 to {MAX_PATTERNS} patterns")
    patterns = tuple(map(parse_pattern, steps))
    if mode == "exact" and any(pattern.outcome for pattern in patterns):
        raise ValueError("an exact sequence is about actions as they are attempted: leave out the outcome")
    other = next((p.kind for p in patterns if is_literal(p.kind) and p.kind not in ACTIONS), None)
    if mode == "exact" and other is not None:
        raise ValueError(f"an exact sequence is of actions ({', '.join(sorted(ACTIONS))}), not {other!r}")
    return Sequence(patterns, mode)


def _pair(value: Any, key: str) -> tuple[Pattern, Pattern]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{key!r} is a list of two patterns, the earlier one first")
    return parse_pattern(value[0]), parse_pattern(value[1])


def _number(value: Any, key: str, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
        raise ValueError(f"{key!r} is a whole number from {least} to {MAX_COUNT:,}, not {value!r}")
    return value


_FORMS: tuple[tuple[frozenset[str], Callable[[Mapping[str, Any]], Constraint]], ...] = (
    *((frozenset({key}), partial(_once, key=key, most=None)) for key in ("require", "must_occur")),
    *((frozenset({key}), partial(_once, key=key, most=0)) for key in ("never", "forbid")),
    (frozenset({"before"}), _before),
    (frozenset({"after", "then"}), _after),
    (frozenset({"between", "require"}), _between),
    (frozenset({"between", "never"}), _between),
    (frozenset({"sequence"}), _sequence),
    (
        frozenset({"at_most", "of"}),
        lambda v: Count(parse_pattern(v["of"]), most=_number(v["at_most"], "at_most")),
    ),
    (
        frozenset({"at_least", "of"}),
        lambda v: Count(parse_pattern(v["of"]), least=_number(v["at_least"], "at_least")),
    ),
    (
        frozenset({"must_occur", "before"}),
        lambda v: Before(parse_pattern(v["must_occur"]), parse_pattern(v["before"]), must=True),
    ),
)
_OPTIONAL = {
    frozenset({"after", "then"}): frozenset({"within"}),
    frozenset({"sequence"}): frozenset({"mode"}),
}
