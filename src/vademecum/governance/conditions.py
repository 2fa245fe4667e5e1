"""Parse conditions into trees, and turn the trees into Python functions.

Only this grammar is accepted, and no code is run. Operators and their precedence are Python's: ``or``,
``and``, ``not``, comparisons, ``+ -``, ``* / %``, and a minus sign. ``||``, ``&&`` and ``!`` mean the same,
except that ``!`` binds as tightly as a minus sign. Values are numbers, texts, ``true``, ``false``, lists,
``has(path)``, and paths such as ``house.floor``. Names and values are replaced before Python's parser sees
the text, so that a field can be called ``class`` or ``预算``.

By default a field counts as true or false as in Python, and a missing field is ``None``. In strict mode only
booleans and numbers are true or false, and a missing field makes the condition fail, also under ``not``.
A function raises one of ``FAILURES`` if its condition has no value; such a condition does not hold.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, assert_never, cast

from msgspec import Struct, structs

from vademecum.errors import ConditionWrong
from vademecum.governance.definitions import MISSING

MAX_CONDITION_CHARS = 2000
MAX_OPERATORS = 100  # signs, opening brackets and words such as `and`
MAX_NUMBER_CHARS = 40

Comparator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Sign = Literal["+", "-", "*", "/", "%"]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\[\"'\\nt])*\"|'(?:[^'\\\n]|\\[\"'\\nt])*')"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!+\-*/%()\[\],.]))"
)
_ESCAPES = {"n": "\n", "t": "\t"}
_PYTHON = {"&&": "and", "||": "or", "!": "~"}
_WORDS = frozenset({"and", "or", "not", "in"})
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_COMPARATORS: dict[type[ast.AST], Comparator] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in",
}  # fmt: skip
_SIGNS: dict[type[ast.AST], Sign] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}


class Constant(Struct, frozen=True):
    """A number, a text, true or false."""

    value: bool | int | float | str


class Path(Struct, frozen=True):
    """A path into the state, from its outermost name inwards."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        """Return the path in the form of a condition."""
        return ".".join(self.parts)

    @property
    def is_parameter(self) -> bool:
        """Return whether the path leads to a parameter of the intent."""
        return len(self.parts) > 1 and self.parts[0] == "params"


class Has(Struct, frozen=True):
    """``has(path)``: true if the path leads to a value."""

    path: Path


class Items(Struct, frozen=True):
    """A list of values."""

    values: tuple[Tree, ...]


class Not(Struct, frozen=True):
    """The opposite of a condition."""

    value: Tree


class Join(Struct, frozen=True):
    """Two conditions; the right one is evaluated only if the left one does not decide."""

    by: Literal["and", "or"]
    left: Tree
    right: Tree


class Compare(Struct, frozen=True):
    """A comparison of two values."""

    by: Comparator
    left: Tree
    right: Tree


class Compute(Struct, frozen=True):
    """A computation with two numbers; a minus sign before one value is a subtraction from zero."""

    by: Sign
    left: Tree
    right: Tree


Tree = Constant | Path | Has | Items | Not | Join | Compare | Compute


def parse(text: str) -> Tree:
    """Return the tree of a condition, or raise ``ConditionWrong``.

    >>> parse("not elevated")
    Not(value=Path(parts=('elevated',)))
    >>> parse("budget >")
    Traceback (most recent call last):
    ...
    vademecum.errors.ConditionWrong: The condition 'budget >' is not complete.
    """
    if len(text) > MAX_CONDITION_CHARS:
        raise ConditionWrong(f"The condition {text[:40]!r}… has more than {MAX_CONDITION_CHARS} characters.")
    return _Parser(text).tree


def paths_of(tree: Tree) -> list[Path]:
    """Return every path that a tree reads, once each, in order.

    >>> [str(path) for path in paths_of(parse("a.b > c and not c"))]
    ['a.b', 'c']
    """
    return list(dict.fromkeys(_paths(tree)))


def _paths(part: object) -> Iterator[Path]:
    if isinstance(part, Path):
        yield part
    elif isinstance(part, Struct | tuple):
        for inner in structs.astuple(part) if isinstance(part, Struct) else part:
            yield from _paths(inner)


class _Parser:
    """Parse one text: split it into words, let Python's parser arrange them, and build the tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._values: list[Constant | str] = []  # each name and value; Python's parser gets _N for it
        words = list(self._split())
        if not words:
            raise ConditionWrong("The condition is empty: write a field, or an expression.")
        operators = sum(
            not python.startswith("_") and word not in {".", ",", ")", "]"} for word, python in words
        )
        if operators > MAX_OPERATORS:
            raise self._wrong(f"has more than {MAX_OPERATORS} operators and brackets: split it")
        try:
            body = ast.parse(" ".join(python for _, python in words), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise self._wrong(_where(words, getattr(error, "offset", None) or 0)) from None
        self.tree = self._read(body)

    def _split(self) -> Iterator[tuple[str, str]]:
        """Yield each word, and what Python's parser gets for it."""
        text, position = self._text.rstrip(), 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(f"has {text[position:].lstrip()[:1]!r}, which is not part of the language")
            kind, position = cast("str", match.lastgroup), match.end()
            word = match[kind]
            if kind == "sign" or word in _WORDS:
                yield word, _PYTHON.get(word, word)
            else:
                yield word, f"_{len(self._values)}"
                self._values.append(self._value(kind, word))

    def _value(self, kind: str, word: str) -> Constant | str:
        if kind == "number":
            return Constant(self._number(word))
        if kind == "text":
            return Constant(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), word[1:-1]))
        return Constant(_BOOLEANS[word]) if word in _BOOLEANS else word

    def _wrong(self, what: str) -> ConditionWrong:
        return ConditionWrong(f"The condition {self._text[:200]!r} {what}.")

    def _read(self, node: ast.expr) -> Tree:
        match node:
            case ast.Name() | ast.Attribute():
                value = self._values[int(node.id[1:])] if isinstance(node, ast.Name) else ""
                return value if isinstance(value, Constant) else self._path(node)
            case ast.BoolOp(op=op, values=[first, *others]):
                tree = self._read(first)
                for other in others:
                    tree = Join("and" if isinstance(op, ast.And) else "or", tree, self._read(other))
                return tree
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return Not(self._read(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._read(operand)
                if isinstance(inner, Constant) and not isinstance(inner.value, bool | str):
                    return Constant(-inner.value)
                return Compute("-", Constant(0), inner)
            case ast.Compare(left=left, ops=[by], comparators=[right]) if type(by) in _COMPARATORS:
                return Compare(_COMPARATORS[type(by)], self._read(left), self._read(right))
            case ast.Compare():
                raise self._wrong("compares twice in a row: write a < b and b < c")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                return Compute(_SIGNS[type(op)], self._read(left), self._read(right))
            case ast.List(elts=values):
                return Items(tuple(map(self._read, values)))
            case ast.Call(func=ast.Name(id=name), args=[argument]) if self._values[int(name[1:])] == "has":
                return Has(self._path(argument))
            case ast.Call():
                raise self._wrong("has a call: has(…) is the only function")
        raise self._wrong("is not a condition: write fields, comparisons, and, or, not")

    def _path(self, node: ast.expr) -> Path:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            names = [self._values[int(part[1:])] for part in (node.id, *reversed(parts))]
            if all(isinstance(name, str) and name != "has" for name in names):
                return Path(tuple(map(str, names)))
        raise self._wrong("has something else instead of a field's name")

    def _number(self, text: str) -> int | float:
        if len(text) > MAX_NUMBER_CHARS:
            raise self._wrong(f"has a number of more than {MAX_NUMBER_CHARS} characters")
        number = int(text) if text.isdecimal() and text.isascii() else float(text)
        if not math.isfinite(number):
            raise self._wrong(f"has the number {text}, which is too large")
        return number


def _where(words: list[tuple[str, str]], offset: int) -> str:
    """Return a message with the word at which Python's parser stopped."""
    position = 1
    for word, python in words:
        position += len(python) + 1
        if 0 < offset < position:
            return f"cannot be read at {word!r}"
    return "is not complete"


State = Mapping[str, Any]
# The values that a condition reads: the agent's state, the shared state and the intent's parameters.
Facts = tuple[State, State, State]
Function = Callable[[Facts], Any]

FAILURES = (KeyError, TypeError, ValueError, ArithmeticError)
ROOTS = {"world": 1, "params": 2}

COMPARE: dict[Comparator, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: _inside(item, items),  # noqa: PLW0108 - defined below
    "not in": lambda item, items: not _inside(item, items),
}
COMPUTE: dict[Sign, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


class NotThere(KeyError):
    """Raised if the path in its argument does not exist."""


def test_of(tree: Tree, *, strict: bool) -> Function:
    """Return a function whose result is true exactly if the condition is.

    >>> test_of(parse("budget - 20 >= 100"), strict=False)(({"budget": 150}, {}, {}))
    True
    >>> bool(test_of(parse("not flooded"), strict=False)(({}, {}, {})))
    True
    """
    found = value_of(tree, strict=strict)
    if strict and isinstance(tree, Constant | Path | Items | Compute):
        return lambda facts: _number(found(facts)) != 0
    return found


def value_of(tree: Tree, *, strict: bool) -> Function:
    """Return a function whose result is the tree's value."""
    match tree:
        case Constant(value=value):
            return lambda facts: value  # noqa: ARG005 - one signature for all
        case Path():
            return _path(tree, strict=strict)
        case Has(path=path):
            absent = MISSING if strict else None
            value_at = read(path, absent)
            return lambda facts: value_at(facts) is not absent
        case Items(values=values):
            items = [value_of(each, strict=strict) for each in values]
            return lambda facts: [item(facts) for item in items]
        case Not(value=value):
            inner = test_of(value, strict=strict)
            return lambda facts: not inner(facts)
        case Join(by=by, left=left, right=right):
            one, other = test_of(left, strict=strict), test_of(right, strict=strict)
            if by == "and":
                return lambda facts: bool(one(facts) and other(facts))
            return lambda facts: bool(one(facts) or other(facts))
        case Compare(by=by, left=left, right=Constant(value=value)):
            compare, item = COMPARE[by], value_of(left, strict=strict)
            return lambda facts: compare(item(facts), value)  # without another call
        case Compare(by=by):
            compare = COMPARE[by]
            first, second = value_of(tree.left, strict=strict), value_of(tree.right, strict=strict)
            return lambda facts: compare(first(facts), second(facts))
        case Compute(by=sign):
            compute = COMPUTE[sign]
            first, second = number_of(tree.left, strict=strict), number_of(tree.right, strict=strict)
            return lambda facts: compute(first(facts), second(facts))
        case _:
            assert_never(tree)


def rooted(parts: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return the mapping of the three that a path begins in, and the remaining parts."""
    root = ROOTS.get(parts[0], 0) if len(parts) > 1 else 0
    return root, parts[1:] if root else parts


def read(path: Path, default: Any) -> Function:
    """Return a function with the value at a path, or ``default`` if there is none."""
    root, parts = rooted(path.parts)
    if len(parts) == 1 and not path.is_parameter:  # parameters may not be a mapping
        (name,) = parts
        return lambda facts: facts[root].get(name, default)

    def value_at(facts: Facts) -> Any:
        value: Any = facts[root]
        for part in parts:
            try:
                value = value[part]
            except (KeyError, TypeError):  # TypeError: the value before it is not a mapping
                return default
        return value

    return value_at


def _path(path: Path, *, strict: bool) -> Function:
    if not strict:
        return read(path, None)
    value_at, name = read(path, MISSING), str(path)

    def needed(facts: Facts) -> Any:
        value = value_at(facts)
        if value is MISSING:
            raise NotThere(name)
        return value

    return needed


def _inside(item: Any, items: Any) -> bool:
    # Python finds the identical object in a list, even NaN, which is not equal to itself.
    return item in items and bool(item == item)  # noqa: PLR0124


def number_of(tree: Tree, *, strict: bool = True) -> Function:
    """Return a function with the tree's value, which must be a number."""
    value = value_of(tree, strict=strict)
    return lambda facts: _number(value(facts))


def _number(value: Any) -> Any:
    """Return a number or a boolean; raise ``TypeError`` for other values."""
    if isinstance(value, int | float):
        return value
    raise TypeError("not a number")


def strict_differs(tree: Tree) -> bool:
    """Return whether strict mode could decide a condition differently; if in doubt, true.

    >>> [strict_differs(parse(text)) for text in ("age > 3", "insured", "not insured", "kind != 'farm'")]
    [False, True, True, True]
    """
    match tree:
        case Path() | Has() | Items():
            return True
        case Constant(value=value):
            return isinstance(value, str)
        case Not(value=value):
            return strict_differs(value)
        case Join():
            return strict_differs(tree.left) or strict_differs(tree.right)
        case Compare(by="==" | "!=" | "in" | "not in") if paths_of(tree):
            return True
        case Compare() | Compute():
            # A missing operand denies in both modes; check a condition inside an operand.
            operands = (tree.left, tree.right)
            return any(strict_differs(each) for each in operands if not isinstance(each, Path | Constant))
        case _:
            assert_never(tree)
