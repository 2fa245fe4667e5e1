"""Turn a definition's words into typed rules: conditions as trees, cost and cooldown as numbers."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vademecum.errors import CharterRefused, ConditionWrong
from vademecum.governance.definitions import (
    EMPTY,
    EVERYBODY,
    MISSING,
    Parameter,
    Reason,
    SkillDefinition,
    plain,
    shown,
    texts,
)
from vademecum.governance.rules import grammar as g
from vademecum.governance.rules.conditions import FAILURES, number_of
from vademecum.nearest import nearest

DEFAULT_PURSE = "budget"
MAX_CONDITIONS = 48  # each has one of the 64 bits of a result, and the other checks have sixteen
MAX_STEPS = 2**31
CONSTRAINTS = ("cost", "pays_with", "cooldown")
# What YAML 1.1 takes for true or false; here it would be the name of a field.
_YES_OR_NO = frozenset({"yes", "no", "on", "off", "y", "n"})
_LIKE = 0.8  # how similar a key is to a known one to be a misspelling of it

# Takes the key that a problem is about, the problem's code and a sentence.
Note = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Condition:
    """One condition or cost: its text and its tree."""

    text: str
    tree: g.Tree

    @cached_property
    def paths(self) -> tuple[g.Path, ...]:
        """Return the paths that it reads."""
        return tuple(g.paths_of(self.tree))


@dataclass(frozen=True, slots=True)
class Allowed:
    """The agent types that something is for: those named, or all except those named."""

    types: frozenset[str] = frozenset()
    all_except: bool = False

    def __contains__(self, agent_type: str) -> bool:
        """Return whether a type is allowed."""
        return (agent_type in self.types) is not self.all_except

    def __bool__(self) -> bool:
        """Return whether any type can be allowed."""
        return self.all_except or bool(self.types)

    def __and__(self, other: Allowed) -> Allowed:
        """Return the types that both allow."""
        if self.all_except and other.all_except:
            return Allowed(self.types | other.types, all_except=True)
        few, many = (other, self) if self.all_except else (self, other)
        return Allowed(frozenset(name for name in few.types if name in many))

    def to_json(self) -> list[str]:
        """Return the types as reasons list them."""
        return [f"all but {name}" if self.all_except else name for name in sorted(self.types)]


ALL = Allowed(all_except=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that is checked before a skill is executed; ``roles`` are the types that may propose it."""

    skill_id: str
    roles: Allowed = ALL
    types: Allowed = ALL
    parameters: Mapping[str, Parameter] | None = None
    conditions: tuple[Condition, ...] = ()
    cost: Condition | None = None
    purse: g.Path = g.Path((DEFAULT_PURSE,))
    cooldown: int = 0


def rules_of(definition: SkillDefinition, *, roles: Allowed = ALL) -> Rules:
    """Return the rules of a definition, or raise ``CharterRefused`` with everything that is wrong."""
    wrong: list[str] = []

    def note(_key: str, _code: str, text: str) -> None:
        wrong.append(text)

    conditions = conditions_of(definition, note)
    cost, purse, cooldown = constraints_of(definition.institutional_constraints, note)
    for key in definition.institutional_constraints:
        if near := misspelled(key, CONSTRAINTS):
            wrong.append(f"There is no constraint {key!r}: did you mean {near!r}?")
    if wrong:
        raise CharterRefused(f"The definition of {definition.skill_id!r} is wrong: {' '.join(wrong)}")
    types, schema = eligible(definition), definition.output_schema
    return Rules(definition.skill_id, roles, types, schema, tuple(conditions), cost, purse, cooldown)


def eligible(definition: SkillDefinition) -> Allowed:
    """Return the types that a skill is for."""
    types = frozenset(texts("eligible_agent_types", definition.eligible_agent_types))
    return ALL if EVERYBODY in types else Allowed(types)


def misspelled(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that an unknown one is a misspelling of, if it is one.

    >>> misspelled("costs", CONSTRAINTS), misspelled("season", CONSTRAINTS), misspelled("cost", CONSTRAINTS)
    ('cost', None, None)
    """
    near = nearest(key, known)
    if near is None or near == key or difflib.SequenceMatcher(None, key, near).ratio() < _LIKE:
        return None
    return near


def conditions_of(definition: SkillDefinition, note: Note) -> list[Condition]:
    """Return the preconditions as trees."""
    found = []
    written = texts("preconditions", definition.preconditions)
    for number, text in enumerate(written):
        try:
            found.append(Condition(text, g.parse(text)))
        except ConditionWrong as error:
            note(f"preconditions[{number}]", error.code, str(error))
    if len(written) > MAX_CONDITIONS:
        note(
            "preconditions",
            "value",
            f"There are more than {MAX_CONDITIONS} preconditions: join some with and.",
        )
    return found


def constraints_of(written: Mapping[str, Any], note: Note) -> tuple[Condition | None, g.Path, int]:
    """Return the cost, the field that it is paid with, and the cooldown."""
    cost = _cost(written.get("cost", 0), note)
    return cost, _purse(written.get("pays_with", DEFAULT_PURSE), note), _cooldown(written, note)


def _cost(written: Any, note: Note) -> Condition | None:
    number = plain(written)
    if isinstance(written, str):
        try:
            tree = g.parse(written)
        except ConditionWrong as error:
            note("cost", error.code, str(error))
            return None
        if isinstance(tree, g.Path | g.Compute) and g.paths_of(tree) and written.lower() not in _YES_OR_NO:
            return Condition(written, tree)
        number = _constant(tree)
    if type(number) not in {int, float} or not 0 <= number <= 2**1000:
        note(
            "cost", "value", f"The cost is {shown(written)}: write a number of at least 0, or an expression."
        )
        return None
    return Condition(f"{number:g}", g.Constant(number)) if number else None


def _constant(tree: g.Tree) -> Any:
    """Return the value of an expression without fields, or ``None``."""
    try:
        return None if g.paths_of(tree) else number_of(tree)(EMPTY, EMPTY, EMPTY)
    except FAILURES:
        return None


def _purse(written: Any, note: Note) -> g.Path:
    try:
        tree = g.parse(written if isinstance(written, str) else "")
    except ConditionWrong:
        tree = g.Constant(value=False)
    if isinstance(tree, g.Path) and (
        len(tree.parts) == 1 or (len(tree.parts), tree.parts[0]) == (2, "world")
    ):
        return tree
    note("pays_with", "value", f"pays_with is {shown(written)}: write a field, or world. and a field.")
    return g.Path((DEFAULT_PURSE,))


def _cooldown(written: Mapping[str, Any], note: Note) -> int:
    number = plain(written.get("cooldown", 0))
    if type(number) is int and 0 <= number < MAX_STEPS:
        return number
    note("cooldown", "value", f"cooldown is {shown(number)}: write a whole number of steps, at least 0.")
    return 0


_TYPES: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "string": (str,),
    "boolean": (bool,),
    "list": (list, tuple),
}


def fit(schema: Mapping[str, Parameter], given: Mapping[str, Any]) -> bool:
    """Return whether parameters are what a schema allows."""
    return next(wrong_parameters(schema, given), None) is None


def wrong_parameters(schema: Mapping[str, Parameter], given: Any) -> Iterator[Reason]:
    """Yield a reason for every parameter that is not allowed.

    >>> schema = {"amount": Parameter("number", min=0, required=True)}
    >>> [reason.message for reason in wrong_parameters(schema, {"amount": -1})]
    ["Parameter 'amount' must be at least 0 (it is -1)"]
    """
    if not isinstance(given, Mapping):
        text = f"Parameters must be a mapping (it is {shown(given)})"
        yield Reason("parameter", "parameters", given, "a mapping", text)
        return
    known = ", ".join(schema) or "none"
    for name in given:
        if name not in schema:
            text = f"Parameter {name!r} is unknown (there are: {known})"
            yield Reason("parameter", name, given[name], known, text)
    for name, parameter in schema.items():
        value = given.get(name, MISSING)
        if value is MISSING:
            if parameter.required:
                yield Reason("parameter", name, MISSING, parameter.type, f"Parameter {name!r} is missing")
        elif (required := objection(parameter, value)) is not None:
            text = f"Parameter {name!r} must be {required} (it is {shown(value)})"
            yield Reason("parameter", name, value, required, text)


def objection(parameter: Parameter, value: Any) -> str | None:
    """Return what a value must be and is not, or ``None`` if it is allowed."""
    if not isinstance(value, _TYPES[parameter.type]) or (
        isinstance(value, bool) and parameter.type != "boolean"
    ):
        return f"a {parameter.type}" if parameter.type != "integer" else "an integer"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if parameter.enum and value not in parameter.enum:
        return "one of " + ", ".join(map(repr, parameter.enum))
    size: Any = len(value) if isinstance(value, str | list | tuple) else value
    unit = " characters long" if isinstance(value, str) else " items long" if isinstance(value, list) else ""
    if parameter.min is not None and size < parameter.min:
        return f"at least {parameter.min:g}{unit}"
    if parameter.max is not None and size > parameter.max:
        return f"at most {parameter.max:g}{unit}"
    return None
