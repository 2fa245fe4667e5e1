"""Define which skills an agent type may propose, and which state keys it may read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from vademecum.governance.definitions import (
    EVERYBODY,
    VALID,
    Clause,
    GovernedAgent,
    Reason,
    ValidationResult,
    refusal,
    texts,
)
from vademecum.governance.state import FLAT, SHARED, WORLD, copied
from vademecum.wildcards import matches_exactly

MAX_REMEMBERED = 10_000


@lru_cache(MAX_REMEMBERED)
def covered(key: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the patterns match a key, or one that contains it.

    A shared key begins with ``world.``, and only a pattern that begins with it matches it: ``*`` means all of
    the agent's own keys.

    >>> covered("home.floor", ("home",)), covered("home", ("home.floor",)), covered("home.floor", ("*",))
    (True, False, True)
    >>> [covered("world.dike", (pattern,)) for pattern in ("*", "world.*", "world")]
    [False, True, True]
    """
    parts = key.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    shared = parts[0] == WORLD
    return any(
        (pattern.partition(".")[0] == WORLD) is shared and matches_exactly(pattern, name)
        for pattern in patterns
        for name in names
    )


@dataclass(frozen=True, slots=True)
class Role:
    """The skills that an agent type may propose, and the state keys that it may read and write.

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
        """Return the role in the form of a charter file."""
        return {"skills": list(self.skills), "reads": list(self.reads), "writes": list(self.writes)}


@dataclass(frozen=True, slots=True)
class RoleEnforcer:
    """The roles by agent type; ``*`` is the role of every type without its own. A type without a role may do
    nothing.

    >>> roles = RoleEnforcer({"insurer": Role(["set_premium"], reads=["*"], writes=["world.premium_rate"])})
    >>> roles.check_write("insurer", "world.subsidy_rate").message
    "Agent type 'insurer' may not write 'world.subsidy_rate'"
    """

    roles: Mapping[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep an immutable copy of the roles."""
        object.__setattr__(self, "roles", MappingProxyType(dict(self.roles)))

    def role_of(self, agent_type: str) -> Role:
        """Return the role of a type."""
        return self.roles.get(agent_type) or self.roles.get(EVERYBODY) or Role()

    def check_skill(self, agent_type: str, skill_id: str) -> ValidationResult:
        """Check whether a type may propose a skill."""
        skills = self.role_of(agent_type).skills
        if any(matches_exactly(pattern, skill_id) for pattern in skills):
            return VALID
        text = f"Agent type {agent_type!r} may not propose skill {skill_id!r} in its role"
        return refusal(Reason("role", "roles", agent_type, list(skills), text), bits=Clause.ROLE)

    def check_read(self, agent_type: str, key: str) -> ValidationResult:
        """Check whether a type may read a state key."""
        return self._access("read", agent_type, key, self.role_of(agent_type).reads)

    def check_write(self, agent_type: str, key: str) -> ValidationResult:
        """Check whether a type may write a state key."""
        return self._access("write", agent_type, key, self.role_of(agent_type).writes)

    def _access(self, verb: str, agent_type: str, key: str, patterns: Sequence[str]) -> ValidationResult:
        if covered(key, patterns):
            return VALID
        text = f"Agent type {agent_type!r} may not {verb} {key!r}"
        return refusal(Reason(f"{verb}-permission", f"roles: {verb}s", key, list(patterns), text))

    def view(self, agent: GovernedAgent, *, world: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a copy of the keys that an agent may read: its own, and the shared ones under ``world``."""
        reads = tuple(self.role_of(agent.type).reads)
        seen = _part(agent.state, reads, "")
        if world is not None:
            seen[WORLD] = _part(world, reads, SHARED)
        return seen

    def to_json(self) -> dict[str, Any]:
        """Return the roles in the form of a charter file."""
        return {name: role.to_json() for name, role in self.roles.items()}


# Without roles, every type may propose every skill, and read and write all its own and all shared keys.
UNRESTRICTED = RoleEnforcer({EVERYBODY: Role(["*"], ["*", f"{SHARED}*"], ["*", f"{SHARED}*"])})


def _part(state: Mapping[str, Any], reads: tuple[str, ...], prefix: str) -> dict[str, Any]:
    """Return a copy of the readable part of a mapping."""
    whole, others = _divided(tuple(state), reads, prefix)
    seen = {key: state[key] for key in whole}
    if not FLAT.issuperset(map(type, seen.values())):
        seen = copied(seen)
    for key in others:
        value = state[key]
        if isinstance(value, dict) and (inner := _part(value, reads, f"{prefix}{key}.")):
            seen[key] = inner
    return seen


@lru_cache(MAX_REMEMBERED)  # most agents of a type have the same keys
def _divided(keys: tuple[str, ...], reads: tuple[str, ...], prefix: str) -> tuple[list[str], list[str]]:
    whole = [key for key in keys if covered(f"{prefix}{key}", reads)]
    return whole, [key for key in keys if key not in whole]
