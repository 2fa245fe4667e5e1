"""The rules of one skill → one Python function that checks all of them.

The first half of the function reads what the clauses need and asks them one after the other. Only if
something is missing or does not fit, the second half does so with more care. A denial keeps what was seen, so
that reasons can be put into words later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from vademecum.governance import expression as ex
from vademecum.governance.clauses import COST, FIRST_CONDITION, PARAMETERS, Clauses
from vademecum.governance.copies import FLAT, kept
from vademecum.governance.emit import NAMES, Emitter, rooted
from vademecum.governance.evaluate import FAILURES
from vademecum.governance.gate import Test, is_plain, numbers, tests_of, uses_of
from vademecum.governance.ledger import NEVER, History, Ledger, uses_in
from vademecum.governance.model import MISSING, VALID, ValidationResult
from vademecum.governance.parameters import fit
from vademecum.governance.rules import Rules

_ANY = ex.Constant(value=True)


class Check(Protocol):
    """A compiled skill: the agent's type and state, the shared state, the parameters, the past, the step."""

    def __call__(  # noqa: PLR0913, PLR0917 - what a check depends on
        self,
        t: str,
        s: Mapping[str, Any],
        w: Mapping[str, Any],
        p: Mapping[str, Any],
        h: History,
        step: int,
        ledger: Ledger,
        /,
    ) -> ValidationResult:
        """Say whether everything holds."""
        ...


class Program:
    """A skill that can be checked: its clauses, and the function that was made of them."""

    def __init__(self, rules: Rules, *, compat: bool = False, mapping: str = "") -> None:
        self.clauses = Clauses(rules, compat)
        self.mapping = mapping
        self.rules = rules
        self.reads = self.clauses.reads
        constraints = rules.constraints
        self.purse = str(constraints.purse)
        *self.is_shared, self.purse_key = constraints.purse.parts
        self.is_free = constraints.cost is None
        self.is_limited = constraints.limits.window(0) is not None
        names = _compiled(self.clauses)
        self.check: Check = names["check"]
        # What the clauses read, by its path, and what the skill costs: of the state, the shared state and,
        # for the cost, what the intent says.
        self.look: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = names["look"]
        self.cost: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], Any] = names["cost"]

    @cached_property
    def said(self) -> tuple[str, ...]:
        """The names of the parameters that conditions and the cost read."""
        cost = self.rules.constraints.cost
        trees = [condition.tree for condition in self.rules.conditions]
        paths = (p for tree in [*trees, *([cost.tree] if cost else [])] for p in ex.paths_of(tree))
        return tuple(dict.fromkeys(p.parts[1] for p in paths if len(p.parts) > 1 and p.parts[0] == "params"))

    @cached_property
    def said_bits(self) -> int:
        """The bits of the clauses that depend on what an intent says besides the skill's name."""
        found = PARAMETERS
        for number, condition in enumerate(self.rules.conditions):
            if _reads_parameters(condition.tree):
                found |= 1 << (FIRST_CONDITION + number)
        cost = self.rules.constraints.cost
        return found | (COST if cost is not None and _reads_parameters(cost.tree) else 0)


def _reads_parameters(tree: ex.Tree) -> bool:
    return any(len(path.parts) > 1 and path.parts[0] == "params" for path in ex.paths_of(tree))


def _compiled(clauses: Clauses) -> dict[str, Any]:
    names: dict[str, Any] = {
        **NAMES,
        "FAILURES": FAILURES,
        "FLAT": FLAT,
        "kept": kept,
        "MISSING": MISSING,
        "NEVER": NEVER,
        "VALID": VALID,
        "Result": ValidationResult,
        "clauses": clauses,
        "fit": fit,
        "uses_in": uses_in,
        "seen_at": _seen_at,
        "rules": clauses.rules,
        "SCHEMA": clauses.rules.parameters,
        "ROLES": clauses.rules.roles.types,
        "TYPES": clauses.rules.types.types,
    }
    text = "\n".join((_source(clauses), _look(clauses), _price(clauses.rules)))
    code = compile(text, f"<skill {clauses.rules.skill_id!r}>", "exec")
    exec(code, names)  # noqa: S102 - the text is made by this package alone, see `emit`
    return names


def _source(clauses: Clauses) -> str:
    emit = Emitter(compat=clauses.compat)
    tests = tests_of(clauses.rules, emit, Emitter())
    if not tests:
        return "def check(t, s, w, p, h, step, ledger):\n    return VALID"
    known = {path: f"v{number}" for number, path in enumerate(clauses.reads)}
    again = tests_of(clauses.rules, emit if clauses.compat else Emitter(known=known), Emitter(known=known))
    both = list(zip(again, tests, strict=True))
    surely = {
        path
        for test in again
        if is_plain(test, compat=clauses.compat)
        for path in ex.paths_of(test.tree or _ANY)
    }
    lines = ["def check(t, s, w, p, h, step, ledger):", "    try:"]
    lines += [f"        {name} = {Emitter().value(path)}" for path, name in known.items() if path in surely]
    lines.append("        bits = 0")
    for test, first in both:
        text = test.text if test.tree is None or is_plain(test, compat=clauses.compat) else first.text
        lines += [f"        if not {text}:", f"            bits |= {test.bit}"]
    lines += ["        if not bits:", "            return VALID"]
    lines += [f"        {name} = {_value_at(path)}" for path, name in known.items() if path not in surely]
    lines += _keeping(name for path, name in known.items() if path not in numbers(again, surely))
    lines += ["    except FAILURES:"]
    lines += [f"        {name} = {_value_at(path)}" for path, name in known.items()]
    lines += ["        bits = 0"]
    for test, first in both:
        lines += _counted(test, first, known, compat=clauses.compat)
    lines += _keeping(known.values())
    lines.append(f"    return Result(bits, clauses, {_seen(clauses, known.values())})")
    return "\n".join(lines)


def _keeping(names: Iterable[str]) -> list[str]:
    """The lines that keep lists and dictionaries as they are at the check."""
    return [f"        {name} = {name} if type({name}) in FLAT else kept({name})" for name in names]


def _look(clauses: Clauses) -> str:
    lines = ["def look(s, w):", "    found = {}"]
    for path in clauses.reads:
        lines += [
            f"    v = {_value_at(path)}",
            "    if v is not MISSING:",
            f"        found[{str(path)!r}] = v if type(v) in FLAT else kept(v)",
        ]
    return "\n".join([*lines, "    return found"])


def _price(rules: Rules) -> str:
    cost = rules.constraints.cost
    return f"def cost(s, w, p):\n    return {'0' if cost is None else Emitter().number(cost.tree)}"


def _counted(test: Test, first: Test, known: Mapping[ex.Path, str], *, compat: bool) -> list[str]:
    """The lines that set the bit of one clause where it does not hold, when something could not be read."""
    if test.tree is None:
        return [f"        if not {test.text}:", f"            bits |= {test.bit}"]
    plain = is_plain(test, compat=compat)
    paths = [known[path] for path in ex.paths_of(test.tree) if path in known] if plain else []
    absent = "".join(f"{name} is MISSING or " for name in paths)
    return [
        "        try:",
        f"            if {absent}not {test.text if plain else first.text}:",
        f"                bits |= {test.bit}",
        "        except FAILURES:",
        f"            bits |= {test.bit}",
    ]


def _seen(clauses: Clauses, values: Iterable[str]) -> str:
    """What is kept of a denial: the fields of ``clauses.Seen``, in their order."""
    rules, limits = clauses.rules, clauses.rules.constraints.limits
    last = f"h.last.get({rules.skill_id!r})" if rules.constraints.cooldown else "None"
    limited = any(most is not None for most in (limits.agent, limits.type, limits.population))
    uses = ", ".join(uses_of(rules)) if limited else "0, 0, 0"
    conflicts, needs = (
        f"({' '.join(f'h.last.get({other!r}),' for other in others)})"
        for others in (rules.conflicts, rules.needs)
    )
    seen = " ".join(f"{name}," for name in values)
    since = "ledger.conflicts_from(step)" if rules.conflicts else "step"
    return f"(t, p and kept(p), step, {since}, {last}, ({uses}), {conflicts}, {needs}, ({seen}))"


def _value_at(path: ex.Path) -> str:
    root, parts = rooted(path)
    if len(parts) == 1:
        return f"{root}.get({parts[0]!r}, MISSING)"
    return f"seen_at({root}, {parts!r})"


def _seen_at(state: Any, parts: tuple[str, ...]) -> Any:
    for part in parts:
        try:
            state = state[part]
        except FAILURES:
            return MISSING
    return state
