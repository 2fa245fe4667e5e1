"""Each clause of a skill → the Python expression that is true where it holds, in the order of the gate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vademecum.governance import expression as ex
from vademecum.governance.clauses import (
    CONFLICT,
    COOLDOWN,
    COST,
    DEPENDENCY,
    FIRST_CONDITION,
    LIMIT_AGENT,
    LIMIT_ALL,
    LIMIT_TYPE,
    PARAMETERS,
    ROLE,
    TYPE,
)
from vademecum.governance.emit import Emitter
from vademecum.governance.rules import Allowed, Rules


@dataclass(frozen=True, slots=True)
class Test:
    """A bit, the Python expression that is true where its clause holds, and the tree that it reads."""

    bit: int
    text: str
    tree: ex.Tree | None = None
    is_cost: bool = False


def tests_of(rules: Rules, emit: Emitter, strict: Emitter) -> list[Test]:
    """Every clause that says anything, in the order of the gate."""
    found = [*_of_types(ROLE, "ROLES", rules.roles), *_of_types(TYPE, "TYPES", rules.types)]
    if rules.parameters is not None:
        found.append(Test(PARAMETERS, "fit(SCHEMA, p)" if rules.parameters else "(not p)"))
    found += [
        Test(1 << (FIRST_CONDITION + number), emit.test(condition.tree), condition.tree)
        for number, condition in enumerate(rules.conditions)
    ]
    return found + _cost(rules, strict) + _often(rules) + _others(rules)


def _of_types(bit: int, name: str, allowed: Allowed) -> list[Test]:
    if allowed.everybody_but and not allowed.types:
        return []
    return [Test(bit, f"(t {'not in' if allowed.everybody_but else 'in'} {name})")]


def _cost(rules: Rules, emit: Emitter) -> list[Test]:
    constraints = rules.constraints
    if constraints.cost is None:
        return []
    # A purse that is no number cannot be compared with a cost that is one, which is a denial.
    purse, cost = emit.value(constraints.purse), constraints.cost.tree
    if isinstance(cost, ex.Constant):
        return [Test(COST, f"({purse} >= {emit.number(cost)})", constraints.purse, is_cost=True)]
    both = ex.Compare("<=", cost, constraints.purse)
    return [Test(COST, f"(0 <= {emit.number(cost)} <= {purse})", both, is_cost=True)]


def _often(rules: Rules) -> list[Test]:
    found = []
    if rules.constraints.cooldown:
        last = f"h.last.get({rules.skill_id!r}, NEVER)"
        found.append(Test(COOLDOWN, f"(step - {last} >= {rules.constraints.cooldown})"))
    limits = rules.constraints.limits
    bits = zip((LIMIT_AGENT, LIMIT_TYPE, LIMIT_ALL), uses_of(rules), strict=True)
    for most, (bit, uses) in zip((limits.agent, limits.type, limits.population), bits, strict=True):
        if most is not None:
            found.append(Test(bit, f"({uses} < {most})"))
    return found


def uses_of(rules: Rules) -> list[str]:
    """How often the agent, its type and everybody used the skill in the present window."""
    every = rules.constraints.limits.every
    window = f"step // {every}" if every else "0"
    tables = ("h.used", "ledger.types.get(t, {})", "ledger.population")
    return [f"uses_in({table}, {rules.skill_id!r}, {window})" for table in tables]


def _others(rules: Rules) -> list[Test]:
    found = []
    if rules.conflicts:
        since = "(step if ledger.since is None else ledger.since)"
        together = " and ".join(f"h.last.get({other!r}, NEVER) < {since}" for other in rules.conflicts)
        found.append(Test(CONFLICT, f"({together})"))
    if rules.needs:
        done = " and ".join(f"{other!r} in h.last" for other in rules.needs)
        found.append(Test(DEPENDENCY, f"({done})"))
    return found


def is_plain(test: Test, *, compat: bool) -> bool:
    """Whether a clause reads all of its paths whatever their values are."""
    return test.tree is not None and not _branches(test.tree) and (test.is_cost or not compat)


def _branches(tree: ex.Tree) -> bool:
    match tree:
        case ex.Both() | ex.Either() | ex.Has():
            return True
        case ex.Not(value=value):
            return _branches(value)
        case ex.Compare() | ex.Compute():
            return _branches(tree.left) or _branches(tree.right)
        case ex.Items(values=values):
            return any(map(_branches, values))
        case ex.Constant() | ex.Path():
            return False


def numbers(tests: Iterable[Test], surely: set[ex.Path]) -> set[ex.Path]:
    """The paths of which a test that did not fail has shown that they are numbers, which cannot change."""
    found = {path for test in tests if test.tree is not None for path in _shown_numbers(test.tree)}
    return found & surely


def _shown_numbers(tree: ex.Tree) -> list[ex.Path]:
    match tree:
        case ex.Path():
            return [tree]
        case ex.Not(value=value):
            return _shown_numbers(value)
        case ex.Compare(by="<" | "<=" | ">" | ">=", left=left, right=right):
            one, other = (isinstance(side, ex.Compute) or _is_number(side) for side in (left, right))
            return [*_operands(left, other), *_operands(right, one)]
        case _:
            return []


def _operands(tree: ex.Tree, among_numbers: bool) -> list[ex.Path]:  # noqa: FBT001
    match tree:
        case ex.Path():
            return [tree] if among_numbers else []
        case ex.Compute(left=left, right=right):
            return [*_operands(left, True), *_operands(right, True)]  # noqa: FBT003
        case _:
            return []


def _is_number(tree: ex.Tree) -> bool:
    return isinstance(tree, ex.Constant) and not isinstance(tree.value, str)
