"""A condition's tree and columns of states → a column of answers: the language over arrays.

It means exactly what `evaluate` means for each row. Where numpy would mean something else (large integers
against floats, overflow, remainders of floats, columns of mixed objects) it says so with ``NotVector``,
and the rows are checked one by one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, assert_never

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vademecum.governance import expression as ex

Array = NDArray[Any]
Flags = NDArray[np.bool_]

EXACT = 2**53  # above this an integer and a float are not compared as numpy does it
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
    """These rows cannot be computed as arrays with the same meaning."""


class Column(Struct):
    """The values of one thing for all rows: an array or one value, and the rows for which there is none.

    ``kind`` is ``b`` for flags, ``i`` for integers, ``f`` for floats and ``U`` for texts.
    """

    kind: str
    data: Any
    failed: Any = None  # nothing, an array of flags, or True for all rows

    def most(self) -> int:
        """The largest absolute value of integers."""
        if not isinstance(self.data, np.ndarray):
            return abs(int(self.data))
        if self.data.size == 0 or self.kind == "b":
            return 1
        return max(abs(int(self.data.min())), abs(int(self.data.max())))


FAILED = Column("b", data=False, failed=True)
_CONSTANTS = {bool: "b", int: "i", float: "f", str: "U"}


def column(values: Array) -> Column:
    """One column as it came, in the kinds that are computed with."""
    failed = None
    if isinstance(values, np.ma.MaskedArray):
        failed = np.ma.getmaskarray(values)
        values = values.data
    kind = values.dtype.kind
    if kind in "bU":
        return Column(kind, values, failed)
    if kind == "u" and values.dtype.itemsize == 8 and values.size and int(values.max()) > LARGEST:
        raise NotVector
    if kind in "iu":
        return Column("i", values.astype(np.int64, copy=False), failed)
    if kind == "f" and values.dtype.itemsize <= 8:
        return Column("f", values.astype(np.float64, copy=False), failed)
    raise NotVector


class Vectors:
    """Evaluates trees over the columns of some rows."""

    def __init__(
        self, columns: Callable[[str], Array | None], world: Mapping[str, Any], *, compat: bool
    ) -> None:
        self._columns = columns
        self._world = world
        self._compat = compat

    def holds(self, tree: ex.Tree) -> Any:
        """Where a tree holds: flags, or one answer for all rows."""
        return _sound(self.test(tree))

    def test(self, tree: ex.Tree) -> Column:
        """The tree as flags, with the rows that can be neither true nor false."""
        found = self._value(tree)
        match found.kind:
            case "b":
                return found
            case "U":
                if self._compat:
                    raise NotVector
                return FAILED
        return Column("b", found.data != 0, found.failed)

    def _value(self, tree: ex.Tree) -> Column:
        match tree:
            case ex.Constant(value=value):
                return _constant(value)
            case ex.Path():
                return self._at(tree)
            case ex.Has(path=path):
                return self._has(path)
            case ex.Not(value=value):
                inner = self.test(value)
                return Column("b", np.logical_not(inner.data), inner.failed)
            case ex.Both(left=left, right=right):
                return self._joined(left, right, both=True)
            case ex.Either(left=left, right=right):
                return self._joined(left, right, both=False)
            case ex.Compare(by="in" | "not in" as by, left=left, right=right):
                return self._among(left, right, inside=by == "in")
            case ex.Compare(by=by, left=left, right=right):
                return _compared(by, self._value(left), self._value(right))
            case ex.Compute(by=sign, left=left, right=right):
                return _computed(sign, self._value(left), self._value(right))
            case ex.Items():
                raise NotVector
            case _:
                assert_never(tree)

    def _at(self, path: ex.Path) -> Column:
        found = self._shared(path) if path.parts[0] == "world" and len(path.parts) > 1 else self._own(path)
        if self._compat and (found.failed is not None or found.kind == "U"):
            raise NotVector  # plain truthiness is a matter of objects
        return found

    def _own(self, path: ex.Path) -> Column:
        values = self._columns(str(path))
        if values is not None:
            return column(values)
        if self._columns(path.parts[0]) is not None:  # a column of dictionaries, perhaps
            raise NotVector
        return FAILED

    def _shared(self, path: ex.Path) -> Column:
        value: Any = self._world
        for part in path.parts[1:]:
            if not isinstance(value, Mapping):
                raise NotVector
            if part not in value:
                return FAILED
            value = value[part]
        return _constant(value)

    def _has(self, path: ex.Path) -> Column:
        found = self._at(path).failed
        return Column("b", found is None if found is None or found is True else ~found)

    def _joined(self, left: ex.Tree, right: ex.Tree, *, both: bool) -> Column:
        """And, or: the right side fails a row only where the left side has not decided it."""
        one, other = self.test(left), self.test(right)
        data = one.data & other.data if both else one.data | other.data
        undecided = one.data if both else np.logical_not(one.data)
        if other.failed is None:
            return Column("b", data, one.failed)
        return Column("b", data, _either(one.failed, _flags(undecided & other.failed)))

    def _among(self, left: ex.Tree, right: ex.Tree, *, inside: bool) -> Column:
        if not isinstance(right, ex.Items):
            raise NotVector
        item = self._value(left)
        # A list that is written out may hold others, which is a matter of objects.
        found = [_compared("==", item, self._value(value)) for value in right.values]
        data = reduce(operator.or_, (each.data for each in found), np.False_)
        failed = reduce(_either, (each.failed for each in found), item.failed)
        return Column("b", data if inside else np.logical_not(data), failed)


def _constant(value: Any) -> Column:
    if type(value) is int and abs(value) > LARGEST:
        raise NotVector
    kind = _CONSTANTS.get(type(value))
    if kind is None:
        raise NotVector
    return Column(kind, value)


def _flags(failed: Any) -> Any:
    """The rows that fail: an array as it is, one answer for all rows as ``True`` or nothing."""
    if isinstance(failed, np.ndarray):
        return failed
    return True if failed else None


def _either(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _compared(by: str, left: Column, right: Column) -> Column:
    failed = _either(left.failed, right.failed)
    kinds = {left.kind, right.kind}
    if len(kinds) > 1 and "U" in kinds:  # a text and a number are different, and in no order
        return Column("b", by == "!=", failed) if by in {"==", "!="} else FAILED
    if kinds == {"i", "f"} and max(side.most() for side in (left, right) if side.kind == "i") > EXACT:
        raise NotVector
    return Column("b", _COMPARE[by](left.data, right.data), failed)


def _computed(sign: ex.Sign, left: Column, right: Column) -> Column:
    failed = _either(left.failed, right.failed)
    kinds = {left.kind, right.kind}
    if "U" in kinds:
        return FAILED
    one, other = _number(left.data), _number(right.data)
    if "f" not in kinds and _bound(sign, left, right) > LARGEST:
        raise NotVector
    if sign in _COMPUTE:
        return Column("f" if "f" in kinds else "i", _COMPUTE[sign](one, other), failed)
    if sign == "%" and "f" in kinds:
        raise NotVector
    nothing = _flags(other == 0)
    if nothing is True:
        return FAILED
    safe = other if nothing is None else np.where(nothing, 1, other)
    data = np.mod(one, safe) if sign == "%" else np.true_divide(one, safe)
    return Column("i" if sign == "%" else "f", data, _either(failed, nothing))


def _bound(sign: ex.Sign, left: Column, right: Column) -> int:
    """What integers can come to at most; dividing needs more care than that."""
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
    """Flags count as zero and one."""
    if isinstance(data, bool | np.bool_):
        return int(data)
    return data.astype(np.int64) if isinstance(data, np.ndarray) and data.dtype.kind == "b" else data


def _sound(found: Column) -> Any:
    if found.failed is None:
        return found.data
    return False if found.failed is True else found.data & ~found.failed
