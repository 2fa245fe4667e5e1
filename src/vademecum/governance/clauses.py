"""The clauses of one skill: which bit of a check stands for which, and what each says when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from vademecum.governance import expression as ex
from vademecum.governance.evaluate import EMPTY, FAILURES, NO_FACTS, Facts, NotThere, evaluate
from vademecum.governance.keys import is_shared
from vademecum.governance.model import MISSING, May, Reason, may_read_all
from vademecum.governance.parameters import wrong_parameters
from vademecum.governance.rules import Allowed, Condition, Rules
from vademecum.governance.words import HIDDEN, shown

UNKNOWN, ROLE, TYPE, PARAMETERS = 1, 2, 4, 8
COST, COOLDOWN, LIMIT_AGENT, LIMIT_TYPE, LIMIT_ALL = 16, 32, 64, 128, 256
CONFLICT, DEPENDENCY, CHANGE, ENGINE = 512, 1024, 2048, 4096
FIRST_CONDITION = 16


class Seen(NamedTuple):
    """What a check saw, in the order in which the compiled function puts it down."""

    agent_type: str
    params: Any
    step: int
    since: int
    last: int | None
    uses: tuple[int, int, int]
    conflicts: tuple[int | None, ...]
    needs: tuple[int | None, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Clauses:
    """The clauses of a skill, in the order of the gate."""

    rules: Rules
    compat: bool = False

    @cached_property
    def reads(self) -> tuple[ex.Path, ...]:
        """Every path that a clause reads, the parameters aside."""
        return reads_of(self.rules)

    def reasons(self, bits: int, observed: tuple[Any, ...], may: May = may_read_all) -> tuple[Reason, ...]:
        """Every reason behind the bits; values that may not be read are left out of the words."""
        return tuple(self._reasons(bits, Seen(*observed), may))

    def _reasons(self, bits: int, seen: Seen, may: May) -> Iterator[Reason]:
        rules = self.rules
        reads_state = bits & COST or bits >> FIRST_CONDITION
        facts = facts_of(self.reads, seen, compat=self.compat) if reads_state else NO_FACTS
        name, type_ = rules.skill_id, seen.agent_type
        if bits & ROLE:
            text = f"Agent type {type_!r} may not propose skill {name!r} in its role"
            yield Reason("role", "roles", type_, _named(rules.roles), text)
        if bits & TYPE:
            text = f"Agent type {type_!r} not eligible for skill {name!r}"
            yield Reason("type", "eligible_agent_types", type_, _named(rules.types), text)
        if bits & PARAMETERS:
            yield from wrong_parameters(rules.parameters or {}, seen.params)
        for number, condition in enumerate(rules.conditions):
            if bits & (1 << (FIRST_CONDITION + number)):
                yield failed_condition(condition, facts, may)
        if bits & COST:
            yield self._too_dear(facts, may)
        yield from self._too_often(bits, seen)
        yield from self._not_with(bits, seen)

    def _too_dear(self, facts: Facts, may: May) -> Reason:
        constraints = self.rules.constraints
        assert constraints.cost is not None
        facts = Facts(facts.state, facts.world, facts.params)  # a cost was never compatible with anything
        try:
            cost = evaluate(constraints.cost.tree, facts)
            left = facts.at(constraints.purse)
        except NotThere as error:
            text = f"Cost cannot be paid: {str(error.path)!r} is missing"
            return Reason("missing", "cost", MISSING, constraints.cost.text, text)
        except FAILURES as error:
            return Reason("cost", "cost", None, constraints.cost.text, f"Cost cannot be computed ({error})")
        return Reason("cost", "cost", left, cost, self._price(cost, left, may))

    def _price(self, cost: Any, left: Any, may: May) -> str:
        """What is asked for and what there is, as far as it may be read."""
        constraints = self.rules.constraints
        assert constraints.cost is not None
        purse = str(constraints.purse)
        known = all(_may(path, may) for path in ex.paths_of(constraints.cost.tree))
        there = shown(left) if may(purse) else HIDDEN
        return f"{f'Cost {shown(cost)}' if known else 'The cost'} exceeds {purse!r} ({there})"

    def _too_often(self, bits: int, seen: Seen) -> Iterator[Reason]:
        constraints, limits = self.rules.constraints, self.rules.constraints.limits
        if bits & COOLDOWN and seen.last is not None:
            ready = seen.last + constraints.cooldown
            text = f"Cooldown of {constraints.cooldown} not over: used at step {seen.last}, ready at {ready}"
            yield Reason("cooldown", "cooldown", seen.step, ready, text)
        span = limits.span
        known = (
            (LIMIT_AGENT, "agent", limits.agent, "this agent"),
            (LIMIT_TYPE, "type", limits.type, f"type {seen.agent_type!r}"),
            (LIMIT_ALL, "population", limits.population, "all agents together"),
        )
        for (bit, key, most, who), uses in zip(known, seen.uses, strict=True):
            if bits & bit:
                text = f"Limit of {most}{span} reached by {who}"
                yield Reason("limit", f"limits.{key}", uses, most, text)

    def _not_with(self, bits: int, seen: Seen) -> Iterator[Reason]:
        if bits & CONFLICT:
            for other, last in zip(self.rules.conflicts, seen.conflicts, strict=True):
                if last is not None and last >= seen.since:
                    when = "in the same step" if seen.since == seen.step else f"at step {last}"
                    text = f"Conflicts with {other!r}, done {when}"
                    yield Reason("conflict", f"conflicts_with: {other}", last, None, text)
        if bits & DEPENDENCY:
            for other, last in zip(self.rules.needs, seen.needs, strict=True):
                if last is None:
                    text = f"Depends on {other!r}, which was not done yet"
                    yield Reason("dependency", f"depends_on: {other}", None, other, text)


def reads_of(rules: Rules) -> tuple[ex.Path, ...]:
    """Every path outside of the parameters that the rules read, once each."""
    cost = rules.constraints.cost
    trees = [condition.tree for condition in rules.conditions]
    if cost is not None:
        trees += [cost.tree, rules.constraints.purse]
    paths = dict.fromkeys(path for tree in trees for path in ex.paths_of(tree))
    return tuple(path for path in paths if len(path.parts) == 1 or path.parts[0] != "params")


def facts_of(reads: tuple[ex.Path, ...], seen: Seen, *, compat: bool) -> Facts:
    """What a check saw, as conditions read it."""
    state: dict[str, Any] = {}
    world: dict[str, Any] = {}
    for path, value in zip(reads, seen.values, strict=True):
        if value is not MISSING:
            _put(world if _is_world(path) else state, path, value)
    return Facts(state, world, seen.params or EMPTY, compat=compat)


def _is_world(path: ex.Path) -> bool:
    return len(path.parts) > 1 and is_shared(path.parts[0])


def _may(path: ex.Path, may: May) -> bool:
    """Whether a path may be read: what the intent says itself is no secret."""
    return (len(path.parts) > 1 and path.parts[0] == "params") or may(str(path))


def _put(state: dict[str, Any], path: ex.Path, value: Any) -> None:
    parts = path.parts[1:] if _is_world(path) else path.parts
    for part in parts[:-1]:
        inner = state.get(part)
        if not isinstance(inner, dict):
            inner = state[part] = {}
        state = inner
    state.setdefault(parts[-1], value)


def failed_condition(condition: Condition, facts: Facts, may: May = may_read_all) -> Reason:
    """What a condition that does not hold says: what is missing, does not fit, or is otherwise."""
    bare = condition.tree.value if isinstance(condition.tree, ex.Not) else condition.tree
    simple = isinstance(bare, ex.Path)
    found = {name: _seen_at(path, facts) for name, path in condition.paths}
    words = {name: shown(found[name]) if _may(path, may) else HIDDEN for name, path in condition.paths}
    inside = f"field is {next(iter(words.values()))}" if simple else _listed(words)
    code, required = "precondition", condition.text
    try:
        evaluate(condition.tree, facts)
        if simple and not facts.compat:
            evaluate(ex.Not(bare), facts)
    except NotThere as error:
        code = "missing"
        inside = inside if simple else f"{error.path} is missing"
        found = {str(error.path): MISSING}
    except ArithmeticError as error:
        code, inside = "arithmetic", f"{_listed(words)}: {error}"
    except FAILURES:
        code, inside = "wrong-type", f"{inside}, which does not fit"
    observed = next(iter(found.values())) if len(found) == 1 else found
    message = f"Precondition failed: {condition.text!r} ({inside})"
    return Reason(code, condition.text, observed, required, message)


def _seen_at(path: ex.Path, facts: Facts) -> Any:
    try:
        return Facts(facts.state, facts.world, facts.params).at(path)
    except FAILURES:
        return MISSING


def _listed(words: dict[str, str]) -> str:
    return ", ".join(f"{name} is {text}" for name, text in words.items()) or "it never holds"


def _named(allowed: Allowed) -> list[str]:
    """The types in words, as programs read them."""
    names = sorted(allowed.types)
    return [f"all but {name}" for name in names] if allowed.everybody_but else names
