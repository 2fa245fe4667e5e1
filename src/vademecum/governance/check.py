"""Compile a definition, check all rules of one skill at once, and explain which do not hold.

A check returns one bit for each clause that does not hold, with the observed values. The texts of the reasons
are made when a caller reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vademecum.errors import ConditionWrong
from vademecum.governance import conditions as c
from vademecum.governance.conditions import Facts
from vademecum.governance.definitions import (
    EMPTY,
    EVERYBODY,
    HIDDEN,
    MISSING,
    VALID,
    Clause,
    MayRead,
    Parameter,
    Reason,
    SkillDefinition,
    ValidationResult,
    refusal,
    shown,
)
from vademecum.governance.state import FLAT, Charge, copied

DEFAULT_PURSE = "budget"
MAX_CONDITIONS = 48  # each has one of the 64 bits of a result, and the other checks have sixteen
MAX_STEPS = 2**31
CONSTRAINTS = ("cost", "pays_with", "cooldown")
# Words that YAML 1.1 reads as true or false; here they would be names of fields.
_YES_OR_NO = frozenset({"yes", "no", "on", "off", "y", "n"})
_PURSE = re.compile(r"(world\.)?[^\W\d]\w*")
LIKE = 0.8  # how similar a key is to a known one to be a misspelling of it

# A wrong key of a definition, a code and a sentence.
Wrong = tuple[str, str, str]


class Condition(NamedTuple):
    """One condition or cost: its text, its tree, and the paths that it reads."""

    text: str
    tree: c.Tree
    paths: list[c.Path]


def _conditions(written: Sequence[str], problems: list[Wrong]) -> Iterator[Condition]:
    for number, text in enumerate(written):
        try:
            tree = c.parse(text)
        except ConditionWrong as error:
            problems.append((f"preconditions[{number}]", error.code, str(error)))
            tree = c.Constant(value=False)
        yield Condition(text, tree, c.paths_of(tree))
    if len(written) > MAX_CONDITIONS:
        text = f"There are more than {MAX_CONDITIONS} preconditions: join some with and."
        problems.append(("preconditions", "value", text))


def _cost(written: Any, problems: list[Wrong]) -> Condition | None:
    key, number = "institutional_constraints.cost", written
    if isinstance(written, str):
        try:
            tree = c.parse(written)
        except ConditionWrong as error:
            problems.append((key, error.code, f"The cost cannot be read: {error}"))
            return None
        paths = c.paths_of(tree)
        if isinstance(tree, c.Path | c.Compute) and paths and written.lower() not in _YES_OR_NO:
            return Condition(written, tree, paths)
        number = tree.value if isinstance(tree, c.Constant) else None
    if type(number) not in {int, float} or not 0 <= number <= 2**1000:
        text = f"The cost is {shown(written)}: write a number of at least 0, or an expression."
        problems.append((key, "value", text))
        return None
    return Condition(f"{number:g}", c.Constant(number), []) if number else None


def _purse(written: Any, problems: list[Wrong]) -> c.Path:
    if isinstance(written, str) and _PURSE.fullmatch(written):
        return c.Path(tuple(written.split(".")))
    text = f"pays_with is {shown(written)}: write a field, or world. and a field."
    problems.append(("institutional_constraints.pays_with", "value", text))
    return c.Path((DEFAULT_PURSE,))


def _cooldown(written: Any, problems: list[Wrong]) -> int:
    if type(written) is int and 0 <= written < MAX_STEPS:
        return written
    text = f"cooldown is {shown(written)}: write a whole number of steps, at least 0."
    problems.append(("institutional_constraints.cooldown", "value", text))
    return 0


def _affordable(cost: c.Tree, purse: c.Path) -> c.Tree:
    """Return the condition that a purse can pay a cost that is at least zero."""
    if isinstance(cost, c.Constant) and isinstance(cost.value, int):
        return c.Compare(">=", purse, cost)  # an integer can be subtracted from any value that is not less
    nothing, left = c.Constant(0), c.Compute("-", purse, cost)
    return c.Join("and", c.Compare(">=", cost, nothing), c.Compare(">=", left, nothing))


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
        elif (required := parameter.objection(value)) is not None:
            text = f"Parameter {name!r} must be {required} (it is {shown(value)})"
            yield Reason("parameter", name, value, required, text)


class SkillCheck:
    """Check a skill by its definition, whose conditions and constraints are compiled once.

    ``problems`` contains the problems of the definition. A check with problems must not be used.

    >>> check = SkillCheck(SkillDefinition("move", preconditions=["age < 70"]))
    >>> check.check("resident", ({"age": 71}, {}, {}), {}, 0).message
    "Precondition failed: 'age < 70' (age is 71)"
    """

    def __init__(self, skill: SkillDefinition, *, strict: bool = False) -> None:
        self.problems: list[Wrong] = []
        written = skill.institutional_constraints
        self.skill = skill
        self._types = frozenset(skill.eligible_agent_types)
        self.conditions = tuple(_conditions(skill.preconditions, self.problems))
        self.cost = _cost(written.get("cost", 0), self.problems)
        self.purse = _purse(written.get("pays_with", DEFAULT_PURSE), self.problems)
        self.cooldown = _cooldown(written.get("cooldown", 0), self.problems)
        # The conditions and the cost, each with its bit and whether it is strict.
        self.clauses = [
            (Clause.FIRST_CONDITION << n, each.tree, strict) for n, each in enumerate(self.conditions)
        ]
        if self.cost is not None:
            self.clauses.append((Clause.COST, _affordable(self.cost.tree, self.purse), True))
            self._price = c.number_of(self.cost.tree)
        self._tests = [(bit, c.test_of(tree, strict=strict)) for bit, tree, strict in self.clauses]
        # The bits of the clauses that another intent with the same skill could satisfy.
        self.correctable = Clause.PARAMETERS
        self.reads: dict[str, c.Function] = {}
        for bit, tree, _ in self.clauses:
            for path in c.paths_of(tree):
                if path.is_parameter:
                    self.correctable |= bit
                else:
                    self.reads[str(path)] = c.read(path, MISSING)

    def is_for(self, agent_type: str) -> bool:
        """Return whether the skill is for an agent type."""
        return agent_type in self._types or EVERYBODY in self._types

    def charge(self, facts: Facts) -> Charge | None:
        """Return the charge to an agent that can pay, or ``None`` if the skill is free."""
        if self.cost is None:
            return None
        *shared, key = self.purse.parts
        purse: Any = facts[len(shared)]
        before, cost = purse[key], self._price(facts)
        return Charge(purse, key, str(self.purse), before, before - cost, cost) if cost else None

    def look(self, facts: Facts) -> dict[str, Any]:
        """Return a copy of the values that the clauses read, by path, without those that do not exist."""
        found = {name: value_at(facts) for name, value_at in self.reads.items()}
        if FLAT.issuperset(map(type, found.values())):
            return found
        return {name: copied(value) for name, value in found.items() if value is not MISSING}

    def check(self, agent_type: str, facts: Facts, last: Mapping[str, int], step: int) -> ValidationResult:
        """Check an intent; ``last`` contains the step at which the agent last did each skill."""
        said, skill, types = facts[2] or {}, self.skill, self._types
        # The same as `is_for`, whose call would cost a twentieth of the whole check.
        bits = 0 if agent_type in types or EVERYBODY in types else Clause.TYPE
        if (said or skill.output_schema) and any(wrong_parameters(skill.output_schema, said)):
            bits |= Clause.PARAMETERS
        for bit, test in self._tests:
            try:
                if not test(facts):
                    bits |= bit
            except c.FAILURES:
                bits |= bit
        used = last.get(skill.skill_id)
        if self.cooldown and used is not None and step - used < self.cooldown:
            bits |= Clause.COOLDOWN
        if not bits:
            return VALID
        observed = agent_type, said and copied(said), step, used, self.look(facts)
        return ValidationResult(bits, self._reasons, observed)

    def _reasons(self, bits: int, observed: tuple[Any, ...], may: MayRead) -> Iterator[Reason]:
        agent_type, params, step, used, seen = observed
        if bits & Clause.TYPE:
            text = f"Agent type {agent_type!r} not eligible for skill {self.skill.skill_id!r}"
            types = sorted({*self.skill.eligible_agent_types})
            yield Reason("type", "eligible_agent_types", agent_type, types, text)
        if bits & Clause.PARAMETERS:
            yield from wrong_parameters(self.skill.output_schema, params)
        facts = facts_of(seen, params)
        for condition, (bit, test) in zip(self.conditions, self._tests, strict=False):
            if bits & bit:
                yield _failed(condition, test, facts, may)
        if bits & Clause.COST and self.cost is not None:
            yield self._too_expensive(self.cost, facts, may)
        if bits & Clause.COOLDOWN:
            ready = used + self.cooldown
            text = f"Cooldown of {self.cooldown} not over: used at step {used}, ready at {ready}"
            yield Reason("cooldown", "cooldown", step, ready, text)

    def _too_expensive(self, cost: Condition, facts: Facts, may: MayRead) -> Reason:
        purse = self.purse
        try:
            price, left = self._price(facts), c.value_of(purse, strict=True)(facts)
        except c.NotThere as error:
            text = f"Cost cannot be paid: {error.args[0]!r} is missing"
            return Reason("missing", "cost", MISSING, cost.text, text)
        except c.FAILURES as error:
            return Reason("cost", "cost", None, cost.text, f"Cost cannot be computed ({error})")
        known = f"Cost {shown(price)}" if all(_may(path, may) for path in cost.paths) else "The cost"
        there = shown(left) if may(str(purse)) else HIDDEN
        if not price >= 0:
            return Reason("cost", "cost", price, cost.text, f"{known} is not a number of at least 0")
        if not isinstance(left, int | float):
            text = f"{known} cannot be paid: {str(purse)!r} is not a number ({there})"
            return Reason("wrong-type", "cost", left, price, text)
        return Reason("cost", "cost", left, price, f"{known} exceeds {str(purse)!r} ({there})")


def _failed(condition: Condition, test: c.Function, facts: Facts, may: MayRead) -> Reason:
    """Return why a condition does not hold: a value, a missing field, a wrong type, or arithmetic."""
    paths = condition.paths
    found = {str(path): c.read(path, MISSING)(facts) for path in paths}
    words = {str(path): shown(found[str(path)]) if _may(path, may) else HIDDEN for path in paths}
    bare = condition.tree.value if isinstance(condition.tree, c.Not) else condition.tree
    listed = ", ".join(f"{name} is {text}" for name, text in words.items()) or "it never holds"
    code, inside = "precondition", f"field is {words[str(bare)]}" if isinstance(bare, c.Path) else listed
    try:
        test(facts)
    except ArithmeticError as error:
        code, inside = "arithmetic", f"{listed}: {error}"
    except c.FAILURES as error:
        absent = [name for name, value in found.items() if value is MISSING]
        if isinstance(error, c.NotThere):
            absent = [error.args[0]]
        if absent:
            code, found = "missing", {absent[0]: MISSING}
            inside = inside if isinstance(bare, c.Path) else f"{absent[0]} is missing"
        else:
            code, inside = "wrong-type", f"{inside}, which does not fit"
    observed = next(iter(found.values())) if len(found) == 1 else found
    message = f"Precondition failed: {condition.text!r} ({inside})"
    return Reason(code, condition.text, observed, condition.text, message)


def _may(path: c.Path, may: MayRead) -> bool:
    """Return whether a reader may see a path; parameters come from the agent itself."""
    return path.is_parameter or may(str(path))


def facts_of(seen: Mapping[str, Any], params: Any) -> Facts:
    """Return observed values, by path, as the state, the shared state and the parameters."""
    state: dict[str, Any] = {}
    world: dict[str, Any] = {}
    for name, value in seen.items():
        root, parts = c.rooted(name.split("."))
        into = world if root else state
        for part in parts[:-1]:
            inner = into.get(part)
            if not isinstance(inner, dict):
                inner = into[part] = {}
            into = inner
        into.setdefault(parts[-1], value)
    return state, world, params or EMPTY


def not_found(skill_id: str) -> ValidationResult:
    """Return the result for an unknown skill."""
    text = f"Skill {shown(skill_id)} not found in registry"
    return refusal(Reason("not-found", "skills", MISSING, skill_id, text), bits=Clause.UNKNOWN)
