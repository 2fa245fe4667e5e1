"""Evaluate conditions over columns, with the same result as `conditions` has for each row.

If numpy would give another result (large integers against floats, overflow, remainders of floats, columns of
mixed objects), ``NotVector`` is raised, and the rows are checked one by one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, assert_never

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vademecum.governance import grammar as g

Array = NDArray[Any]
Flags = NDArray[np.bool_]

EXACT = 2**53  # numpy compares larger integers with floats inexactly
LARGEST = 2**63 - 1

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply}


class NotVector(Exception):
    """These rows cannot be computed as arrays with the same result."""


class RowValues(Struct):
    """A value for all rows: an array or a single value, and the rows that have none.

    ``kind`` is ``b`` for flags, ``i`` for integers, ``f`` for floats and ``U`` for texts.
    """

    kind: str
    data: Any
    failed: Any = None  # None for no row, an array of flags, or True for all rows

    def most(self) -> int:
        """Return the largest absolute value of integers."""
        if not isinstance(self.data, np.ndarray):
            return abs(int(self.data))
        if self.data.size == 0 or self.kind == "b":
            return 1
        return max(abs(int(self.data.min())), abs(int(self.data.max())))


FAILED = RowValues("b", data=False, failed=True)
_CONSTANTS = {bool: "b", int: "i", float: "f", str: "U"}


def column(values: Array) -> RowValues:
    """Return an array as one of the four kinds."""
    failed = None
    if isinstance(values, np.ma.MaskedArray):
        failed = np.ma.getmaskarray(values)
        values = values.data
    kind = values.dtype.kind
    if kind in "bU":
        return RowValues(kind, values, failed)
    if kind == "u" and values.dtype.itemsize == 8 and values.size and int(values.max()) > LARGEST:
        raise NotVector
    if kind in "iu":
        return RowValues("i", values.astype(np.int64, copy=False), failed)
    if kind == "f" and values.dtype.itemsize <= 8:
        return RowValues("f", values.astype(np.float64, copy=False), failed)
    raise NotVector


class Vectors:
    """Evaluate trees over the columns of some rows."""

    def __init__(
        self, columns: Callable[[str], Array | None], world: Mapping[str, Any], *, strict: bool
    ) -> None:
        self._columns = columns
        self._world = world
        self._strict = strict

    def holds(self, tree: g.Tree) -> Any:
        """Return the rows for which a tree is true: flags, or one answer for all rows."""
        return _sound(self.test(tree))

    def test(self, tree: g.Tree) -> RowValues:
        """Return a tree as flags, with the rows that are neither true nor false."""
        found = self._value(tree)
        if found.kind == "U":
            if self._strict:
                return FAILED
            found = RowValues("b", found.data != "", found.failed)
        elif found.kind != "b":
            found = RowValues("b", found.data != 0, found.failed)
        if isinstance(tree, g.Path) and not self._strict:
            return RowValues("b", _sound(found))  # a missing field is false
        return found

    def _value(self, tree: g.Tree) -> RowValues:
        match tree:
            case g.Constant(value=value):
                return _constant(value)
            case g.Path():
                return self._at(tree)
            case g.Has(path=path):
                return self._has(path)
            case g.Not(value=value):
                inner = self.test(value)
                return RowValues("b", np.logical_not(inner.data), inner.failed)
            case g.Both(left=left, right=right):
                return self._joined(left, right, both=True)
            case g.Either(left=left, right=right):
                return self._joined(left, right, both=False)
            case g.Compare(by="in" | "not in" as by, left=left, right=right):
                return self._among(left, right, inside=by == "in")
            case g.Compare(by=by, left=left, right=right):
                one, other = self._value(left), self._value(right)
                if by in {"==", "!="}:
                    self._refuse_missing((left, one), (right, other))
                return _compared(by, one, other)
            case g.Compute(by=sign, left=left, right=right):
                return _computed(sign, self._value(left), self._value(right))
            case g.Items():
                raise NotVector
            case _:
                assert_never(tree)

    def _at(self, path: g.Path) -> RowValues:
        return self._shared(path) if path.parts[0] == "world" and len(path.parts) > 1 else self._own(path)

    def _refuse_missing(self, *sides: tuple[g.Tree, RowValues]) -> None:
        """Leave it to Python to compare a missing field, which is ``None`` unless strict."""
        if not self._strict and any(isinstance(t, g.Path) and c.failed is not None for t, c in sides):
            raise NotVector

    def _own(self, path: g.Path) -> RowValues:
        values = self._columns(str(path))
        if values is not None:
            return column(values)
        if self._columns(path.parts[0]) is not None:  # a column of dictionaries, perhaps
            raise NotVector
        return FAILED

    def _shared(self, path: g.Path) -> RowValues:
        value: Any = self._world
        for part in path.parts[1:]:
            if not isinstance(value, Mapping):
                raise NotVector
            if part not in value:
                return FAILED
            value = value[part]
        return _constant(value)

    def _has(self, path: g.Path) -> RowValues:
        found = self._at(path).failed
        return RowValues("b", found is None if found is None or found is True else ~found)

    def _joined(self, left: g.Tree, right: g.Tree, *, both: bool) -> RowValues:
        """Return and, or: the right side fails a row only if the left side has not decided it."""
        one, other = self.test(left), self.test(right)
        data = one.data & other.data if both else one.data | other.data
        undecided = one.data if both else np.logical_not(one.data)
        if other.failed is None:
            return RowValues("b", data, one.failed)
        return RowValues("b", data, _either(one.failed, _flags(undecided & other.failed)))

    def _among(self, left: g.Tree, right: g.Tree, *, inside: bool) -> RowValues:
        if not isinstance(right, g.Items):
            raise NotVector
        item = self._value(left)
        values = [self._value(value) for value in right.values]
        self._refuse_missing((left, item), *zip(right.values, values, strict=True))
        found = [_compared("==", item, value) for value in values]
        data = reduce(operator.or_, (each.data for each in found), np.False_)
        failed = reduce(_either, (each.failed for each in found), item.failed)
        return RowValues("b", data if inside else np.logical_not(data), failed)


def _constant(value: Any) -> RowValues:
    if type(value) is int and abs(value) > LARGEST:
        raise NotVector
    kind = _CONSTANTS.get(type(value))
    if kind is None:
        raise NotVector
    return RowValues(kind, value)


def _flags(failed: Any) -> Any:
    """Return the rows that fail: an array, ``True`` for all rows, or ``None``."""
    if isinstance(failed, np.ndarray):
        return failed
    return True if failed else None


def _either(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _compared(by: str, left: RowValues, right: RowValues) -> RowValues:
    failed = _either(left.failed, right.failed)
    kinds = {left.kind, right.kind}
    if len(kinds) > 1 and "U" in kinds:  # a text and a number are different, and in no order
        return RowValues("b", by == "!=", failed) if by in {"==", "!="} else FAILED
    if kinds == {"i", "f"} and max(side.most() for side in (left, right) if side.kind == "i") > EXACT:
        raise NotVector
    return RowValues("b", _COMPARE[by](left.data, right.data), failed)


def _computed(sign: g.Sign, left: RowValues, right: RowValues) -> RowValues:
    failed = _either(left.failed, right.failed)
    kinds = {left.kind, right.kind}
    if "U" in kinds:
        return FAILED
    one, other = _number(left.data), _number(right.data)
    if "f" not in kinds and _bound(sign, left, right) > LARGEST:
        raise NotVector
    if sign in _COMPUTE:
        return RowValues("f" if "f" in kinds else "i", _COMPUTE[sign](one, other), failed)
    if sign == "%" and "f" in kinds:
        raise NotVector
    nothing = _flags(other == 0)
    if nothing is True:
        return FAILED
    safe = other if nothing is None else np.where(nothing, 1, other)
    data = np.mod(one, safe) if sign == "%" else np.true_divide(one, safe)
    return RowValues("i" if sign == "%" else "f", data, _either(failed, nothing))


def _bound(sign: g.Sign, left: RowValues, right: RowValues) -> int:
    """Return the largest result that integers can have."""
    one, other = left.most(), right.most()
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


def _number(data: Any) -> Any:
    """Return flags as zero and one."""
    if isinstance(data, bool | np.bool_):
        return int(data)
    return data.astype(np.int64) if isinstance(data, np.ndarray) and data.dtype.kind == "b" else data


def _sound(found: RowValues) -> Any:
    if found.failed is None:
        return found.data
    return False if found.failed is True else found.data & ~found.failed
