"""What must hold of the steps of a run: parsed from how it is written in a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vademecum.evals.patterns import Pattern, is_literal, parse_pattern
from vademecum.evals.steps import ACTIONS

MAX_PATTERNS = 100
MAX_COUNT = 1_000_000

Mode = Literal["in_order", "exact", "any_order"]
MODES: tuple[Mode, ...] = ("in_order", "exact", "any_order")


@dataclass(frozen=True, slots=True)
class Require:
    """It happens."""

    what: Pattern

    def __str__(self) -> str:
        """As a report says it."""
        return f"require {self.what}"


@dataclass(frozen=True, slots=True)
class Never:
    """It does not happen."""

    what: Pattern

    def __str__(self) -> str:
        """As a report says it."""
        return f"never {self.what}"


@dataclass(frozen=True, slots=True)
class Before:
    """Whenever ``later`` happens, ``first`` happened before; where it ``must`` happen, it does."""

    first: Pattern
    later: Pattern
    must: bool = False

    def __str__(self) -> str:
        """As a report says it."""
        return f"{self.first} before {self.later}"


@dataclass(frozen=True, slots=True)
class After:
    """Whenever ``first`` happens, ``then`` follows, within so many actions or at all."""

    first: Pattern
    then: Pattern
    within: int | None = None

    def __str__(self) -> str:
        """As a report says it."""
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
        """As a report says it."""
        return f"{'require' if self.wanted else 'never'} {self.what} between {self.start} and {self.end}"


@dataclass(frozen=True, slots=True)
class Sequence:
    """These happen: in this order, as the only actions of the run, or in any order."""

    steps: tuple[Pattern, ...]
    mode: Mode = "in_order"

    def __str__(self) -> str:
        """As a report says it."""
        return f"sequence ({self.mode.replace('_', ' ')}) {', '.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class Count:
    """It happens so many times, at most or at least."""

    what: Pattern
    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        """As a report says it."""
        return (
            f"at least {self.least} {self.what}" if self.most is None else f"at most {self.most} {self.what}"
        )


Constraint = Require | Never | Before | After | Between | Sequence | Count


def parse_constraint(value: Any) -> Constraint:
    """A constraint as a case writes it; the words of the source designs are accepted as well.

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
    (frozenset({"require"}), lambda v: Require(parse_pattern(v["require"]))),
    (frozenset({"never"}), lambda v: Never(parse_pattern(v["never"]))),
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
    (frozenset({"must_occur"}), lambda v: Require(parse_pattern(v["must_occur"]))),
    (frozenset({"forbid"}), lambda v: Never(parse_pattern(v["forbid"]))),
    (
        frozenset({"must_occur", "before"}),
        lambda v: Before(parse_pattern(v["must_occur"]), parse_pattern(v["before"]), must=True),
    ),
)
_OPTIONAL = {
    frozenset({"after", "then"}): frozenset({"within"}),
    frozenset({"sequence"}): frozenset({"mode"}),
}
