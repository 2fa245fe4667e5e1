"""Compare a state before and after an action, by path and value, and restore it in place.

A state is plain data: numbers, texts, booleans, ``None``, lists, and dictionaries with text keys. Anything
else is refused with its path, because a change inside it could not be detected or undone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from vademecum.governance.definitions import MISSING

State = dict[str, Any]
# A key, the value before and the value after; a nested key is written with dots.
Change = tuple[str, Any, Any]

WORLD = "world"
SHARED = f"{WORLD}."
FLAT = frozenset({int, float, bool, str, type(None)})
_TEXT = frozenset({str})
MAX_DEPTH = 60
MAX_VALUES = 1_000_000  # below one key, counted by path

_ALLOWED = "a state contains numbers, texts, booleans, None, lists and dictionaries"


class StateRefused(ValueError):
    """Raised if a state contains something that is not plain data."""


class StateSnapshot:
    """A copy of an agent's state and of the shared state.

    >>> rooms = ["hall"]
    >>> state = {"budget": 5, "home": {"rooms": rooms}, "favourite": rooms}
    >>> before = StateSnapshot(state, {})
    >>> rooms.append("attic")
    >>> before.changes()
    (('home.rooms', ['hall'], ['hall', 'attic']), ('favourite', ['hall'], ['hall', 'attic']))
    >>> before.restore()
    >>> state["home"]["rooms"] is rooms, rooms
    (True, ['hall'])
    """

    __slots__ = ("_contents", "_own", "_shared", "_state", "_world")

    def __init__(self, state: State, world: State) -> None:
        self._state, self._world = state, world
        # Each list and dictionary once, with a copy of its content, which `restore` puts back.
        self._contents: Contents = {}
        self._own = self._copy_of(state, "", "the agent's state")
        self._shared = self._copy_of(world, SHARED, "the shared state")

    def changes(self) -> tuple[Change, ...]:
        """Return every path whose value changed: a value of another type, or one that is not equal.

        Raise ``StateRefused`` if the state contains anything but plain data.
        """
        own = _changes(self._own, self._state, "")
        return (*own, *_changes(self._shared, self._world, SHARED))

    def restore(self) -> None:
        """Give every list and dictionary its former content, in place."""
        for value, content in self._contents.values():
            value.clear()
            if type(value) is list:
                value.extend(content)
            else:
                value.update(content)

    def _copy_of(self, state: State, prefix: str, name: str) -> State:
        if type(state) is not dict:
            raise StateRefused(f"{name} is a {type(state).__name__}: {_ALLOWED}")
        _check_keys(state, prefix)
        found = state.copy()
        self._contents.setdefault(id(state), (state, found))
        if FLAT.issuperset(map(type, found.values())):
            return found
        return {key: _copy(value, f"{prefix}{key}", self._contents) for key, value in found.items()}


Contents = dict[int, tuple[Any, Any]]


def _copy(value: Any, path: str, contents: Contents, left: list[int] | None = None, depth: int = 0) -> Any:
    """Return a copy of plain data without aliases, and record the content of each list and dictionary.

    ``left`` contains the number of values that are still allowed.
    """
    kind = type(value)
    if kind in FLAT or (kind.__module__ == "numpy" and isinstance(value, float | str)):
        return value  # other subclasses could contain more than their value
    if kind is not list and kind is not dict:
        raise StateRefused(f"{path!r} is a {kind.__name__}: {_ALLOWED}")
    if depth > MAX_DEPTH:
        raise StateRefused(f"{path!r} is nested more than {MAX_DEPTH} deep")
    left = [MAX_VALUES] if left is None else left
    left[0] -= len(value)
    if left[0] < 0:
        raise StateRefused(f"{path!r} and its neighbours contain more than {MAX_VALUES:,} values")
    contents.setdefault(id(value), (value, value.copy()))
    if kind is dict:
        _check_keys(value, f"{path}.")
        return {key: _copy(each, f"{path}.{key}", contents, left, depth + 1) for key, each in value.items()}
    return [_copy(each, f"{path}[{n}]", contents, left, depth + 1) for n, each in enumerate(value)]


def _check_keys(state: State, prefix: str) -> None:
    if not prefix and WORLD in state:
        raise StateRefused(f"the agent's own key {WORLD!r} would be taken for the shared state: rename it")
    if _TEXT.issuperset(map(type, state)) and "." not in "".join(state):
        return
    for key in state:
        if type(key) is not str:
            raise StateRefused(f"the key {key!r} at {prefix.rstrip('.') or 'the top'!r} is not a text")
        if "." in key:
            raise StateRefused(f"the key {prefix + key!r} has a dot, which separates nested keys: rename it")


def _changes(before: State, now: State, prefix: str) -> Iterator[Change]:
    kept = len(before)
    for key, old in before.items():
        new = now.get(key, MISSING)
        if new is old:
            continue
        if new is MISSING:
            kept -= 1
            yield f"{prefix}{key}", old, MISSING
        elif type(old) is dict and type(new) is dict:
            yield from _changes(old, new, f"{prefix}{key}.")
        elif not equal(old, new):
            yield f"{prefix}{key}", old, _copy(new, f"{prefix}{key}", {})
    if len(now) > kept:
        _check_keys(now, prefix)
        for key, new in now.items():
            if key not in before:
                yield f"{prefix}{key}", MISSING, _copy(new, f"{prefix}{key}", {})


def equal(old: Any, new: Any) -> bool:
    """Return whether two values are equal and have equal types throughout; NaN is equal to NaN."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if type(old) is list:
        return len(old) == len(new) and all(map(equal, old, new))
    if type(old) is dict:
        return old.keys() == new.keys() and all(equal(each, new[key]) for key, each in old.items())
    return bool(old == new or (old != old and new != new))  # noqa: PLR0124


def copied(value: Any, depth: int = 0) -> Any:
    """Return a deep copy of lists and mappings, and any other value unchanged.

    >>> rooms = ["hall"]
    >>> seen = copied({"rooms": rooms})
    >>> rooms.append("attic")
    >>> seen
    {'rooms': ['hall']}
    """
    if type(value) in FLAT:
        return value
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {key: copied(each, depth + 1) for key, each in value.items()}
    return [copied(each, depth + 1) for each in value] if isinstance(value, list) else value


@dataclass(slots=True)
class Ledger:
    """The step at which each agent last did each skill, for cooldowns.

    Brokers that share a ledger decide one proposal at a time, under its ``lock``. ``busy`` is true while an
    engine acts.

    >>> ledger = Ledger()
    >>> ledger.add("move", agent_id="h1", step=3)
    >>> ledger.agents
    {'h1': {'move': 3}}
    """

    agents: dict[str, dict[str, int]] = field(default_factory=dict)
    busy: bool = field(default=False, compare=False)
    lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def add(self, skill_id: str, *, agent_id: str, step: int) -> None:
        """Record that an agent did a skill."""
        self.agents.setdefault(agent_id, {})[skill_id] = step

    def take_back(self, skill_id: str, *, agent_id: str, step: int, before: int | None) -> None:
        """Undo ``add``, unless the agent has done the skill again; ``before`` is its former last step."""
        last = self.agents[agent_id]
        if last.get(skill_id) == step:
            del last[skill_id]
            if before is not None:
                last[skill_id] = before
            if not last:
                del self.agents[agent_id]


class Charge(Struct, frozen=True, gc=False):
    """A cost: the dictionary and key that it is taken from, and the value before and after."""

    purse: State
    key: str
    path: str
    before: Any
    left: Any
    cost: Any

    def split(self, changes: Sequence[Change]) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """Return the changes with that of the purse first, and those that the charge did not make.

        If the purse has its former value again, the engine refilled it.
        """
        after = next((new for key, _, new in changes if key == self.path), self.before)
        others = tuple(change for change in changes if change[0] != self.path)
        by_engine = others if equal(after, self.left) else ((self.path, self.left, after), *others)
        return ((self.path, self.before, after), *others), by_engine
