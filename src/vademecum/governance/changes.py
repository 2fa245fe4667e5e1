"""What an engine changed: a copy from before, the difference after, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from vademecum.governance.model import MISSING
from vademecum.wildcards import matches_exactly

State = dict[str, Any]
# A key, what was there, what is there; a nested key is written with dots.
Change = tuple[str, Any, Any]

_FLAT = frozenset({int, float, bool, str, type(None)})


def copied(state: State) -> State:
    """A copy that later changes do not reach, however deep they are."""
    before = dict(state)
    if not _FLAT.issuperset(map(type, before.values())):
        for key, value in before.items():
            if type(value) not in _FLAT:
                before[key] = deepcopy(value)
    return before


def restore(state: State, before: State) -> None:
    """Make a state what it was; the dictionary itself stays the one that others hold."""
    state.clear()
    state.update(before)


def difference(before: State, after: State, prefix: str = "") -> Iterator[Change]:
    """Every key that is not what it was.

    >>> list(difference({"a": 1, "home": {"floor": 0}}, {"home": {"floor": 2}, "b": 3}))
    [('a', 1, missing), ('home.floor', 0, 2), ('b', missing, 3)]
    """
    for key, old in before.items():
        new = after.get(key, MISSING)
        if new is old:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from difference(old, new, f"{prefix}{key}.")
        elif not _same(old, new):
            yield f"{prefix}{key}", old, new
    for key, new in after.items():
        if key not in before:
            yield f"{prefix}{key}", MISSING, new


def changed(before: State, state: State, prefix: str = "") -> tuple[Change, ...]:
    """The difference, found quickly where there is none. What is equal has not changed."""
    try:
        if state == before:
            return ()
    except ValueError:  # an array is not simply equal
        pass
    return tuple(difference(before, state, prefix))


def _same(old: Any, new: Any) -> bool:
    """Whether nothing changed."""
    try:
        return bool(old == new) or (old != old and new != new)  # noqa: PLR0124 - not a number stays so
    except ValueError:  # an array, which is not simply equal
        return type(old) is type(new) and bool((old == new).all())


def covered(key: str, patterns: Sequence[str]) -> bool:
    """Whether a key, or one that it lies in, is among the patterns.

    >>> covered("home.floor", ["home"]), covered("home", ["home.floor"]), covered("world.dike", ["world.*"])
    (True, False, True)
    """
    parts = key.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    return any(matches_exactly(pattern, name) for pattern in patterns for name in names)
