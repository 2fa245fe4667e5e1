"""Parse a condition's text into a tree. Only this grammar is accepted, and nothing is run.

Operators and their precedence are Python's: ``or``, ``and``, ``not``, comparisons, ``+ -``, ``* / %``, and
a minus sign. ``||``, ``&&`` and ``!`` are the same, except that ``!`` is as close as a minus sign. Values are
numbers, texts, ``true``, ``false``, lists, ``has(path)``, and paths such as ``house.floor``. Names and values
are replaced before Python's parser sees the text, so that a field may be called ``class`` or ``预算``.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import Literal, cast

from msgspec import Struct, structs

from vademecum.errors import ConditionWrong

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
    """Be a number, a text, true or false."""

    value: bool | int | float | str


class Path(Struct, frozen=True):
    """Be a path into the state, from its outermost name inwards."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        """Return the path as it is written."""
        return ".".join(self.parts)


class Has(Struct, frozen=True):
    """Ask whether a path leads to a value."""

    path: Path


class Items(Struct, frozen=True):
    """Be a list of values."""

    values: tuple[Tree, ...]


class Not(Struct, frozen=True):
    """Negate a value."""

    value: Tree


class Join(Struct, frozen=True):
    """Join two conditions; the right one is evaluated only if the left one has not decided."""

    by: Literal["and", "or"]
    left: Tree
    right: Tree


class Compare(Struct, frozen=True):
    """Compare two values."""

    by: Comparator
    left: Tree
    right: Tree


class Compute(Struct, frozen=True):
    """Compute with two numbers; a minus sign before one value is a subtraction from zero."""

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
        self._words = self._split(text)
        if not self._words:
            raise ConditionWrong("The condition is empty: write a field, or an expression.")
        # Every name and value becomes _N, with N its place among the words.
        words = enumerate(self._words)
        source = [f"_{number}" if kind else _PYTHON.get(word, word) for number, (kind, word) in words]
        operators = sum(not word.startswith("_") and word not in {".", ",", ")", "]"} for word in source)
        if operators > MAX_OPERATORS:
            raise self._wrong(f"has more than {MAX_OPERATORS} operators and brackets: split it")
        try:
            body = ast.parse(" ".join(source), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise self._wrong(self._where(source, getattr(error, "offset", None) or 0)) from None
        self.tree = self._read(body)

    def _split(self, text: str) -> list[tuple[str, str]]:
        """Return the words, each with its kind, which is empty for operators and brackets."""
        found, position, end = [], 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(f"has {text[position:].lstrip()[:1]!r}, which is not part of the language")
            kind, position = cast("str", match.lastgroup), match.end()
            word = match[kind]
            found.append(("" if kind == "sign" or word in _WORDS else kind, word))
        return found

    def _where(self, source: list[str], offset: int) -> str:
        """Return which word Python's parser stopped at."""
        position = 1
        for (_, word), written in zip(self._words, source, strict=True):
            position += len(written) + 1
            if 0 < offset < position:
                return f"cannot be read at {word!r}"
        return "is not complete"

    def _wrong(self, what: str) -> ConditionWrong:
        return ConditionWrong(f"The condition {self._text[:200]!r} {what}.")

    def _read(self, node: ast.expr) -> Tree:
        match node:
            case ast.Name() | ast.Attribute():
                return self._value(node)
            case ast.BoolOp(op=op, values=[first, *others]):
                tree = self._read(first)
                for other in others:
                    tree = Join("and" if isinstance(op, ast.And) else "or", tree, self._read(other))
                return tree
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return Not(self._read(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._read(operand)
                if isinstance(value, Constant) and not isinstance(value.value, bool | str):
                    return Constant(-value.value)
                return Compute("-", Constant(0), value)
            case ast.Compare(left=left, ops=[by], comparators=[right]) if type(by) in _COMPARATORS:
                return Compare(_COMPARATORS[type(by)], self._read(left), self._read(right))
            case ast.Compare():
                raise self._wrong("compares twice in a row: write a < b and b < c")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                return Compute(_SIGNS[type(op)], self._read(left), self._read(right))
            case ast.List(elts=values):
                return Items(tuple(map(self._read, values)))
            case ast.Call(func=ast.Name() as called, args=[argument], keywords=[]) if self._word(called) == (
                "name",
                "has",
            ):
                return Has(self._path(argument))
            case ast.Call():
                raise self._wrong("has a call: there are no functions besides has(…)")
        raise self._wrong("is not a condition: write fields, comparisons, and, or, not")

    def _word(self, node: ast.Name) -> tuple[str, str]:
        return self._words[int(node.id[1:])]

    def _value(self, node: ast.Name | ast.Attribute) -> Constant | Path:
        kind, word = self._word(node) if isinstance(node, ast.Name) else ("", "")
        match kind:
            case "number":
                return Constant(self._number(word))
            case "text":
                return Constant(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), word[1:-1]))
        return Constant(_BOOLEANS[word]) if word in _BOOLEANS else self._path(node)

    def _path(self, node: ast.expr) -> Path:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            words = [self._words[int(part[1:])] for part in (node.id, *reversed(parts))]
            if all(kind == "name" and word not in _BOOLEANS and word != "has" for kind, word in words):
                return Path(tuple(word for _, word in words))
        raise self._wrong("has something else where a field's name should be")

    def _number(self, text: str) -> int | float:
        if len(text) > MAX_NUMBER_CHARS:
            raise self._wrong(f"has a number of more than {MAX_NUMBER_CHARS} characters")
        number = int(text) if text.isdecimal() and text.isascii() else float(text)
        if not math.isfinite(number):
            raise self._wrong(f"has the number {text}, which is too large")
        return number
