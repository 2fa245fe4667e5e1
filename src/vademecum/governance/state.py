"""Compare a state before and after an action, by path and value, and put it back in place.

A state is plain data: numbers, texts, booleans, ``None``, lists, and dictionaries with text keys. Anything
else is refused with its place, because a change inside it could not be seen or undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

from vademecum.governance.definitions import MISSING

State = dict[str, Any]
# A key, the value before and the value after; a nested key is written with dots.
Change = tuple[str, Any, Any]

WORLD = "world"
SHARED = f"{WORLD}."
FLAT = frozenset({int, float, bool, str, type(None)})
MAX_DEPTH = 60
MAX_VALUES = 1_000_000  # below one key, counted by path

_ALLOWED = "a state contains numbers, texts, booleans, None, lists and dictionaries"


class StateRefused(ValueError):
    """A state contains something that is not plain data."""


class Snapshot:
    """A copy of an agent's state and of the shared state.

    >>> rooms = ["hall"]
    >>> state = {"budget": 5, "home": {"rooms": rooms}, "favourite": rooms}
    >>> before = Snapshot(state, {})
    >>> rooms.append("attic")
    >>> before.changes()
    (('home.rooms', ['hall'], ['hall', 'attic']), ('favourite', ['hall'], ['hall', 'attic']))
    >>> before.restore()
    >>> state["home"]["rooms"] is rooms, rooms
    (True, ['hall'])
    """

    __slots__ = ("_nested", "_own", "_shared", "_state", "_world")

    def __init__(self, state: State, world: State) -> None:
        self._state, self._world = state, world
        self._own, self._shared = _checked(state, world)
        # Each nested list or dictionary once, with a copy of its own content.
        self._nested: dict[int, tuple[Any, Any]] = {}
        if not (_is_flat(self._own) and _is_flat(self._shared)):
            walk = _Walk(self._nested)
            walk.through(self._own, "")
            walk.through(self._shared, SHARED)

    def changes(self) -> tuple[Change, ...]:
        """Return every path whose value changed: a value of another type, or one that is not equal.

        Raise ``StateRefused`` if the state contains anything but plain data.
        """
        state, world, nested = self._state, self._world, self._nested
        own, shared = _same_items(self._own, state), _same_items(self._shared, world)
        if own and shared and all(_unchanged(value, content) for value, content in nested.values()):
            return ()
        flat = not nested and _is_flat(state) and _is_flat(world)
        if not flat or state.keys() != self._own.keys() or world.keys() != self._shared.keys():
            Snapshot(state, world)  # refuses what is not plain data
        compare = _Compare(nested)
        return (
            *(() if flat and own else compare.mapping(self._own, state, "")),
            *(() if flat and shared else compare.mapping(self._shared, world, SHARED)),
        )

    def restore(self) -> None:
        """Give every list and dictionary its former content, in place."""
        for value, content in self._nested.values():
            if type(value) is list:
                value[:] = content
            else:
                value.clear()
                value.update(content)
        for value, content in ((self._state, self._own), (self._world, self._shared)):
            value.clear()
            value.update(content)


def copied(value: Any) -> Any:
    """Return a copy of lists and mappings, however deep, and any other value as it is.

    >>> rooms = ["hall"]
    >>> seen = copied({"rooms": rooms})
    >>> rooms.append("attic")
    >>> seen
    {'rooms': ['hall']}
    """
    return _copied(value, 0)


def _copied(value: Any, depth: int) -> Any:
    if type(value) in FLAT:
        return value
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {key: _copied(each, depth + 1) for key, each in value.items()}
    return [_copied(each, depth + 1) for each in value] if isinstance(value, list) else value


def _checked(state: State, world: State) -> tuple[State, State]:
    """Return a copy of each, or raise ``StateRefused`` for a key that cannot be named."""
    for name, each, prefix in (("the agent's state", state, ""), ("the shared state", world, SHARED)):
        if type(each) is not dict:
            raise StateRefused(f"{name} is a {type(each).__name__}: {_ALLOWED}")
        _check_keys(each, prefix)
    if WORLD in state:
        raise StateRefused(f"the agent's own key {WORLD!r} would be taken for the shared state: rename it")
    return dict(state), dict(world)


def _check_keys(value: State, prefix: str) -> None:
    try:
        if "." not in "".join(value):
            return
    except TypeError:  # a key is not a text
        pass
    for key in value:
        if not isinstance(key, str):
            raise StateRefused(f"the key {key!r} at {prefix.rstrip('.') or 'the top'!r} is not a text")
        if "." in key:
            raise StateRefused(f"the key {prefix + key!r} has a dot, which separates nested keys: rename it")


def _is_flat(state: State) -> bool:
    return FLAT.issuperset(map(type, state.values()))


class _Walk:
    """Go through all values, note every list and dictionary once, and refuse what is not plain data."""

    def __init__(self, found: dict[int, tuple[Any, Any]]) -> None:
        self._found = found
        self._sizes: dict[int, int] = {}

    def through(self, state: State, prefix: str) -> None:
        for key, value in state.items():
            if type(value) not in FLAT:
                self._size(value, f"{prefix}{key}", 0)

    def _size(self, value: Any, path: str, depth: int) -> int:
        """Return the number of values below a path; a list that two paths lead to counts twice."""
        kind = type(value)
        if kind.__module__ == "numpy" and isinstance(value, float | str):
            return 1  # other subclasses could contain more than their value
        if kind is not list and kind is not dict:
            raise StateRefused(f"{path!r} is a {kind.__name__}: {_ALLOWED}")
        if id(value) in self._found:
            if id(value) not in self._sizes:  # it is still being walked through
                raise StateRefused(f"{path!r} contains itself")
            return self._sizes[id(value)]
        if depth > MAX_DEPTH:
            raise StateRefused(f"{path!r} is nested more than {MAX_DEPTH} deep")
        self._found[id(value)] = (value, value.copy())
        if kind is dict:
            _check_keys(value, f"{path}.")
        size = len(value)
        for key, each in value.items() if kind is dict else enumerate(value):
            if type(each) not in FLAT:
                size += self._size(each, f"{path}.{key}" if kind is dict else f"{path}[{key}]", depth + 1)
        if size > MAX_VALUES:
            raise StateRefused(f"{path!r} contains more than {MAX_VALUES:,} values")
        self._sizes[id(value)] = size
        return size


class _Compare:
    """Compare values with what they were, path by path: two paths to one list are two changes."""

    def __init__(self, nested: Mapping[int, tuple[Any, Any]]) -> None:
        self._nested = nested

    def mapping(self, before: State, after: State, prefix: str) -> Iterator[Change]:
        for key, old in before.items():
            new = after.get(key, MISSING)
            if new is old and type(old) in FLAT:
                continue
            if type(old) is dict and type(new) is dict:
                yield from self.mapping(self._was(old), new, f"{prefix}{key}.")
            elif not self._same(old, new):
                yield f"{prefix}{key}", self._copied(old), copied(new)
        for key, new in after.items():
            if key not in before:
                yield f"{prefix}{key}", MISSING, copied(new)

    def _was(self, value: Any) -> Any:
        return self._nested[id(value)][1]

    def _same(self, old: Any, new: Any) -> bool:
        kind = type(old)
        if kind is not type(new):
            return False
        if kind is not list and kind is not dict:
            return equal(old, new)
        was = self._was(old)
        if len(was) != len(new):
            return False
        if kind is list:
            return all(map(self._same, was, new))
        return all(key in new and self._same(each, new[key]) for key, each in was.items())

    def _copied(self, old: Any) -> Any:
        if type(old) is dict:
            return {key: self._copied(each) for key, each in self._was(old).items()}
        return list(map(self._copied, self._was(old))) if type(old) is list else old


def equal(old: Any, new: Any) -> bool:
    """Return whether two values are equal and of one type; NaN is equal to NaN."""
    return old is new or (type(old) is type(new) and (old == new or (old != old and new != new)))  # noqa: PLR0124


def _same_items(before: State, after: State) -> bool:
    """Return whether a state contains the very same objects under the same keys in the same order."""
    return [*before] == [*after] and all(map(is_, before.values(), after.values()))


def _unchanged(value: Any, content: Any) -> bool:
    if type(value) is dict:
        return _same_items(content, value)
    return len(value) == len(content) and all(map(is_, value, content))
