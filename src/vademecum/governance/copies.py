"""Values that others may change later → values that stay as they are."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

# What cannot change in place. Nearly all of a state is made of these, and nothing else is asked of them.
FLAT = frozenset({int, float, bool, str, type(None)})
MAX_DEPTH = 60


def kept(value: Any, depth: int = 0) -> Any:
    """A copy of dictionaries, lists, sets and arrays, however deep; other objects are themselves.

    >>> rooms = ["hall"]
    >>> seen = kept({"rooms": rooms, "floor": 1})
    >>> rooms.append("attic")
    >>> seen
    {'rooms': ['hall'], 'floor': 1}
    """
    kind = type(value)
    if kind in FLAT:
        return value
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {key: each if type(each) in FLAT else kept(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | deque):
        return [each if type(each) in FLAT else kept(each, depth + 1) for each in value]
    if kind is tuple:
        return tuple(kept(each, depth + 1) for each in value)
    if isinstance(value, set | bytearray):
        return set(value) if isinstance(value, set) else bytes(value)
    return value.copy() if is_array(value) else value


def kept_all(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a whole dictionary, at once where nothing in it can change."""
    found = dict(values)
    if not FLAT.issuperset(map(type, found.values())):
        for key, value in found.items():
            if type(value) not in FLAT:
                found[key] = kept(value)
    return found


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy, which is not imported to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
