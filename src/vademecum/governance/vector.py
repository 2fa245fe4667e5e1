"""Evaluate conditions over columns, with the same result as `conditions` has for each row.

Columns are arrays of flags, integers, floats or texts. If a row could fail by itself (a missing value, a
division by zero, a text where a number is needed), or numpy would give another result than Python (large
integers, remainders of floats, columns of mixed objects), ``NotVector`` is raised, and the rows are checked
one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from vademecum.governance import grammar as g
from vademecum.governance.conditions import COMPARE, COMPUTE, read, rooted
from vademecum.governance.definitions import EMPTY, MISSING

Array = NDArray[Any]
Flags = NDArray[np.bool_]

EXACT = 2**53  # numpy compares larger integers with floats inexactly
LARGEST = 2**63 - 1


class NotVector(Exception):
    """These rows cannot be computed as arrays with the same result."""


class Vectors:
    """Evaluate trees over the columns of some rows; a value for all rows is an array without a dimension."""

    def __init__(
        self, columns: Callable[[str], Array | None], world: Mapping[str, Any], *, strict: bool
    ) -> None:
        self._columns = columns
        self._world = world
        self._strict = strict

    def holds(self, tree: g.Tree) -> Array:
        """Return a tree as flags."""
        found = self._value(tree)
        if found.dtype.kind == "b":
            return found
        if found.dtype.kind != "U":
            return np.not_equal(found, 0)
        if self._strict:
            raise NotVector
        return np.not_equal(found, "")

    def _value(self, tree: g.Tree) -> Array:
        match tree:
            case g.Constant(value=value):
                return _array(value)
            case g.Path():
                return self._at(tree)
            case g.Has(path=path):
                self._at(path)
                return np.asarray(True)  # noqa: FBT003
            case g.Not(value=value):
                return np.logical_not(self.holds(value))
            case g.Join(by=by, left=left, right=right):
                join = np.logical_and if by == "and" else np.logical_or
                return join(self.holds(left), self.holds(right))
            case g.Compare(by="in" | "not in" as by, left=left, right=g.Items(values=values)):
                item = self._value(left)
                equal = (_compared("==", item, self._value(value)) for value in values)
                found: Array = reduce(np.logical_or, equal, np.asarray(False))  # noqa: FBT003
                return found if by == "in" else np.logical_not(found)
            case g.Compare(by="in" | "not in") | g.Items():
                raise NotVector
            case g.Compare(by=by, left=left, right=right):
                return _compared(by, self._value(left), self._value(right))
            case g.Compute(by=sign, left=left, right=right):
                return _computed(sign, self._value(left), self._value(right))
            case _:
                assert_never(tree)

    def _at(self, path: g.Path) -> Array:
        if rooted(path)[0] == 1:
            return _array(read(path, MISSING)(EMPTY, self._world, EMPTY))
        values = self._columns(str(path))
        if values is None or isinstance(values, np.ma.MaskedArray):
            raise NotVector
        return _usual(values)


def _array(value: Any) -> Array:
    if type(value) not in {bool, int, float, str} or (type(value) is str and value.endswith("\0")):
        raise NotVector  # numpy cuts off a NUL at the end of a text
    return _usual(np.asarray(value))


def _usual(values: Array) -> Array:
    """Return flags and texts as they are, and numbers in their largest type."""
    kind = values.dtype.kind
    if kind in "bU":
        return values
    if kind == "u" and values.size and int(values.max()) > LARGEST:
        raise NotVector
    if kind in "iu":
        return values.astype(np.int64, copy=False)
    if kind == "f" and values.dtype.itemsize <= 8:
        return values.astype(np.float64, copy=False)
    raise NotVector


def _most(values: Array) -> int:
    """Return the largest absolute value of integers or flags."""
    if values.size == 0 or values.dtype.kind == "b":
        return 1
    return max(abs(int(values.min())), abs(int(values.max())))


def _compared(by: g.Comparator, left: Array, right: Array) -> Array:
    kinds = {left.dtype.kind, right.dtype.kind}
    if len(kinds) > 1 and "U" in kinds:
        raise NotVector
    if kinds == {"i", "f"} and any(_most(side) > EXACT for side in (left, right) if side.dtype.kind == "i"):
        raise NotVector
    found: Array = COMPARE[by](left, right)
    return found


def _computed(sign: g.Sign, left: Array, right: Array) -> Array:
    kinds = {left.dtype.kind, right.dtype.kind}
    if "U" in kinds or (sign in {"/", "%"} and not right.all()):
        raise NotVector
    if "f" in kinds:
        if sign == "%":
            raise NotVector
    elif _largest(sign, _most(left), _most(right)) > LARGEST:
        raise NotVector
    one, other = (side.astype(np.int64) if side.dtype.kind == "b" else side for side in (left, right))
    return np.asarray(COMPUTE[sign](one, other))


def _largest(sign: g.Sign, one: int, other: int) -> int:
    """Return the largest result that a computation with integers can have, or more if it is not exact."""
    match sign:
        case "+" | "-":
            return one + other
        case "*":
            return one * other
        case "%":
            return other
        case "/":
            return 0 if max(one, other) <= EXACT else LARGEST + 1
        case _:
            assert_never(sign)
