"""Who may propose what, and see and change what: a layer beside the registry, set by the domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from vademecum.governance.copies import FLAT, MAX_DEPTH, kept_all
from vademecum.governance.keys import SHARED, WORLD, covered, reaches_into
from vademecum.governance.model import EVERYBODY, VALID, Agent, Reason, Said, ValidationResult
from vademecum.governance.rules import Allowed
from vademecum.wildcards import is_plain, matches_exactly

_Reach = Literal["all", "part", "none"]


@dataclass(frozen=True, slots=True)
class Role:
    """What a type of agents may do: patterns of skills, of state keys it reads and of those it writes.

    ``*`` is any run of characters. A key lies in another, ``home.floor`` in ``home``, and who may have the
    outer one may have the inner one. Keys of the state that all share begin with ``world.``, and so do the
    patterns for them: ``*`` is everything of the agent's own.

    >>> Role(["set_*"], reads=["*"], writes=["world.premium_rate"]).to_json()["skills"]
    ['set_*']
    """

    skills: Sequence[str] = ()
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()

    def frozen(self) -> Role:
        """The same with patterns that nobody changes."""
        return Role(tuple(self.skills), tuple(self.reads), tuple(self.writes))

    def to_json(self) -> dict[str, list[str]]:
        """The role as a charter file has it."""
        return {"skills": list(self.skills), "reads": list(self.reads), "writes": list(self.writes)}


@dataclass(slots=True)
class _Readable:
    """What a type may read: each key is decided once, and most agents of a type have the same keys."""

    reads: Sequence[str]
    decided: dict[str, _Reach] = field(default_factory=dict)
    # The keys of the last state, those of them that may be read, and those of which a part may be: replaced
    # together, for any thread.
    last: tuple[list[str], list[str], list[str]] = field(default_factory=lambda: ([], [], []))

    def of(self, state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """The part of a state that may be read."""
        keys, may, partly = self.last
        if keys != [*state]:
            keys = [*state]
            reach = {key: self._decide(f"{prefix}{key}") for key in keys}
            may = [key for key, found in reach.items() if found == "all"]
            partly = [key for key, found in reach.items() if found == "part"]
            self.last = keys, may, partly
        seen = dict(state) if len(may) == len(keys) else {key: state[key] for key in may}
        for key in partly:
            found = self._part(f"{prefix}{key}", state[key])
            if found:
                seen[key] = found
        return seen

    def _decide(self, name: str) -> _Reach:
        found = self.decided.get(name)
        if found is None:
            part: _Reach = "part" if reaches_into(name, self.reads) else "none"
            found = self.decided[name] = "all" if covered(name, self.reads) else part
        return found

    def _part(self, name: str, value: Any, depth: int = 0) -> dict[str, Any]:
        """What may be read inside of a dictionary that may not be read as a whole."""
        if not isinstance(value, Mapping) or depth > MAX_DEPTH:
            return {}
        seen: dict[str, Any] = {}
        for key, inner in value.items():
            if covered(f"{name}.{key}", self.reads):
                seen[key] = inner
            elif found := self._part(f"{name}.{key}", inner, depth + 1):
                seen[key] = found
        return seen


@dataclass(frozen=True, slots=True)
class RoleEnforcer:
    """The roles by agent type; ``*`` is the role of every type that has none of its own. No role, no right.

    >>> roles = RoleEnforcer({"insurer": Role(["set_premium"], reads=["*"], writes=["world.premium_rate"])})
    >>> roles.check_write("insurer", "world.subsidy_rate").message
    "Agent type 'insurer' may not write 'world.subsidy_rate'"
    """

    roles: Mapping[str, Role] = field(default_factory=dict)
    _known: dict[str, tuple[_Readable, _Readable]] = field(default_factory=dict, repr=False, compare=False)
    _named: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep copies: what somebody does to his lists later changes no right."""
        object.__setattr__(
            self, "roles", MappingProxyType({name: role.frozen() for name, role in self.roles.items()})
        )
        for name, role in self.roles.items():
            for pattern in role.skills:
                # Which roles name a skill as it is; those with a wildcard are asked one by one.
                key = pattern if is_plain(pattern) else EVERYBODY
                self._named.setdefault(key, []).append(name)

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
        if covered(key, patterns):
            return VALID
        text = f"Agent type {agent_type!r} may not {verb} {key!r}"
        return refusal(Reason(f"{verb}-permission", f"roles: {verb}s", key, list(patterns), text))

    def view(self, agent: Agent, *, world: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state that an agent may read: its own keys, and the shared ones below ``world``."""
        known = self._known.get(agent.type)
        if known is None:
            reads = self.role_of(agent.type).reads
            known = self._known[agent.type] = (_Readable(reads), _Readable(reads))
        own, shared = known
        seen, common = own.of(agent.state, ""), shared.of(world or {}, SHARED)
        if not (FLAT.issuperset(map(type, seen.values())) and FLAT.issuperset(map(type, common.values()))):
            seen, common = kept_all(seen), kept_all(common)  # what is nested could be changed in place
        if world:
            seen[WORLD] = common
        return seen

    def proposers(self, skill_id: str) -> Allowed:
        """The types that may propose a skill."""
        asked = {*self._named.get(skill_id, ()), *self._named.get(EVERYBODY, ())}
        may = {name for name in asked if _any(self.roles[name].skills, skill_id)}
        if EVERYBODY not in may:
            return Allowed(frozenset(may))
        return Allowed(frozenset(name for name in self.roles if name not in may), everybody_but=True)

    def to_json(self) -> dict[str, Any]:
        """The roles as a charter file has them."""
        return {name: role.to_json() for name, role in self.roles.items()}


def refusal(*reasons: Reason, bits: int = 1) -> ValidationResult:
    """A result that is known to be no."""
    return ValidationResult(bits, Said(reasons))


def _any(patterns: Sequence[str], text: str) -> bool:
    return any(matches_exactly(pattern, text) for pattern in patterns)
