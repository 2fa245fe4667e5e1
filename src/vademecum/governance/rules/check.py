"""Check all rules of one skill at once, and put into words what does not hold.

A check returns one bit for each clause that does not hold, with what it observed. The words for the reasons
are found when a caller reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from vademecum.governance.definitions import (
    EMPTY,
    MISSING,
    VALID,
    MayRead,
    Reason,
    ValidationResult,
    refusal,
    shown,
)
from vademecum.governance.ledger import NEVER
from vademecum.governance.rules import grammar as g
from vademecum.governance.rules.conditions import (
    FAILURES,
    Function,
    NotThere,
    number_of,
    reads_parameters,
    rooted,
    test_of,
    value_of,
)
from vademecum.governance.rules.typed import Condition, Rules, fit, wrong_parameters
from vademecum.governance.state import FLAT, copied

UNKNOWN, ROLE, TYPE, PARAMETERS, COST, COOLDOWN, CHANGE, ENGINE = 1, 2, 4, 8, 16, 32, 2048, 4096
FIRST_CONDITION = 16
HIDDEN = "not readable in this role"

State = Mapping[str, Any]
# Takes the agent's type and state, the shared state, the parameters, the agent's last steps, the step.
CheckFunction = Callable[[str, State, State, State, Mapping[str, int], int], ValidationResult]


class Seen(NamedTuple):
    """The observations of a check."""

    agent_type: str
    params: Any
    step: int
    last: int | None
    values: tuple[Any, ...]


class SkillCheck:
    """The compiled rules of one skill.

    >>> from vademecum.governance.definitions import SkillDefinition
    >>> from vademecum.governance.rules.typed import rules_of
    >>> check = SkillCheck(rules_of(SkillDefinition("move", preconditions=["age < 70"])))
    >>> check.check("resident", {"age": 71}, {}, {}, {}, 0).message
    "Precondition failed: 'age < 70' (age is 71)"
    """

    def __init__(self, rules: Rules, *, strict: bool = False, mapping: str = "") -> None:
        self.rules = rules
        self.strict = strict
        self.mapping = mapping
        costs = [] if rules.cost is None else [rules.cost.tree, rules.purse]
        trees = [*(condition.tree for condition in rules.conditions), *costs]
        paths = dict.fromkeys(path for tree in trees for path in g.paths_of(tree))
        self.reads = tuple(path for path in paths if rooted(path)[0] != 2)
        # The bits of the clauses that another intent with the same skill could satisfy.
        self.correctable = PARAMETERS | sum(bit for bit, tree in self._bits() if reads_parameters(tree))
        self.cost: Function = (lambda *_: 0) if rules.cost is None else number_of(rules.cost.tree)
        self._names = tuple(map(str, self.reads))
        self._look = _looking(self.reads)
        self._value_at = {path: value_of(path, strict=True) for path in paths}
        self._conditions = [test_of(condition.tree, strict=strict) for condition in rules.conditions]
        self.check: CheckFunction = self._compiled()

    def _bits(self) -> list[tuple[int, g.Tree]]:
        found = [
            (1 << (FIRST_CONDITION + number), each.tree) for number, each in enumerate(self.rules.conditions)
        ]
        return found if self.rules.cost is None else [*found, (COST, self.rules.cost.tree)]

    def look(self, state: State, world: State) -> dict[str, Any]:
        """Return the values that the clauses read, by path, without those that do not exist."""
        values = self._look(state, world)
        if MISSING not in values:
            return dict(zip(self._names, values, strict=True))
        return {name: v for name, v in zip(self._names, values, strict=True) if v is not MISSING}

    def _compiled(self) -> CheckFunction:
        rules, look, explain = self.rules, self._look, self.reasons
        tests = self._tests()
        roles, not_roles = rules.roles.types, rules.roles.all_except
        types, not_types = rules.types.types, rules.types.all_except
        schema, skill_id, cooldown = rules.parameters, rules.skill_id, rules.cooldown
        required = any(parameter.required for parameter in (schema or {}).values())

        def check(  # noqa: PLR0913, PLR0917 - see CheckFunction
            agent_type: str, s: State, w: State, p: State, last: Mapping[str, int], step: int
        ) -> ValidationResult:
            bits = 0
            if (agent_type in roles) is not_roles:
                bits = ROLE
            if (agent_type in types) is not_types:
                bits |= TYPE
            if (p or required) and schema is not None and not fit(schema, p):
                bits |= PARAMETERS
            for bit, test in tests:
                try:
                    if not test(s, w, p):
                        bits |= bit
                except FAILURES:
                    bits |= bit
            if cooldown and step - last.get(skill_id, NEVER) < cooldown:
                bits |= COOLDOWN
            if not bits:
                return VALID
            observed = (agent_type, p and copied(p), step, last.get(skill_id), look(s, w))
            return ValidationResult(bits, explain, observed)

        return check

    def _tests(self) -> tuple[tuple[int, Function], ...]:
        conditions = [(1 << (FIRST_CONDITION + number), test) for number, test in enumerate(self._conditions)]
        cost = self.rules.cost
        if cost is None:
            return tuple(conditions)
        purse: g.Tree = self.rules.purse
        if isinstance(cost.tree, g.Constant):
            affordable = test_of(g.Compare(">=", purse, cost.tree), strict=True)
        else:
            price, left = self.cost, value_of(purse, strict=True)
            affordable = lambda s, w, p: 0 <= price(s, w, p) <= left(s, w, p)  # noqa: E731
        return (*conditions, (COST, affordable))

    def reasons(self, bits: int, observed: tuple[Any, ...], may: MayRead) -> tuple[Reason, ...]:
        """Return a reason for each bit, without the values that the reader may not see."""
        return tuple(self._reasons(bits, Seen(*observed), may))

    def _reasons(self, bits: int, seen: Seen, may: MayRead) -> Iterator[Reason]:
        rules, name, type_ = self.rules, self.rules.skill_id, seen.agent_type
        if bits & ROLE:
            text = f"Agent type {type_!r} may not propose skill {name!r} in its role"
            yield Reason("role", "roles", type_, rules.roles.to_json(), text)
        if bits & TYPE:
            text = f"Agent type {type_!r} not eligible for skill {name!r}"
            yield Reason("type", "eligible_agent_types", type_, rules.types.to_json(), text)
        if bits & PARAMETERS:
            yield from wrong_parameters(rules.parameters or {}, seen.params)
        facts = facts_of(self.reads, seen.values, seen.params)
        for number, condition in enumerate(rules.conditions):
            if bits & (1 << (FIRST_CONDITION + number)):
                yield self._failed(condition, self._conditions[number], facts, may)
        if bits & COST and rules.cost is not None:
            yield self._too_expensive(rules.cost, facts, may)
        if bits & COOLDOWN and seen.last is not None:
            ready = seen.last + rules.cooldown
            text = f"Cooldown of {rules.cooldown} not over: used at step {seen.last}, ready at {ready}"
            yield Reason("cooldown", "cooldown", seen.step, ready, text)

    def _failed(
        self, condition: Condition, test: Function, facts: tuple[State, State, State], may: MayRead
    ) -> Reason:
        """Return why a condition does not hold: a value, a missing field, a wrong type, or arithmetic."""
        found = {str(path): _value(self._value_at[path], facts) for path in condition.paths}
        words = {
            str(path): shown(found[str(path)]) if _may(path, may) else HIDDEN for path in condition.paths
        }
        bare = condition.tree.value if isinstance(condition.tree, g.Not) else condition.tree
        listed = ", ".join(f"{name} is {text}" for name, text in words.items()) or "it never holds"
        inside = f"field is {words[str(bare)]}" if isinstance(bare, g.Path) else listed
        code = "precondition"
        try:
            test(*facts)
        except ArithmeticError as error:
            code, inside = "arithmetic", f"{listed}: {error}"
        except FAILURES as error:
            absent = [name for name, value in found.items() if value is MISSING]
            if isinstance(error, NotThere):
                absent = [str(error.path)]
            if absent:
                code, found = "missing", {absent[0]: MISSING}
                inside = inside if isinstance(bare, g.Path) else f"{absent[0]} is missing"
            else:
                code, inside = "wrong-type", f"{inside}, which does not fit"
        observed = next(iter(found.values())) if len(found) == 1 else found
        message = f"Precondition failed: {condition.text!r} ({inside})"
        return Reason(code, condition.text, observed, condition.text, message)

    def _too_expensive(self, cost: Condition, facts: tuple[State, State, State], may: MayRead) -> Reason:
        purse = self.rules.purse
        try:
            price, left = self.cost(*facts), self._value_at[purse](*facts)
        except NotThere as error:
            text = f"Cost cannot be paid: {str(error.path)!r} is missing"
            return Reason("missing", "cost", MISSING, cost.text, text)
        except FAILURES as error:
            return Reason("cost", "cost", None, cost.text, f"Cost cannot be computed ({error})")
        known = f"Cost {shown(price)}" if all(_may(path, may) for path in cost.paths) else "The cost"
        there = shown(left) if may(str(purse)) else HIDDEN
        if not price >= 0:
            return Reason("cost", "cost", price, cost.text, f"{known} is not a number of at least 0")
        if not isinstance(left, int | float):
            text = f"{known} cannot be paid: {str(purse)!r} is not a number ({there})"
            return Reason("wrong-type", "cost", left, price, text)
        return Reason("cost", "cost", left, price, f"{known} exceeds {str(purse)!r} ({there})")


def _looking(reads: tuple[g.Path, ...]) -> Callable[[State, State], tuple[Any, ...]]:
    """Return a function that copies the values at paths out of a state, ``MISSING`` where there is none."""
    found = [value_of(path, strict=True) for path in reads]
    own = [path.parts[0] for path in reads if len(path.parts) == 1]
    # The common case, several fields of the agent's own that all exist, in one call.
    fields = itemgetter(*own) if 1 < len(own) == len(reads) else None

    def look(s: State, w: State) -> tuple[Any, ...]:
        try:
            values: tuple[Any, ...] = fields(s) if fields else tuple(get(s, w, EMPTY) for get in found)
        except KeyError:
            values = tuple(_value(get, (s, w, EMPTY)) for get in found)
        return values if FLAT.issuperset(map(type, values)) else tuple(map(copied, values))

    return look


def _value(value_at: Function, facts: tuple[State, State, State]) -> Any:
    try:
        return value_at(*facts)
    except NotThere:
        return MISSING


def _may(path: g.Path, may: MayRead) -> bool:
    """Return whether a reader may see a path; parameters are what the agent said itself."""
    return rooted(path)[0] == 2 or may(str(path))


def facts_of(reads: tuple[g.Path, ...], values: tuple[Any, ...], params: Any) -> tuple[State, State, State]:
    """Return observed values as the state, the shared state and the parameters that conditions read."""
    state: dict[str, Any] = {}
    world: dict[str, Any] = {}
    for path, value in zip(reads, values, strict=True):
        if value is not MISSING:
            root, parts = rooted(path)
            _put(world if root else state, parts, value)
    return state, world, params or EMPTY


def _put(into: dict[str, Any], parts: tuple[str, ...], value: Any) -> None:
    for part in parts[:-1]:
        inner = into.get(part)
        if not isinstance(inner, dict):
            inner = into[part] = {}
        into = inner
    into.setdefault(parts[-1], value)


def not_found(skill_id: str) -> ValidationResult:
    """Return the result for a skill that does not exist."""
    text = f"Skill {shown(skill_id)} not found in registry"
    return refusal(Reason("not-found", "skills", MISSING, skill_id, text), bits=UNKNOWN)
