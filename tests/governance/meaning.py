"""Evaluate a condition's tree node by node, in plain Python: what the closures are compared with."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

from vademecum.governance import conditions as ex
from vademecum.governance.conditions import FAILURES

OPERATORS: dict[str, Any] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
}  # fmt: skip


class Facts(NamedTuple):
    state: Mapping[str, Any]
    world: Mapping[str, Any] = {}
    params: Mapping[str, Any] = {}
    strict: bool = False

    def at(self, path: ex.Path) -> Any:
        roots = {"world": self.world, "params": self.params}
        value, parts = (self.state, path.parts) if len(path.parts) == 1 or path.parts[0] not in roots else (roots[path.parts[0]], path.parts[1:])  # fmt: skip
        for part in parts:
            if not isinstance(value, dict) or part not in value:
                if self.strict:
                    raise KeyError(part)
                return None
            value = value[part]
        return value


def holds(tree: ex.Tree, facts: Facts) -> bool:
    """Return whether a condition holds; one without a value does not."""
    try:
        return _truth(_value(tree, facts), facts)
    except FAILURES:
        return False


def _truth(value: Any, facts: Facts) -> bool:
    if facts.strict and not isinstance(value, bool | int | float):
        raise TypeError(value)
    return bool(value)


def _value(tree: ex.Tree, facts: Facts) -> Any:
    match tree:
        case ex.Constant(value=value):
            return value
        case ex.Path():
            return facts.at(tree)
        case ex.Has(path=path):
            try:
                return facts._replace(strict=True).at(path) is not None or facts.strict
            except KeyError:
                return False
        case ex.Items(values=values):
            return [_value(each, facts) for each in values]
        case ex.Not(value=value):
            return not _truth(_value(value, facts), facts)
        case ex.Join(by="and", left=left, right=right):
            return _truth(_value(left, facts), facts) and _truth(_value(right, facts), facts)
        case ex.Join(left=left, right=right):
            return _truth(_value(left, facts), facts) or _truth(_value(right, facts), facts)
        case ex.Compare(by="in" | "not in" as by, left=left, right=right):
            item, items = _value(left, facts), _value(right, facts)
            found = item in items and item == item
            return found if by == "in" else not found
        case ex.Compare(by=by, left=left, right=right):
            return OPERATORS[by](_value(left, facts), _value(right, facts))
        case ex.Compute(by=by, left=left, right=right):
            numbers = [_value(side, facts) for side in (left, right)]
            if not all(isinstance(number, int | float) for number in numbers):
                raise TypeError(numbers)
            return OPERATORS[by](*numbers)
        case _:
            assert_never(tree)
