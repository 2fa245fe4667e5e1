"""Turn a condition's tree into a Python function of the agent's state, the shared state and the parameters.

By default a field counts as true or false as in Python, and a missing field is ``None``. In strict mode only
booleans and numbers are true or false, and a missing field makes the condition fail, also under ``not``.
A function raises one of ``FAILURES`` if its condition has no value; such a condition does not hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from vademecum.governance import grammar as g
from vademecum.governance.definitions import MISSING

State = Mapping[str, Any]
# Takes the agent's own state, the shared state and the intent's parameters.
Function = Callable[[State, State, State], Any]

FAILURES = (KeyError, TypeError, ValueError, ArithmeticError)
ROOTS = {"world": 1, "params": 2}

COMPARE: dict[g.Comparator, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: _inside(item, items),  # noqa: PLW0108 - defined below
    "not in": lambda item, items: not _inside(item, items),
}
COMPUTE: dict[g.Sign, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


class NotThere(KeyError):
    """A path leads to nothing."""

    def __init__(self, path: g.Path) -> None:
        super().__init__(str(path))
        self.path = path


def test_of(tree: g.Tree, *, strict: bool) -> Function:
    """Return a function whose result is true exactly if the condition is.

    >>> test_of(g.parse("budget - 20 >= 100"), strict=False)({"budget": 150}, {}, {})
    True
    >>> bool(test_of(g.parse("not flooded"), strict=False)({}, {}, {}))
    True
    """
    found = value_of(tree, strict=strict)
    if strict and isinstance(tree, g.Constant | g.Path | g.Items | g.Compute):
        return lambda s, w, p: _number(found(s, w, p)) != 0
    return found


def value_of(tree: g.Tree, *, strict: bool) -> Function:
    """Return a function whose result is the tree's value."""
    match tree:
        case g.Constant(value=value):
            return lambda s, w, p: value  # noqa: ARG005 - one signature for all
        case g.Path():
            return _path(tree, strict=strict)
        case g.Has(path=path):
            return _has(path, strict=strict)
        case g.Items(values=values):
            items = [value_of(each, strict=strict) for each in values]
            return lambda s, w, p: [item(s, w, p) for item in items]
        case g.Not(value=value) if _is_field(value) and not strict:
            name = str(value)
            return lambda s, w, p: not s.get(name)  # noqa: ARG005 - without another call
        case g.Not(value=value):
            inner = test_of(value, strict=strict)
            return lambda s, w, p: not inner(s, w, p)
        case g.Join(by=by, left=left, right=right):
            one, other = test_of(left, strict=strict), test_of(right, strict=strict)
            if by == "and":
                return lambda s, w, p: bool(one(s, w, p) and other(s, w, p))
            return lambda s, w, p: bool(one(s, w, p) or other(s, w, p))
        case g.Compare():
            return _compare(tree, strict=strict)
        case g.Compute(by=sign):
            compute = COMPUTE[sign]
            first, second = number_of(tree.left, strict=strict), number_of(tree.right, strict=strict)
            return lambda s, w, p: compute(first(s, w, p), second(s, w, p))
        case _:
            assert_never(tree)


def rooted(path: g.Path) -> tuple[int, tuple[str, ...]]:
    """Return which of the three mappings a path begins in, and the parts from there."""
    root = ROOTS.get(path.parts[0], 0) if len(path.parts) > 1 else 0
    return root, path.parts[1:] if root else path.parts


def _is_field(tree: g.Tree) -> bool:
    """Return whether a tree is a single field of the agent's own."""
    return isinstance(tree, g.Path) and len(tree.parts) == 1


def read(path: g.Path, default: Any) -> Function:
    """Return a function with the value at a path, or ``default`` if there is none."""
    root, parts = rooted(path)
    if len(parts) == 1 and root < 2:
        (name,) = parts
        if root:
            return lambda s, w, p: w.get(name, default)  # noqa: ARG005 - one signature for all
        return lambda s, w, p: s.get(name, default)  # noqa: ARG005

    def value_at(*facts: State) -> Any:
        value: Any = facts[root]
        for part in parts:
            try:
                value = value[part]
            except (KeyError, TypeError):  # TypeError: the value before it is not a mapping
                return default
        return value

    return value_at


def _path(path: g.Path, *, strict: bool) -> Function:
    if not strict:
        return read(path, None)
    value_at = read(path, MISSING)

    def needed(s: State, w: State, p: State) -> Any:
        value = value_at(s, w, p)
        if value is MISSING:
            raise NotThere(path)
        return value

    return needed


def _has(path: g.Path, *, strict: bool) -> Function:
    value_at = read(path, MISSING)
    return lambda s, w, p: value_at(s, w, p) is not MISSING and (strict or value_at(s, w, p) is not None)


def _compare(tree: g.Compare, *, strict: bool) -> Function:
    compare, left = COMPARE[tree.by], value_of(tree.left, strict=strict)
    if isinstance(tree.right, g.Constant):
        constant = tree.right.value
        if _is_field(tree.left) and not strict:
            name = str(tree.left)
            return lambda s, w, p: compare(s.get(name), constant)  # noqa: ARG005 - without another call
        return lambda s, w, p: compare(left(s, w, p), constant)
    right = value_of(tree.right, strict=strict)
    return lambda s, w, p: compare(left(s, w, p), right(s, w, p))


def _inside(item: Any, items: Any) -> bool:
    # Python finds the very same object in a list, also NaN, which is not equal to itself.
    return item in items and bool(item == item)  # noqa: PLR0124


def number_of(tree: g.Tree, *, strict: bool = True) -> Function:
    """Return a function with the tree's value, which must be a number."""
    value = value_of(tree, strict=strict)
    return lambda s, w, p: _number(value(s, w, p))


def _number(value: Any) -> Any:
    """Return a number or a boolean as it is; a text is not multiplied, and is neither true nor false."""
    if isinstance(value, int | float):
        return value
    raise TypeError("not a number")


def reads_parameters(tree: g.Tree) -> bool:
    """Return whether a tree depends on what the intent says."""
    return any(rooted(path)[0] == ROOTS["params"] for path in g.paths_of(tree))


def strict_differs(tree: g.Tree) -> bool:
    """Return whether strict mode could decide a condition differently; in doubt it could.

    >>> [strict_differs(g.parse(text)) for text in ("age > 3", "insured", "not insured", "kind != 'farm'")]
    [False, True, True, True]
    """
    match tree:
        case g.Path() | g.Has() | g.Items():
            return True
        case g.Constant(value=value):
            return isinstance(value, str)
        case g.Not(value=value):
            return strict_differs(value)
        case g.Join():
            return strict_differs(tree.left) or strict_differs(tree.right)
        case g.Compare(by="==" | "!=" | "in" | "not in") if g.paths_of(tree):
            return True
        case g.Compare() | g.Compute():
            # A missing operand denies in both modes; a condition inside of one is looked at.
            operands = (tree.left, tree.right)
            return any(strict_differs(each) for each in operands if not isinstance(each, g.Path | g.Constant))
        case _:
            assert_never(tree)
