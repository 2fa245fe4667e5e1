"""The parts of a state that can change in place: what each held, whether it still does, and the way back.

A part is a dictionary, a list, a set, an array or an object with fields. Each keeps a shallow copy of its own
content, so that putting every part back puts the whole back: in place, for everybody who holds any of it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property, lru_cache
from operator import is_
from typing import Any

from vademecum.governance.copies import FLAT, is_array

MAX_PARTS = 1000  # of one object; whoever leads to more than that is not looked into

_HEAP_TYPE = 1 << 9  # of a type's flags: a class of Python's own, not one of an extension
# A class that says by itself how it is copied is more than its fields; one with declared fields is not.
_OWN_COPY = frozenset({"__reduce__", "__reduce_ex__", "__getstate__", "__deepcopy__", "__copy__"})
_DECLARED = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__")


class Part:
    """One thing that can change in place, and what it held."""

    __slots__ = ("content", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.content: Any = held(value)

    def stays(self) -> bool:
        """Whether it holds the very same things; whether others are equal is found out with more care."""
        now, was = held(self.value), self.content
        if isinstance(was, dict):
            return list(now) == list(was) and all(map(is_, now.values(), was.values()))
        if isinstance(was, list | tuple):
            return len(now) == len(was) and all(map(is_, now, was))
        return bool(now == was) if not is_array(was) else same_array(was, now)

    def restore(self) -> None:
        """Make it hold again what it held."""
        with suppress(Exception):  # what cannot be written has not been changed either
            if not self.stays():
                _put_back(self.value, self.content)


def parts_of(values: Iterable[Any]) -> dict[int, Part]:
    """Every part that can be reached from some values, by its identity."""
    found: dict[int, Part] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if type(value) in FLAT or id(value) in found:
            continue
        if is_container(value):
            part = found[id(value)] = Part(value)
            waiting += inner(part.content)
        else:
            found |= _inside(value)
    return found


def _inside(root: Any) -> dict[int, Part]:
    """The parts of an object; none where a way leads back to where it came from, or to too much.

    The agents of a simulation know their model, which knows all agents: such an object is the same or is
    another one, and nothing more is said of it.
    """
    found: dict[int, Part] = {}
    way: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        value, leaving = waiting.pop()
        if leaving:
            way.discard(id(value))
        elif id(value) in way or len(found) > MAX_PARTS:
            return {}
        elif (
            type(value) not in FLAT and id(value) not in found and (is_container(value) or has_fields(value))
        ):
            part = found[id(value)] = Part(value)
            way.add(id(value))
            waiting += [(value, True), *((each, False) for each in inner(part.content))]
    return found


def is_container(value: Any) -> bool:
    """Whether a value holds others, or numbers, that can be seen one by one."""
    return isinstance(value, dict | list | tuple | set | deque | bytearray | array) or is_array(value)


def has_fields(value: Any) -> bool:
    """Whether what an object is lies in its fields, and there are any."""
    kind: Any = type(value)  # mypy does not know that types can be remembered
    return _is_open(kind) and (bool(_slots(kind)) or _own(value) is not None)


def held(value: Any) -> Any:
    """What a value holds, one level deep, as a dictionary, a list, a tuple, a set, bytes or an array."""
    if isinstance(value, dict):
        return dict(dict.items(value))  # whatever a class of its own makes of it
    if isinstance(value, tuple):
        return value
    if isinstance(value, list | deque):
        return list(value)
    if isinstance(value, set):
        return set(value)
    if isinstance(value, bytearray | array):
        return value[:]
    return value.copy() if is_array(value) else _fields(value)


def inner(content: Any) -> Iterable[Any]:
    """What lies in the content of a part: agents of a simulation may also be the keys of a dictionary."""
    if isinstance(content, dict):
        keys = () if FLAT.issuperset(map(type, content)) else content
        return [*keys, *content.values()]
    if isinstance(content, list | tuple | set):
        return content
    if is_array(content) and content.dtype.hasobject:
        found: list[Any] = content.ravel().tolist()
        return found
    return ()


def same_array(one: Any, other: Any) -> bool:
    """Whether two arrays are of one shape and one type and hold the same; not a number stays so."""
    if type(one) is not type(other) or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.dtype.hasobject:
        return all(map(is_, inner(one), inner(other)))
    masks = [getattr(each, "mask", None) for each in (one, other)]
    if masks[0] is not None and (masks[0] != masks[1]).any():
        return False
    equal = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124
    return bool(equal.all()) or bool(masks[0] is not None and masks[0].all())


def _put_back(value: Any, content: Any) -> None:
    if isinstance(value, dict | set):
        value.clear()
        value.update(content)
    elif isinstance(value, deque):
        value.clear()
        value.extend(content)
    elif isinstance(value, list | bytearray | array):
        value[:] = content
    elif is_array(value):
        if value.shape != content.shape:
            value.resize(content.shape, refcheck=False)
        value[...] = content
    else:
        _put_back_fields(value, content)


def _put_back_fields(value: Any, content: dict[str, Any]) -> None:
    kind: Any = type(value)
    own, slots = _own(value), _slots(kind)
    if own is not None:
        own.clear()
        own.update({name: each for name, each in content.items() if name not in slots})
    for name in slots:
        if name in content:
            object.__setattr__(value, name, content[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object by their names."""
    kind: Any = type(value)
    found = dict(_own(value) or {})
    for name in _remembered(kind):
        found.pop(name, None)
    for name in _slots(kind):
        with suppress(Exception):  # nothing there, or nothing that can be read
            found[name] = getattr(value, name)
    return found


def _own(value: Any) -> dict[str, Any] | None:
    """The dictionary of an object's fields, if it has one and shows it."""
    try:
        found = value.__dict__
    except Exception:  # noqa: BLE001 - whatever it is made to say
        return None
    return found if isinstance(found, dict) else None


@lru_cache(maxsize=1024)
def _is_open(kind: type) -> bool:
    bases = kind.__mro__[:-1]
    if any(hasattr(kind, name) for name in _DECLARED):
        return True
    return not any(_OWN_COPY & vars(base).keys() or not base.__flags__ & _HEAP_TYPE for base in bases)


@lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[str, ...]:
    found = []
    for base in kind.__mro__[:-1]:
        names = vars(base).get("__slots__", ())
        for name in [names] if isinstance(names, str) else names:
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return tuple(name for name in found if name not in {"__dict__", "__weakref__"})


@lru_cache(maxsize=1024)
def _remembered(kind: type) -> frozenset[str]:
    """Fields that keep what was computed once: reading such a field changes nothing."""
    known = (item for base in kind.__mro__ for item in vars(base).items())
    return frozenset(name for name, what in known if isinstance(what, cached_property))
