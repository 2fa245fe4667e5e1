"""What an engine changed: a picture from before, the difference after, and the way back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import compress
from operator import is_, is_not
from pathlib import PurePath
from typing import Any
from uuid import UUID

from msgspec import Struct

from vademecum.governance.copies import FLAT, MAX_DEPTH, is_array, kept
from vademecum.governance.keys import SHARED
from vademecum.governance.model import MISSING
from vademecum.governance.parts import Part, held, inner, is_container, parts_of, same_array

State = dict[str, Any]
# A key, what was there, what is there; a nested key is written with dots.
Change = tuple[str, Any, Any]

_NOTHING: dict[int, Part] = {}
# Values that never change in place, so that equal ones are as good as the same.
_IMMUTABLE = (
    int, float, complex, str, bytes, range, frozenset, Decimal, Fraction, date, time, timedelta, tzinfo,
    PurePath, UUID,
)  # fmt: skip


class Picture(Struct, frozen=True, gc=False):
    """What an agent's state and the shared one were, however deep; ``pictured`` takes one.

    What lies in dictionaries, lists, sets, arrays and the fields of plain objects is seen. Other objects,
    such as locks or the agents of a simulation, are the same or another: what is in them is not looked at.

    >>> state = {"budget": 5, "home": {"floor": 0}}
    >>> before = pictured(state, {})
    >>> state["home"]["floor"] = 2
    >>> state["debt"] = True
    >>> before.changes()
    (('home.floor', 0, 2), ('debt', missing, True))
    >>> before.restore()
    >>> state
    {'budget': 5, 'home': {'floor': 0}}
    """

    state: State
    world: State
    # Both together, the agent's own first: this is done for every proposal, and has to be quick.
    count: int
    keys: list[str]
    values: list[Any]
    parts: dict[int, Part]

    def changes(self) -> tuple[Change, ...]:
        """Every key that is not what it was: same in type and equal is the same, not a number stays so."""
        state, world, parts = self.state, self.world, self.parts
        if len(state) == self.count and [*state, *world] == self.keys:
            now = [*state.values(), *world.values()]
            if all(map(is_, now, self.values)) and (
                not parts or all(part.stays() for part in parts.values())
            ):
                return ()
            if not parts:
                return (*self._flat(now),)
        own, shared = self._before()
        different = _Difference(parts).between
        return (*different(own, state, ""), *different(shared, world, SHARED))

    def _flat(self, now: list[Any]) -> list[Change]:
        """The changes where the keys are what they were and nothing could change in place."""
        found: list[Change] = []
        for place in compress(itertools.count(), map(is_not, now, self.values)):
            old, new = self.values[place], now[place]
            if type(new) is not type(old) or not _same_value(old, new):
                key = self.keys[place]
                new = new if type(new) in FLAT else kept(new)
                found.append((key if place < self.count else f"{SHARED}{key}", old, new))
        return found

    def _before(self) -> tuple[State, State]:
        count, pairs = self.count, list(zip(self.keys, self.values, strict=True))
        return dict(pairs[:count]), dict(pairs[count:])

    def restore(self) -> None:
        """Make both what they were; every dictionary and list in them stays the one that others hold."""
        for part in self.parts.values():
            part.restore()
        for now, before in zip((self.state, self.world), self._before(), strict=True):
            now.clear()
            now.update(before)


def pictured(state: State, world: State) -> Picture:
    """A picture of both as they are now."""
    values = [*state.values(), *world.values()]
    parts = _NOTHING if FLAT.issuperset(map(type, values)) else parts_of(values)
    return Picture(state, world, len(state), [*state, *world], values, parts)


class _Difference:
    """Compares what was, as the parts have kept it, with what is."""

    def __init__(self, parts: dict[int, Part]) -> None:
        self._parts = parts
        self._compared: set[tuple[int, int]] = set()  # a way may lead in a circle

    def between(self, before: State, after: State, prefix: str) -> Iterator[Change]:
        """The difference of two dictionaries."""
        for key, old in before.items():
            new = after.get(key, MISSING)
            if type(old) in FLAT:
                if new is not old and not _same_value(old, new):
                    yield f"{prefix}{key}", old, kept(new)
            else:
                yield from self._within(f"{prefix}{key}", old, new)
        for key, new in after.items():
            if key not in before:
                yield f"{prefix}{key}", MISSING, kept(new)

    def _within(self, key: str, old: Any, new: Any) -> Iterator[Change]:
        """The difference at one key: below it where there are keys below it, or else as a whole."""
        was = self._was(old)
        # An object is only ever itself; another dictionary may hold the same.
        if isinstance(was, dict) and type(old) is type(new) and (old is new or isinstance(old, dict)):
            if self._is_new_pair(old, new):
                yield from self.between(was, held(new), f"{key}.")
        elif not self._same(old, new):
            yield key, self._shown(old), kept(new)

    def _was(self, value: Any) -> Any:
        part = self._parts.get(id(value))
        return None if part is None else part.content

    def _is_new_pair(self, old: Any, new: Any) -> bool:
        pair = (id(old), id(new))
        known = pair in self._compared
        self._compared.add(pair)
        return not known

    def _same(self, old: Any, new: Any) -> bool:
        if type(old) is not type(new):
            return False
        was = self._was(old)
        if was is None:
            return _same_value(old, new)
        if not is_container(old) and old is not new:
            return False
        if not self._is_new_pair(old, new):
            return True
        now = held(new)
        if isinstance(was, dict):
            return was.keys() == now.keys() and all(self._same(old, now[key]) for key, old in was.items())
        if isinstance(was, list | tuple):
            return len(was) == len(now) and all(map(self._same, was, now))
        if not is_array(was):
            return bool(was == now)
        if was.dtype.hasobject and was.shape == now.shape:
            return all(map(self._same, inner(was), inner(now)))
        return same_array(was, now)

    def _shown(self, value: Any, depth: int = 0) -> Any:
        """A copy of what a value was."""
        was = self._was(value)
        if was is None:
            return value
        if depth > MAX_DEPTH:
            return "…"
        if isinstance(value, dict):
            return {key: self._shown(each, depth + 1) for key, each in was.items()}
        if isinstance(was, list | tuple):
            return (
                type(was)(self._shown(each, depth + 1) for each in was) if type(was) in {list, tuple} else was
            )
        return was if is_container(value) else value


def _same_value(old: Any, new: Any) -> bool:
    """Whether two values are as good as the same: of one type, and equal."""
    if old is new:
        return True
    if type(old) is not type(new) or not (isinstance(old, _IMMUTABLE) or _is_scalar(old)):
        return False
    try:
        return bool(old == new) or bool(old != old and new != new)  # noqa: PLR0124 - not a number stays so
    except ArithmeticError:  # a decimal that signals
        return False


def _is_scalar(value: Any) -> bool:
    """Whether a value is one number of numpy's."""
    return type(value).__module__ == "numpy" and hasattr(value, "item")
