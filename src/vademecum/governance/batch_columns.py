"""Columns as they come, lists, arrays or those of a data frame → arrays that mean the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vademecum.governance.vector import EXACT, Array

NEVER = -1
_OF_STEPS = ("last.", "used.")
_NUMPY_KEEPS = ({int}, {float}, {bool}, {str})


def read_column(name: str, values: Any, size: int) -> Array:
    """One column; those that count steps are whole numbers, less than zero where there is nothing."""
    found = _array(values)
    if len(found) != size:
        raise ValueError(f"the column {name!r} has {len(found):,} rows and not {size:,}")
    return _steps(name, found) if name.startswith(_OF_STEPS) else found


def read_types(values: Any, names: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
    """The types as numbers, and what each number means."""
    if hasattr(values, "cat"):  # a category of a data frame
        codes, known = np.asarray(values.cat.codes), tuple(map(str, values.cat.categories))
    elif names is None:
        found = _array(values)
        if found.dtype.kind == "U" and not isinstance(found, np.ma.MaskedArray):
            distinct, codes = np.unique(found, return_inverse=True)
            return codes, tuple(map(str, distinct))
        codes, known = coded(None if _is_nothing(value) else str(value) for value in found)
    else:
        codes, known = np.asarray(values), tuple(names)
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(known):
            raise ValueError(f"the column 'type' has codes that are not among the {len(known)} names")
    if codes.size and int(codes.min()) < 0:
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(f"the column 'type' has nothing in row {row:,}: every agent has a type")
    return codes, known


def coded(texts: Iterable[str | None]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Texts as numbers, and what each number means; nothing is less than zero."""
    known: dict[str, int] = {}
    codes = [NEVER if text is None else known.setdefault(text, len(known)) for text in texts]
    return np.array(codes, np.intp), tuple(known)


def _array(values: Any) -> Array:
    """An array in which every value is what it was: numpy makes texts of what is mixed with texts."""
    if not isinstance(values, np.ndarray):
        if not hasattr(values, "dtype"):
            return _of_objects(list(values))
        values = np.asarray(values)
    return _of_objects(values) if values.dtype == object and not np.ma.isMaskedArray(values) else values


def _of_objects(values: Any) -> Array:
    kinds = {type(value) for value in values}
    # A text that ends with NUL would lose it.
    if kinds in _NUMPY_KEEPS and not (kinds == {str} and any(text.endswith("\0") for text in values)):
        return np.array(list(values), str if kinds == {str} else None)
    found = np.empty(len(values), object)
    found[:] = values if isinstance(values, np.ndarray) else [*values]
    return found


def _steps(name: str, values: Array) -> Array:
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), NEVER, values.data)
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind in "bi" or (kind == "u" and size < 8):
        return values if kind == "i" and size >= 4 else values.astype(np.int64)
    found = values if kind == "f" else np.array([_number(value) for value in values.tolist()])
    whole = np.where(np.isnan(found), NEVER, found)
    if (np.abs(whole) < EXACT).all() and (np.trunc(whole) == whole).all():
        return whole.astype(np.int64)
    raise ValueError(f"the column {name!r} has values that are no whole numbers of steps")


def _number(value: Any) -> float:
    """A number, not a number for nothing, and one that is no step for all else."""
    if _is_nothing(value):
        return float("nan")
    return float(value) if isinstance(value, int | float) and abs(value) < EXACT else float("inf")


def _is_nothing(value: Any) -> bool:
    """Whether a value stands for none, in any of the ways in which columns say so."""
    if value is None or value is np.ma.masked or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124
