"""A definition's words → typed rules: conditions as trees, constraints as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vademecum.errors import CharterRefused, ConditionWrong
from vademecum.governance import expression as ex
from vademecum.governance.evaluate import FAILURES, NO_FACTS, evaluate
from vademecum.governance.model import DEFAULT_PURSE, EVERYBODY, Parameter, SkillDefinition, plain

MAX_STEPS = 2**31
CONSTRAINTS = ("cost", "pays_with", "cooldown", "limits")
LIMITS = ("agent", "type", "population", "every")

# A problem: the key it is about, its code, what is wrong.
Note = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Condition:
    """One precondition: as it is written, its tree, and its place among the others."""

    text: str
    tree: ex.Tree
    number: int = 0

    @cached_property
    def paths(self) -> tuple[tuple[str, ex.Path], ...]:
        """What it reads, by name."""
        return tuple((str(path), path) for path in ex.paths_of(self.tree))


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a skill may be used in so many steps: by one agent, by one type, by all together."""

    agent: int | None = None
    type: int | None = None
    population: int | None = None
    every: int | None = None

    @property
    def span(self) -> str:
        """The window in words."""
        return "" if self.every is None else " in a step" if self.every == 1 else f" in {self.every} steps"

    def window(self, step: int) -> int | None:
        """The window that a step lies in; without ``every`` there is only one, without limits none."""
        if self.agent is None and self.type is None and self.population is None:
            return None
        return step // self.every if self.every else 0


@dataclass(frozen=True, slots=True)
class Constraints:
    """The institution's rules of a skill: what it costs, out of what, and how often it may be used."""

    cost: Condition | None = None
    purse: ex.Path = ex.Path((DEFAULT_PURSE,))
    cooldown: int = 0
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whose types something is for: those named, or all but those named."""

    types: frozenset[str] = frozenset()
    everybody_but: bool = False

    def __contains__(self, agent_type: str) -> bool:
        """Whether a type is among them."""
        return (agent_type in self.types) is not self.everybody_but

    def __bool__(self) -> bool:
        """Whether there is anybody; of those who are named by nobody there always is one."""
        return self.everybody_but or bool(self.types)

    def __and__(self, other: Allowed) -> Allowed:
        """Those who are among both."""
        if self.everybody_but and other.everybody_but:
            return Allowed(self.types | other.types, everybody_but=True)
        few, many = (other, self) if self.everybody_but else (self, other)
        return Allowed(frozenset(name for name in few.types if name in many))


ALL = Allowed(everybody_but=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that is asked before a skill is executed. ``roles`` are the types that may propose it."""

    skill_id: str
    roles: Allowed = ALL
    types: Allowed = ALL
    parameters: Mapping[str, Parameter] | None = None
    conditions: tuple[Condition, ...] = ()
    constraints: Constraints = field(default_factory=Constraints)
    conflicts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def rules_of(definition: SkillDefinition, *, roles: Allowed = ALL, conflicts: tuple[str, ...] = ()) -> Rules:
    """The rules of a definition, or ``CharterRefused`` with everything that is wrong with it."""
    wrong: list[str] = []

    def note(_key: str, _code: str, text: str) -> None:
        wrong.append(text)

    rules = Rules(
        definition.skill_id,
        roles,
        eligible(definition),
        definition.output_schema,
        tuple(conditions_of(definition, note)),
        constraints_of(definition.institutional_constraints, note),
        tuple(dict.fromkeys([*definition.conflicts_with, *conflicts])),
        tuple(definition.depends_on),
    )
    if wrong:
        raise CharterRefused(f"The definition of {definition.skill_id!r} is wrong: {' '.join(wrong)}")
    return rules


def eligible(definition: SkillDefinition) -> Allowed:
    """The types that a skill is for."""
    types = frozenset(definition.eligible_agent_types)
    return ALL if EVERYBODY in types else Allowed(types)


def conditions_of(definition: SkillDefinition, note: Note) -> list[Condition]:
    """The preconditions as trees."""
    found = []
    for number, text in enumerate(definition.preconditions):
        try:
            found.append(Condition(text, ex.parse(text), number))
        except ConditionWrong as error:
            note(f"preconditions[{number}]", error.code, str(error))
    return found


def constraints_of(written: Mapping[str, Any], note: Note) -> Constraints:
    """The constraints as numbers; a cost may be an expression."""
    for key in written:
        if key not in CONSTRAINTS:
            note(key, "unknown-key", f"There is no constraint {key!r}: there are {', '.join(CONSTRAINTS)}.")
    purse = _purse(written.get("pays_with", DEFAULT_PURSE), note)
    cooldown = _count("cooldown", written, note)
    return Constraints(_cost(written.get("cost", 0), note), purse, cooldown or 0, _limits(written, note))


def _cost(written: Any, note: Note) -> Condition | None:
    number = plain(written)
    if isinstance(written, str):
        try:
            tree = ex.parse(written)
        except ConditionWrong as error:
            note("cost", error.code, str(error))
            return None
        if isinstance(tree, ex.Path | ex.Compute) and ex.paths_of(tree):
            return Condition(written, tree)
        number = _constant(tree)
    if type(number) not in {int, float} or not 0 <= number < float("inf"):
        note("cost", "value", f"The cost is {written!r}: write a number that is not negative.")
        return None
    return Condition(f"{number:g}", ex.Constant(number)) if number else None


def _constant(tree: ex.Tree) -> Any:
    """What an expression without fields comes to; ``None`` where that is nothing."""
    try:
        return None if ex.paths_of(tree) else evaluate(tree, NO_FACTS)
    except FAILURES:
        return None


def _purse(written: Any, note: Note) -> ex.Path:
    try:
        tree = ex.parse(written if isinstance(written, str) else "")
    except ConditionWrong:
        tree = ex.Constant(value=False)
    if isinstance(tree, ex.Path) and (
        len(tree.parts) == 1 or (len(tree.parts), tree.parts[0]) == (2, "world")
    ):
        return tree
    note("pays_with", "value", f"pays_with is {written!r}: write a field, or world. and a field.")
    return ex.Path((DEFAULT_PURSE,))


def _limits(written: Mapping[str, Any], note: Note) -> Limits:
    limits = written.get("limits", {})
    if not isinstance(limits, Mapping):
        note("limits", "value", "limits is not a mapping: write agent, type, population and every below it.")
        return Limits()
    for key in limits:
        if key not in LIMITS:
            note("limits", "unknown-key", f"There is no limit {key!r}: there are {', '.join(LIMITS)}.")
    return Limits(**{key: _count(key, limits, note, least=1) for key in LIMITS})


def _count(key: str, written: Mapping[str, Any], note: Note, *, least: int = 0) -> int | None:
    if key not in written:
        return None
    number = plain(written[key])
    if type(number) is not int or not least <= number < MAX_STEPS:
        note(key, "value", f"{key} is {written[key]!r}: write a whole number of at least {least}.")
        return None
    return number
