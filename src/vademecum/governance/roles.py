"""Say which skills an agent type may propose, and which state keys it may read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from vademecum.governance.check import Allowed
from vademecum.governance.definitions import (
    EMPTY,
    EVERYBODY,
    VALID,
    GovernedAgent,
    Reason,
    ValidationResult,
    refusal,
    texts,
)
from vademecum.governance.state import FLAT, SHARED, WORLD, copied
from vademecum.wildcards import is_plain, matches_exactly

# All of an agent's own keys and all shared keys.
EVERYTHING = ("*", f"{SHARED}*")
MAX_REMEMBERED = 10_000

# The keys of a mapping, those that may be read, and those of which a part may be read.
_Readable = tuple[list[str], list[str], list[str]]


def covered(key: str, patterns: Sequence[str]) -> bool:
    """Return whether a key, or one that contains it, is among the patterns.

    A shared key begins with ``world.``, and only a pattern that begins with it matches it: ``*`` means all of
    the agent's own keys.

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
    """Return whether a key or a pattern refers to the shared state."""
    return key.partition(".")[0] == WORLD


def _reaches_into(key: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern may match something inside a key; in doubt it does."""
    inside = f"{key}."
    heads = [
        re.split(r"[*?]", pattern, maxsplit=1) for pattern in patterns if is_shared(pattern) is is_shared(key)
    ]
    return any(head.startswith(inside) or (bool(rest) and inside.startswith(head)) for head, *rest in heads)


@dataclass(frozen=True, slots=True)
class Role:
    """List the skills that an agent type may propose, and the state keys that it may read and write.

    In these patterns ``*`` is any run of characters. A pattern for ``home`` includes ``home.floor``. Patterns
    for the shared state begin with ``world.``; ``*`` means all of the agent's own keys.

    >>> Role(["set_*"], reads=["*"], writes=["world.premium_rate"]).to_json()["skills"]
    ['set_*']
    """

    skills: Sequence[str] = ()
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Keep immutable copies, or raise ``CharterRefused`` if a list is a single text."""
        for key in ("skills", "reads", "writes"):
            object.__setattr__(self, key, texts(key, getattr(self, key)))

    def to_json(self) -> dict[str, list[str]]:
        """Return the role as a charter file has it."""
        return {"skills": list(self.skills), "reads": list(self.reads), "writes": list(self.writes)}


@dataclass(frozen=True, slots=True)
class RoleEnforcer:
    """Enforce roles by agent type; ``*`` is the role of every type without one. A type without a role may
    do nothing.

    >>> roles = RoleEnforcer({"insurer": Role(["set_premium"], reads=["*"], writes=["world.premium_rate"])})
    >>> roles.check_write("insurer", "world.subsidy_rate").message
    "Agent type 'insurer' may not write 'world.subsidy_rate'"
    """

    roles: Mapping[str, Role] = field(default_factory=dict)
    _readable: dict[tuple[str, str], _Readable] = field(default_factory=dict, repr=False, compare=False)
    # Which roles name a skill; those with a wildcard are under ``*``.
    _named: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep an immutable copy of the roles."""
        object.__setattr__(self, "roles", MappingProxyType(dict(self.roles)))
        for name, role in self.roles.items():
            for pattern in role.skills:
                self._named.setdefault(pattern if is_plain(pattern) else EVERYBODY, []).append(name)

    def role_of(self, agent_type: str) -> Role:
        """Return the role of a type."""
        return self.roles.get(agent_type) or self.roles.get(EVERYBODY) or Role()

    def check_skill(self, agent_type: str, skill_id: str) -> ValidationResult:
        """Check whether a type may propose a skill."""
        skills = self.role_of(agent_type).skills
        if any(matches_exactly(pattern, skill_id) for pattern in skills):
            return VALID
        text = f"Agent type {agent_type!r} may not propose skill {skill_id!r} in its role"
        return refusal(Reason("role", "roles", agent_type, list(skills), text))

    def check_read(self, agent_type: str, key: str) -> ValidationResult:
        """Check whether a type may read a state key."""
        return _access(agent_type, key, "read", self.role_of(agent_type).reads)

    def check_write(self, agent_type: str, key: str) -> ValidationResult:
        """Check whether a type may write a state key."""
        return _access(agent_type, key, "write", self.role_of(agent_type).writes)

    def view(self, agent: GovernedAgent, *, world: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
        """Return a copy of what an agent may read: its own keys, and the shared ones under ``world``."""
        seen = self._part(agent.type, "", agent.state)
        if world:
            seen[WORLD] = self._part(agent.type, SHARED, world)
        return seen

    def _part(self, agent_type: str, prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a mapping that a type may read."""
        known = self._readable.get((agent_type, prefix))
        if known is None or known[0] != [*state]:
            known = self._decide(agent_type, prefix, [*state])
        _, whole, partly = known
        seen = {key: state[key] for key in whole}
        if not FLAT.issuperset(map(type, seen.values())):
            seen = copied(seen)
        for key in partly:
            value = state[key]
            inner = self._part(agent_type, f"{prefix}{key}.", value) if isinstance(value, Mapping) else {}
            seen |= {key: inner} if inner else {}
        return seen

    def _decide(self, agent_type: str, prefix: str, keys: list[str]) -> _Readable:
        """Decide which keys may be read, and remember it: most agents of a type have the same keys."""
        reads = self.role_of(agent_type).reads
        whole = [key for key in keys if covered(f"{prefix}{key}", reads)]
        partly = [key for key in keys if key not in whole and _reaches_into(f"{prefix}{key}", reads)]
        if len(self._readable) >= MAX_REMEMBERED:
            self._readable.clear()
        found = self._readable[agent_type, prefix] = (keys, whole, partly)
        return found

    def proposers(self, skill_id: str) -> Allowed:
        """Return the types that may propose a skill."""
        asked = {*self._named.get(skill_id, ()), *self._named.get(EVERYBODY, ())}
        may = {name for name in asked if self.check_skill(name, skill_id)}
        if EVERYBODY not in may:
            return Allowed(frozenset(may))
        return Allowed(frozenset(name for name in self.roles if name not in may), all_except=True)

    def to_json(self) -> dict[str, Any]:
        """Return the roles as a charter file has them."""
        return {name: role.to_json() for name, role in self.roles.items()}


def _access(
    agent_type: str, key: str, verb: Literal["read", "write"], patterns: Sequence[str]
) -> ValidationResult:
    if covered(key, patterns):
        return VALID
    text = f"Agent type {agent_type!r} may not {verb} {key!r}"
    return refusal(Reason(f"{verb}-permission", f"roles: {verb}s", key, list(patterns), text))
