"""Check constraints on the steps of a run, while it runs or afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from vademecum.evals.checks.steps import ACTIONS, Pattern, Steps, TakenStep, parse_pattern
from vademecum.runs.record import Event

MAX_PATTERNS = 100
MAX_COUNT = 1_000_000
# The most events that are kept as evidence, and the most that the text names.
MAX_EVIDENCE, MAX_SAID_EVENTS = 1000, 20

ANY_ACTION, ANY_CALL = Pattern("any action"), Pattern("any call")
_SEVERAL = {"any action": ACTIONS, "any call": frozenset({"call_tool", "run_script"})}

Found = Sequence[TakenStep]
# The verdict on the steps so far, and its evidence; ``open`` is a failure unless more steps follow.
Proven = tuple[Literal["pass", "fail", "vacuous", "open"], Found]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named rule: how many steps must match a pattern, or in which order steps must match several.

    Counts include the steps of child runs; orders do not.
    """

    name: str
    kind: Literal["count", "before", "after", "in order", "exact"]
    patterns: tuple[Pattern, ...]
    least: int = 0
    most: int | None = None

    def proven(self, found: Sequence[Found]) -> Proven:
        """Return the verdict on the steps that match each pattern, and its evidence."""
        match self.kind:
            case "count":
                return self._counted(found[0])
            case "before":
                return self._before(*found)
            case "after":
                return _after(*found)
            case "in order":
                return _in_order(found)
            case "exact":
                return _exact(*found)

    def _counted(self, steps: Found) -> Proven:
        proof = steps[: max(1, self.least, 0 if self.most is None else self.most + 1)]
        if self.most is not None and len(steps) > self.most:
            return "fail", proof
        return "open" if len(steps) < self.least else "pass", proof

    def _before(self, first: Found, later: Found) -> Proven:
        if later:
            is_first = first and first[0].place < later[0].place
            return ("pass", [first[0], later[0]]) if is_first else ("fail", later[:1])
        if self.least:
            return "pass" if first else "open", first[:1]
        return "vacuous", []


def _after(first: Found, then: Found) -> Proven:
    if not first:
        return "vacuous", []
    end = then[-1].place if then else -1
    waiting = [step for step in first if step.place >= end]
    if waiting:
        return "open", waiting[:1]
    return "pass", [first[0], next(step for step in then if step.place > first[0].place)]


def _in_order(found: Sequence[Found]) -> Proven:
    """Check that the steps come in this order, with any steps in between."""
    proof: list[TakenStep] = []
    for steps in found:
        end = proof[-1].place if proof else -1
        following = next((step for step in steps if step.place > end), None)
        if following is None:
            return "open", proof
        proof.append(following)
    return "pass", proof


def _exact(*found: Found) -> Proven:
    """Check that the actions match the patterns one by one, and that no other action follows."""
    *wanted, actions = found
    for number, action in enumerate(actions):
        if number >= len(wanted) or action not in wanted[number]:
            return "fail", actions[max(0, number - 1) : number + 1]
    return "pass" if len(actions) == len(wanted) else "open", actions


def parse_constraint(value: Any) -> Constraint:
    """Parse a constraint of a case; the keys of the source designs are accepted too.

    >>> parse_constraint({"must_occur": "load_skill", "before": "run_script"}).name
    'load_skill before run_script'
    >>> parse_constraint({"at_most": 2, "of": "write_file"}).name
    'at most 2 call_tool:write_file'
    """
    if not isinstance(value, dict):
        raise ValueError('a constraint is an object such as {"never": "write_file"}')  # noqa: TRY004 - pydantic
    match sorted(map(str, value)):
        case ["require" | "must_occur" as key]:
            pattern = parse_pattern(value[key])
            return Constraint(f"require {pattern}", "count", (pattern,), least=1)
        case ["never" | "forbid" as key]:
            pattern = parse_pattern(value[key])
            return Constraint(f"never {pattern}", "count", (pattern,), most=0)
        case ["at_least", "of"]:
            pattern, least = parse_pattern(value["of"]), _number(value, "at_least")
            return Constraint(f"at least {least} {pattern}", "count", (pattern,), least=least)
        case ["at_most", "of"]:
            pattern, most = parse_pattern(value["of"]), _number(value, "at_most")
            return Constraint(f"at most {most} {pattern}", "count", (pattern,), most=most)
        case ["before"] if isinstance(value["before"], list) and len(value["before"]) == 2:
            first, later = map(parse_pattern, value["before"])
            return Constraint(f"{first} before {later}", "before", (first, later))
        case ["before"]:
            raise ValueError("'before' is a list of two patterns, the earlier one first")
        case ["before", "must_occur"]:
            first, later = parse_pattern(value["must_occur"]), parse_pattern(value["before"])
            return Constraint(f"{first} before {later}", "before", (first, later), least=1)
        case ["after", "then"]:
            first, later = parse_pattern(value["after"]), parse_pattern(value["then"])
            return Constraint(f"after {first} comes {later}", "after", (first, later))
        case ["sequence"] | ["mode", "sequence"]:
            return _sequence(value["sequence"], value.get("mode", "in_order"))
        case keys:
            known = "require, never, before, after + then, sequence (+ mode), at_least + of, at_most + of"
            raise ValueError(f"no constraint has the keys {', '.join(keys)}: use {known}")


def _sequence(steps: Any, mode: Any) -> Constraint:
    if mode not in {"in_order", "exact"}:
        raise ValueError(f"the mode of a sequence is in_order or exact, not {mode!r}")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_PATTERNS:
        raise ValueError(f"a sequence is a list of 1 to {MAX_PATTERNS} patterns")
    patterns = tuple(map(parse_pattern, steps))
    listed = ", ".join(map(str, patterns))
    if mode == "in_order":
        return Constraint(f"sequence (in order) {listed}", "in order", patterns)
    if any(pattern.outcome for pattern in patterns):
        raise ValueError("an exact sequence matches attempted actions: leave out the outcome")
    other = next((pattern.kind for pattern in patterns if pattern.kind not in ACTIONS), None)
    if other is not None:
        raise ValueError(f"an exact sequence is of actions ({', '.join(sorted(ACTIONS))}), not {other!r}")
    return Constraint(f"sequence (exact) {listed}", "exact", (*patterns, ANY_ACTION))


def _number(value: Mapping[str, Any], key: str) -> int:
    found = value[key]
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_COUNT:
        raise ValueError(f"{key!r} is a whole number from 0 to {MAX_COUNT:,}, not {found!r}")
    return found


class CheckResult(Struct, frozen=True):
    """The result of one check, with the reason and the events that show it.

    ``vacuous`` means that its condition never occurred, ``skipped`` that there was no judge. ``judge`` names
    the model that judged; other results were computed. ``elsewhere`` are events of child runs, as
    ``run:event``.
    """

    name: str
    holds: Literal["pass", "fail", "vacuous", "skipped"]
    detail: str = ""
    events: tuple[int, ...] = ()
    judge: str = ""
    elsewhere: tuple[str, ...] = ()


class Trajectory:
    """Check constraints on the events of a run and its child runs.

    >>> watched = Trajectory([parse_constraint({"never": "write_file"})])
    >>> wanted = {"tool": "write_file", "arguments": {"path": "a.txt"}}
    >>> watched.see(Event(7, 0.0, "action", {"action": "call_tool", "payload": wanted}))
    >>> watched.verdicts()[0].detail
    'events 7'
    """

    def __init__(self, wanted: Iterable[Constraint]) -> None:
        self._found: list[tuple[Constraint, list[list[TakenStep]]]] = [
            (one, [[] for _ in one.patterns]) for one in wanted
        ]
        self._steps: dict[str, Steps] = {}
        # For each kind of step: a test, the list for matching steps, and whether child runs count.
        self._tests = defaultdict[str, list[tuple[Callable[[TakenStep], bool], list[TakenStep], bool]]](list)
        for one, found in self._found:
            for pattern, matching in zip(one.patterns, found, strict=True):
                for kind in _SEVERAL.get(pattern.kind, {pattern.kind}):
                    self._tests[kind].append((pattern.compiled(), matching, one.kind == "count"))

    def see(self, event: Event, run: str = "") -> None:
        """Process the next event of the run, or of the child run with that id."""
        if run not in self._steps:
            self._steps[run] = Steps(run)
        for step in self._steps[run].of(event):
            for fits, matching, sees_children in self._tests.get(step.kind, ()):
                if (sees_children or not run) and fits(step):
                    matching.append(step)

    @property
    def violation(self) -> CheckResult | None:
        """Return the first constraint that is violated, and that no later event can fulfil."""
        found = ((one, one.proven(found)) for one, found in self._found)
        return next((_verdict(one, *proven) for one, proven in found if proven[0] == "fail"), None)

    def verdicts(self) -> list[CheckResult]:
        """Return the results at the end of the run."""
        return [_verdict(one, *one.proven(found)) for one, found in self._found]


def _verdict(one: Constraint, holds: Literal["pass", "fail", "vacuous", "open"], proof: Found) -> CheckResult:
    own = tuple(step.event for step in proof[:MAX_EVIDENCE] if not step.run)
    elsewhere = tuple(f"{step.run}:{step.event}" for step in proof[:MAX_EVIDENCE] if step.run)
    said = [*map(str, own), *elsewhere]
    more = f" and {len(said) - MAX_SAID_EVENTS} more" if len(said) > MAX_SAID_EVENTS else ""
    detail = f"events {', '.join(said[:MAX_SAID_EVENTS])}{more}" if said else ""
    return CheckResult(one.name, "fail" if holds == "open" else holds, detail, own, elsewhere=elsewhere)
