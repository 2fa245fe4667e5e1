"""What many intents say, column by column, against what the charter lets them say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vademecum.governance.model import Parameter
from vademecum.governance.vector import Array, NotVector

_KINDS = {"number": "iuf", "integer": "iu", "string": "U", "boolean": "b"}


def parameters_fit(
    schema: Mapping[str, Parameter], said: Sequence[str], column: Callable[[str], Array | None]
) -> Any:
    """Where all parameters are what they may be: flags, or one answer for all rows."""
    fits: Any = True
    for name in said:
        if name not in schema and (values := column(f"params.{name}")) is not None:
            fits = fits & _masked(values)  # what nobody asked for may only be there where it is masked
    for name, parameter in schema.items():
        values = column(f"params.{name}")
        if values is None:
            fits = fits & (not parameter.required)
            continue
        absent = _masked(values)
        fits = fits & (
            (absent & (not parameter.required)) | (~absent & _fits(parameter, np.ma.getdata(values)))
        )
    return fits


def _masked(values: Array) -> Any:
    return (
        np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else np.zeros(len(values), bool)
    )


def _fits(parameter: Parameter, values: Array) -> Any:
    if values.dtype.kind not in "biufU" or parameter.type == "list":
        raise NotVector
    if values.dtype.kind not in _KINDS[parameter.type]:
        return np.False_
    fits = np.isfinite(values) if values.dtype.kind == "f" else np.True_
    if parameter.enum:
        fits = fits & np.logical_or.reduce([_equal(values, choice) for choice in parameter.enum])
    size = np.char.str_len(values) if values.dtype.kind == "U" else _wide(values)
    if parameter.min is not None:
        fits = fits & (size >= parameter.min)
    if parameter.max is not None:
        fits = fits & (size <= parameter.max)
    return fits


def _wide(values: Array) -> Array:
    """Numbers in a width in which they are compared exactly with the bounds of a charter."""
    if values.dtype.kind in "iu" and values.size and int(np.abs(values).max()) > 2**53:
        raise NotVector
    return values.astype(np.float64)


def _equal(values: Array, choice: Any) -> Any:
    if isinstance(choice, str) is not (values.dtype.kind == "U"):
        return np.zeros(len(values), bool)
    return values == choice if isinstance(choice, str) else _wide(values) == choice
