"""A condition's tree and a state → its value: the meaning of the language, one node at a time.

The compiled functions mean the same and are what decides; this is what they are checked against, and
what finds the words for a denial.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, assert_never

from msgspec import Struct

from vademecum.governance import expression as ex

EMPTY: Mapping[str, Any] = {}
NUMERIC = frozenset({int, float, bool})
# What a value that does not fit can raise; a condition that raises one of these does not hold.
FAILURES = (KeyError, TypeError, ValueError, ArithmeticError)

_COMPARE: dict[ex.Comparator, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: item in items and bool(item == item),  # noqa: PLR0124 - see `inside`
    "not in": lambda item, items: not inside(item, items),
}
_COMPUTE: dict[ex.Sign, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


class NotThere(KeyError):
    """A path leads to nothing."""

    def __init__(self, path: ex.Path) -> None:
        super().__init__(str(path))
        self.path = path


class Facts(Struct, frozen=True):
    """What conditions read: the agent's state, the state that all share, and what the intent says."""

    state: Mapping[str, Any]
    world: Mapping[str, Any] = EMPTY
    params: Mapping[str, Any] = EMPTY
    compat: bool = False

    def at(self, path: ex.Path) -> Any:
        """The value at a path; ``None`` for nothing where compatibility is wanted."""
        parts = path.parts
        value: Any = self.state
        if len(parts) > 1 and parts[0] in {"world", "params"}:
            value, parts = (self.world if parts[0] == "world" else self.params), parts[1:]
        for part in parts:
            try:
                value = value[part]
            except KeyError:
                if self.compat:
                    return None
                raise NotThere(path) from None
        return value

    def has(self, path: ex.Path) -> bool:
        """Whether there is something at a path."""
        try:
            value = Facts(self.state, self.world, self.params).at(path)
        except FAILURES:
            return False
        return value is not None or not self.compat


NO_FACTS = Facts(EMPTY)


def evaluate(tree: ex.Tree, facts: Facts) -> Any:
    """The value of a tree; raises one of ``FAILURES`` where it has none.

    >>> evaluate(ex.parse("budget - 20 >= 100"), Facts({"budget": 150}))
    True
    """
    match tree:
        case ex.Constant(value=value):
            return value
        case ex.Path():
            return facts.at(tree)
        case ex.Has(path=path):
            return facts.has(path)
        case ex.Items(values=values):
            return [evaluate(value, facts) for value in values]
        case ex.Not(value=value):
            return not holds(value, facts)
        case ex.Both(left=left, right=right):
            return holds(left, facts) and holds(right, facts)
        case ex.Either(left=left, right=right):
            return holds(left, facts) or holds(right, facts)
        case ex.Compare(by=by, left=left, right=right):
            one, other = evaluate(left, facts), evaluate(right, facts)
            if of_lists(tree):
                one, other = listed(one), listed(other)
            return bool(_COMPARE[by](one, other))
        case ex.Compute(by=sign, left=left, right=right):
            return _COMPUTE[sign](number(evaluate(left, facts)), number(evaluate(right, facts)))
        case _:
            assert_never(tree)


def holds(tree: ex.Tree, facts: Facts) -> bool:
    """Whether a tree is true; raises where it can be neither true nor false."""
    value = evaluate(tree, facts)
    return bool(value) if facts.compat else truth(value)


def of_lists(tree: ex.Compare) -> bool:
    """Whether something is compared with a list that is written out."""
    if tree.by in {"in", "not in"}:
        return isinstance(tree.right, ex.Items) and any(isinstance(v, ex.Items) for v in tree.right.values)
    return isinstance(tree.left, ex.Items) or isinstance(tree.right, ex.Items)


def listed(value: Any) -> Any:
    """A tuple of Python's as the list that the language knows; all else as it is."""
    return list(value) if type(value) is tuple else value


def inside(item: Any, items: Any) -> bool:
    """Whether something equal is in a list, or a text in another; not a number is in none.

    >>> inside(2, [1, 2]), inside("a", "abc"), inside(float("nan"), [float("nan")])
    (True, True, False)
    """
    return item in items and bool(item == item)  # noqa: PLR0124


def truth(value: Any) -> bool:
    """A boolean as it is, a number unless it is zero; a text such as "no" is neither true nor false.

    >>> truth(3)
    True
    >>> truth("no")
    Traceback (most recent call last):
    ...
    TypeError: neither true nor false
    """
    if type(value) in NUMERIC or isinstance(value, Real) or _is_numpy_bool(value):
        return bool(value)
    raise TypeError("neither true nor false")


def number(value: Any) -> Any:
    """A number as it is; true counts as one."""
    if type(value) in NUMERIC or isinstance(value, Real) or _is_numpy_bool(value):
        return value
    raise TypeError("not a number")


def _is_numpy_bool(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}
