"""Values of a state ↔ values of JSON, so that a record read again decides as it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

MAX_DEPTH = 60
LARGEST = 2**1000  # what is larger is written with more digits than Python reads

# The name of a value and its text → the text without secrets.
Mask = Callable[[str, str], str]

# What JSON has no word for is an object with one key that begins with this sign.
SIGN = "$"
_READ: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$decimal": Decimal,
    "$fraction": Fraction,
    "$set": set,
    "$dict": dict,
}


def as_json(value: Any, mask: Mask, key: str = "", depth: int = 0) -> Any:
    """A value as a record has it, its texts masked; what is unknown here is its text.

    >>> as_json({"debt": float("inf"), "zones": {3}, 7: [None]}, lambda key, text: text)
    {'debt': {'$float': 'inf'}, 'zones': {'$set': [3]}, '7': [None]}
    """
    match value:
        case None | bool():
            return value
        case str():
            return mask(key, str(value))
        case int():
            return int(value) if abs(value) < LARGEST else {"$int": hex(value)}
        case float():
            return float(value) if math.isfinite(value) else {"$float": str(float(value))}
        case Decimal() | Fraction():
            return {f"${type(value).__name__.lower()}": str(value)}
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        found = {mask("", str(k)): as_json(item, mask, str(k), depth + 1) for k, item in value.items()}
        return {"$dict": found} if len(found) == 1 and next(iter(found)).startswith(SIGN) else found
    if isinstance(value, list | tuple):
        return [as_json(item, mask, key, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return {"$set": sorted((as_json(item, mask, key, depth + 1) for item in value), key=repr)}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return as_json(value.tolist(), mask, key, depth + 1)
    return mask(key, _text(value))


def from_json(value: Any) -> Any:
    """What ``as_json`` wrote, read again.

    >>> from_json({"zones": {"$set": [3]}})
    {'zones': {3}}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    sign = next(iter(value)) if len(value) == 1 else ""
    if sign in _READ:
        return _special(sign, value[sign])
    return {key: from_json(item) for key, item in value.items()}


def _special(sign: str, written: Any) -> Any:
    if sign == "$dict":
        return {key: from_json(item) for key, item in written.items()}
    try:
        return _READ[sign](from_json(written))
    except (TypeError, InvalidOperation) as error:
        raise ValueError(f"{sign} is {written!r}") from error


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object without words
        return f"a {type(value).__name__}"
