"""A condition's tree → the text of a Python expression.

Only our own words and the literals of a tree come into the text, the latter as ``repr`` writes them: nothing
that stands in a charter is ever read as Python. The names that the text uses are in ``NAMES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from vademecum.governance import expression as ex
from vademecum.governance.evaluate import NUMERIC, Facts, inside, listed, number, of_lists, truth


def _looked_up(state: object, world: object, params: object, path: ex.Path) -> object:
    return Facts(state, world, params, compat=True).at(path)  # type: ignore[arg-type]


def _is_there(state: object, world: object, params: object, path: ex.Path, compat: bool) -> bool:  # noqa: FBT001
    return Facts(state, world, params, compat=compat).has(path)  # type: ignore[arg-type]


# `s` is the agent's state, `w` the state that all share, `p` what the intent says; `v` is for passing use.
NAMES = {
    "NUMERIC": NUMERIC,
    "truth": truth,
    "number": number,
    "inside": inside,
    "listed": listed,
    "looked_up": _looked_up,
    "is_there": _is_there,
    "Path": ex.Path,
}


class Emitter:
    """Writes trees as Python, with or without compatibility with plain truthiness.

    ``known`` has the variables that hold the values of paths already.
    """

    def __init__(self, *, compat: bool = False, known: Mapping[ex.Path, str] | None = None) -> None:
        self._compat = compat
        self._known = known or {}

    def test(self, tree: ex.Tree) -> str:
        """An expression that is true exactly where the tree holds."""
        match tree:
            case ex.Not(value=ex.Path() as path) if path in self._known:
                name = self._known[path]
                return f"({name} is False or ({name} is not True and not truth({name})))"
            case ex.Path() if tree in self._known:
                name = self._known[tree]
                return f"({name} is True or ({name} is not False and truth({name})))"
            case ex.Not(value=ex.Path() as path) if not self._compat:
                return f"((v := {self.value(path)}) is False or (v is not True and not truth(v)))"
            case ex.Not(value=value):
                return f"(not {self.test(value)})"
            case ex.Both(left=left, right=right):
                return f"({self.test(left)} and {self.test(right)})"
            case ex.Either(left=left, right=right):
                return f"({self.test(left)} or {self.test(right)})"
            case ex.Compare():
                return self._compared(tree)
            case ex.Has(path=path):
                return self._has(path)
            case ex.Path() if not self._compat:
                return f"((v := {self.value(tree)}) is True or (v is not False and truth(v)))"
            case ex.Constant() | ex.Path() | ex.Items() | ex.Compute():
                return f"{'bool' if self._compat else 'truth'}({self.value(tree)})"
            case _:
                assert_never(tree)

    def value(self, tree: ex.Tree) -> str:
        """An expression with the tree's value."""
        match tree:
            case ex.Constant(value=value):
                return f"({literal(value)})"
            case ex.Path():
                return self._path(tree)
            case ex.Items(values=values):
                return f"[{', '.join(map(self.value, values))}]"
            case ex.Compute(by=sign, left=left, right=right):
                return f"({self.number(left)} {sign} {self.number(right)})"
            case ex.Compare():
                return f"bool({self.test(tree)})"
            case ex.Not() | ex.Both() | ex.Either() | ex.Has():
                return self.test(tree)
            case _:
                assert_never(tree)

    def _compared(self, tree: ex.Compare) -> str:
        one, other = self.value(tree.left), self.value(tree.right)
        if of_lists(tree):
            one, other = f"listed({one})", f"listed({other})"
        if tree.by not in {"in", "not in"} or isinstance(tree.left, ex.Constant) or _constants(tree.right):
            return f"({one} {tree.by} {other})"
        # Python finds the very same object in a list, also one that is not equal to itself.
        return f"({'not ' if tree.by == 'not in' else ''}inside({one}, {other}))"

    def number(self, tree: ex.Tree) -> str:
        """An expression with the tree's value, which must be a number: a text is not multiplied."""
        match tree:
            case ex.Compute():
                return self.value(tree)
            case ex.Constant(value=bool() | int() | float()):
                return self.value(tree)
            case ex.Path():
                return f"(v if type(v := {self.value(tree)}) in NUMERIC else number(v))"
            case _:
                return f"number({self.value(tree)})"

    def _path(self, path: ex.Path) -> str:
        if path in self._known:
            return self._known[path]
        if self._compat:
            if len(path.parts) == 1:
                return f"s.get({path.parts[0]!r})"
            return f"looked_up(s, w, p, Path({path.parts!r}))"
        root, parts = rooted(path)
        return root + "".join(f"[{part!r}]" for part in parts)

    def _has(self, path: ex.Path) -> str:
        root, parts = rooted(path)
        if len(parts) == 1 and not self._compat:
            return f"({parts[0]!r} in {root})"
        return f"is_there(s, w, p, Path({path.parts!r}), {self._compat})"


def literal(value: object) -> str:
    """A constant as Python writes it; of Python's own types, whose words are known."""
    if type(value) not in {bool, int, float, str}:
        raise TypeError(f"a {type(value).__name__} is no constant")
    return repr(value)


def _constants(tree: ex.Tree) -> bool:
    return isinstance(tree, ex.Items) and all(isinstance(value, ex.Constant) for value in tree.values)


def rooted(path: ex.Path) -> tuple[str, tuple[str, ...]]:
    """Which of the three dictionaries a path begins in, and the way from there."""
    if len(path.parts) > 1 and path.parts[0] in {"world", "params"}:
        return path.parts[0][0], path.parts[1:]
    return "s", path.parts
