"""Who may propose what, and see and change what: a layer beside the registry, set by the domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from vademecum.governance.model import EVERYBODY, VALID, Agent, Reason, Said, ValidationResult
from vademecum.governance.rules import Allowed
from vademecum.wildcards import matches_exactly

WORLD = "world"


@dataclass(frozen=True, slots=True)
class Role:
    """What a type of agents may do: patterns of skills, of state keys it reads and of those it writes.

    Keys of the state that all share begin with ``world.``. ``*`` is any run of characters.
    """

    skills: Sequence[str] = ()
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()

    def to_json(self) -> dict[str, list[str]]:
        """The role as a charter file has it."""
        return {"skills": list(self.skills), "reads": list(self.reads), "writes": list(self.writes)}


@dataclass(frozen=True, slots=True)
class RoleEnforcer:
    """The roles by agent type; ``*`` is the role of every type that has none of its own. No role, no right.

    >>> roles = RoleEnforcer({"insurer": Role(["set_premium"], reads=["*"], writes=["world.premium_rate"])})
    >>> roles.check_write("insurer", "world.subsidy_rate").message
    "Agent type 'insurer' may not write 'world.subsidy_rate'"
    """

    roles: Mapping[str, Role] = field(default_factory=dict)

    def role_of(self, agent_type: str) -> Role:
        """The role that holds for a type."""
        return self.roles.get(agent_type) or self.roles.get(EVERYBODY) or Role()

    def check_skill(self, agent_type: str, skill_id: str) -> ValidationResult:
        """Whether a type may propose a skill."""
        if _any(self.role_of(agent_type).skills, skill_id):
            return VALID
        text = f"Agent type {agent_type!r} may not propose skill {skill_id!r} in its role"
        return refusal(Reason("role", "roles", agent_type, list(self.role_of(agent_type).skills), text))

    def check_read(self, agent_type: str, key: str) -> ValidationResult:
        """Whether a type may read a state key."""
        return self._access(agent_type, key, "read")

    def check_write(self, agent_type: str, key: str) -> ValidationResult:
        """Whether a type may write a state key."""
        return self._access(agent_type, key, "write")

    def _access(self, agent_type: str, key: str, verb: Literal["read", "write"]) -> ValidationResult:
        role = self.role_of(agent_type)
        patterns = role.reads if verb == "read" else role.writes
        if _any(patterns, key):
            return VALID
        text = f"Agent type {agent_type!r} may not {verb} {key!r}"
        return refusal(Reason(f"{verb}-permission", f"roles: {verb}s", key, list(patterns), text))

    def view(self, agent: Agent, *, world: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state that an agent may read: its own keys, and the shared ones below ``world``."""
        reads, state = tuple(self.role_of(agent.type).reads), agent.state
        seen = {key: state[key] for key in _readable(reads, tuple(state), "")}
        if world:
            seen[WORLD] = {key: world[key] for key in _readable(reads, tuple(world), f"{WORLD}.")}
        return seen

    def proposers(self, skill_id: str) -> Allowed:
        """The types that may propose a skill."""
        own = {name: _any(role.skills, skill_id) for name, role in self.roles.items() if name != EVERYBODY}
        rest = self.roles.get(EVERYBODY)
        everybody_but = rest is not None and _any(rest.skills, skill_id)
        return Allowed(
            frozenset(name for name, may in own.items() if may is not everybody_but), everybody_but
        )

    def to_json(self) -> dict[str, Any]:
        """The roles as a charter file has them."""
        return {name: role.to_json() for name, role in self.roles.items()}


def refusal(*reasons: Reason, bits: int = 1) -> ValidationResult:
    """A result that is known to be no."""
    return ValidationResult(bits, Said(reasons))


def _any(patterns: Sequence[str], text: str) -> bool:
    return _matched(tuple(patterns), text)


@lru_cache(maxsize=4096)  # the same keys, asked for every agent at every step
def _readable(patterns: tuple[str, ...], keys: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    return tuple(key for key in keys if _matched(patterns, f"{prefix}{key}"))


@lru_cache(maxsize=65_536)
def _matched(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches_exactly(pattern, text) for pattern in patterns)
