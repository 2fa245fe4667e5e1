"""Who may propose what, and see and change what: a layer beside the registry, set by the domain."""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vademecum.governance.model import EVERYBODY, VALID, Agent, Reason, Said, ValidationResult
from vademecum.governance.rules import Allowed
from vademecum.wildcards import matches_exactly

WORLD = "world"


@dataclass(frozen=True, slots=True)
class Role:
    """What a type of agents may do: patterns of skills, of state keys it reads and of those it writes.

    Keys of the state that all share begin with ``world.``. ``*`` is any run of characters.

    >>> Role(["set_*"], reads=["*"], writes=["world.premium_rate"]).to_json()["skills"]
    ['set_*']
    """

    skills: Sequence[str] = ()
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()

    def to_json(self) -> dict[str, list[str]]:
        """The role as a charter file has it."""
        return {"skills": list(self.skills), "reads": list(self.reads), "writes": list(self.writes)}


@dataclass(slots=True)
class _Readable:
    """What a type may read: each key is decided once, and most agents of a type have the same keys."""

    decided: dict[str, bool] = field(default_factory=dict)
    # The keys of the last state and those among them that may be read: replaced together, for any thread.
    last: tuple[KeysView[str], list[str]] = field(default_factory=lambda: (dict[str, None]().keys(), []))

    def decide(self, key: str, name: str, reads: Sequence[str]) -> bool:
        """Whether a key may be read, which is written with this name in a role."""
        found = self.decided.get(key)
        if found is None:
            found = self.decided[key] = _any(reads, name)
        return found


@dataclass(frozen=True, slots=True)
class RoleEnforcer:
    """The roles by agent type; ``*`` is the role of every type that has none of its own. No role, no right.

    >>> roles = RoleEnforcer({"insurer": Role(["set_premium"], reads=["*"], writes=["world.premium_rate"])})
    >>> roles.check_write("insurer", "world.subsidy_rate").message
    "Agent type 'insurer' may not write 'world.subsidy_rate'"
    """

    roles: Mapping[str, Role] = field(default_factory=dict)
    _known: dict[tuple[str, str], _Readable] = field(default_factory=dict, repr=False, compare=False)

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
        seen = self._readable(agent.type, agent.state, "")
        if world:
            seen[WORLD] = self._readable(agent.type, world, f"{WORLD}.")
        return seen

    def _readable(self, agent_type: str, state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """The part of a state that a type may read; which keys that are is found out once."""
        known = self._known.get((agent_type, prefix))
        if known is None:
            known = self._known[agent_type, prefix] = _Readable()
        keys, may = known.last
        if keys != state.keys():
            reads = self.role_of(agent_type).reads
            keys = dict.fromkeys(state).keys()
            may = [key for key in keys if known.decide(key, f"{prefix}{key}", reads)]
            known.last = keys, may
        return dict(state) if len(may) == len(keys) else {key: state[key] for key in may}

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
    return any(matches_exactly(pattern, text) for pattern in patterns)
