"""Conditions that cannot hold together, found by trying every value that could make a difference.

Between two constants that a field is compared with nothing changes, so the constants, one value between
each two of them and one beyond each end stand for all numbers. Conditions that compute, or compare fields
with each other, are not judged: no rule is called contradictory that is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from vademecum.governance import expression as ex
from vademecum.governance.evaluate import FAILURES, Facts, holds
from vademecum.governance.rules import Condition

_OTHER_TEXT = "\x00another text"
_ORDERED = frozenset({"<", "<=", ">", ">="})


def never(conditions: Sequence[Condition], *, compat: bool = False) -> tuple[int, str] | None:
    """The first condition that cannot hold, by itself or with those before it, and why.

    >>> never([Condition(text, ex.parse(text)) for text in ("age > 60", "age < 18")])
    (1, "'age < 18' cannot hold together with 'age > 60'")
    """
    judged: dict[ex.Path, list[Condition]] = {}
    for number, condition in enumerate(conditions):
        paths = ex.paths_of(condition.tree)
        if not paths and not _ever([condition], None, compat=compat):
            return number, f"{condition.text!r} never holds"
        if len(paths) != 1 or not _comparable(condition.tree):
            continue
        before = judged.setdefault(paths[0], [])
        if not _ever([*before, condition], paths[0], compat=compat):
            others = " and ".join(repr(other.text) for other in before)
            with_others = f"cannot hold together with {others}" if before else "never holds"
            return number, f"{condition.text!r} {with_others}"
        before.append(condition)
    return None


def always(condition: Condition) -> bool:
    """Whether a condition holds whatever the state is."""
    return not ex.paths_of(condition.tree) and _ever([condition], None, compat=False)


def _ever(conditions: Sequence[Condition], path: ex.Path | None, *, compat: bool) -> bool:
    """Whether some value of one field makes all conditions hold."""
    if path is None:
        return all(_holds(condition.tree, Facts({}, compat=compat)) for condition in conditions)
    constants = [value for condition in conditions for value in _constants(condition.tree)]
    states = [*(_state(path, value) for value in _candidates(constants)), {}]
    facts = [Facts(state, state.get("world", {}), state.get("params", {}), compat=compat) for state in states]
    return any(all(_holds(condition.tree, each) for condition in conditions) for each in facts)


def _holds(tree: ex.Tree, facts: Facts) -> bool:
    try:
        return holds(tree, facts)
    except FAILURES:
        return False


def _candidates(constants: Iterable[Any]) -> Iterator[Any]:
    known = list(constants)
    # Exact, however large: a float has no room between two that are next to each other.
    numbers = sorted({Fraction(value) for value in (0, 1, *known) if isinstance(value, int | float)})
    yield from (True, False, None, [], _OTHER_TEXT, "")
    yield from (value for value in known if isinstance(value, str | list))
    yield from (numbers[0] - 1, *numbers, numbers[-1] + 1)
    yield from ((low + high) / 2 for low, high in itertools.pairwise(numbers))


def _state(path: ex.Path, value: Any) -> dict[str, Any]:
    for part in reversed(path.parts):
        value = {part: value}
    state: dict[str, Any] = value
    return state


def _constants(tree: ex.Tree) -> Iterator[Any]:
    match tree:
        case ex.Constant(value=value):
            yield value
        case ex.Items(values=values):
            yield [item.value for item in values if isinstance(item, ex.Constant)]
            for item in values:
                yield from _constants(item)
        case ex.Not(value=value):
            yield from _constants(value)
        case ex.Both() | ex.Either() | ex.Compare() | ex.Compute():
            yield from _constants(tree.left)
            yield from _constants(tree.right)
        case ex.Path() | ex.Has():
            return


def _comparable(tree: ex.Tree) -> bool:
    """Whether the candidates stand for all values: only the field itself against constants."""
    match tree:
        case ex.Path() | ex.Has() | ex.Constant():
            return True
        case ex.Not(value=value):
            return _comparable(value)
        case ex.Both() | ex.Either():
            return _comparable(tree.left) and _comparable(tree.right)
        case ex.Compare(by=by, left=left, right=right):
            constants = [*_constants(left), *_constants(right)]
            of_text = any(isinstance(value, str) for value in constants)
            if (by in _ORDERED and of_text) or (by in {"in", "not in"} and not isinstance(right, ex.Items)):
                return False
            return all(_flat(side) for side in (left, right))
        case ex.Items() | ex.Compute():
            return False


def _flat(tree: ex.Tree) -> bool:
    if isinstance(tree, ex.Items):
        return all(isinstance(value, ex.Constant) for value in tree.values)
    return isinstance(tree, ex.Path | ex.Constant)
