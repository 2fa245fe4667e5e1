"""Patterns of state keys: what a role may read and write, and what a skill may change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vademecum.wildcards import matches_exactly

WORLD = "world"
SHARED = f"{WORLD}."
# All of an agent's own keys, and all of those that everybody shares.
EVERYTHING = ("*", f"{SHARED}*")


def covered(key: str, patterns: Sequence[str]) -> bool:
    """Whether a key, or one that it lies in, is among the patterns.

    A shared key begins with ``world.``, and only a pattern that begins with it too is meant for it: ``*`` is
    everything of the agent's own.

    >>> covered("home.floor", ["home"]), covered("home", ["home.floor"]), covered("home.floor", ["*"])
    (True, False, True)
    >>> covered("world.dike", ["*"]), covered("world.dike", ["world.*"]), covered("world.dike", ["world"])
    (False, True, True)
    """
    parts = key.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    shared = is_shared(key)
    return any(
        is_shared(pattern) is shared and matches_exactly(pattern, name)
        for pattern in patterns
        for name in names
    )


def is_shared(key: str) -> bool:
    """Whether a key or a pattern is about the state that all share."""
    return key.partition(".")[0] == WORLD


def reaches_into(key: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern may be about something inside of a key; in doubt it is.

    >>> [reaches_into("home", [pattern]) for pattern in ("home.floor", "h*.floor", "homes.x")]
    [True, True, False]
    """
    inside = f"{key}."
    heads = [
        re.split(r"[*?]", pattern, maxsplit=1) for pattern in patterns if is_shared(pattern) is is_shared(key)
    ]
    return any(head.startswith(inside) or (bool(rest) and inside.startswith(head)) for head, *rest in heads)
