"""A condition's text → its tree. Nothing but this grammar is understood, and nothing is run here.

::

    either     = both (("or" | "||") both)*
    both       = negation (("and" | "&&") negation)*
    negation   = "not" negation | comparison
    comparison = sum [("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in") sum]
    sum        = product (("+" | "-") product)*
    product    = sign (("*" | "/" | "%") sign)*
    sign       = ("-" | "!") sign | value
    value      = number | text | "true" | "false" | list | "has(" path ")" | path | "(" either ")"
    path       = name ("." name)*
"""

from __future__ import annotations

import math
import re
from typing import Literal, cast

from msgspec import Struct

from vademecum.errors import ConditionWrong

MAX_CONDITION_CHARS = 2000
MAX_DEPTH = 30
MAX_OPERATORS = 60
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
_WORDS = {"&&": "and", "||": "or", "True": "true", "False": "false"}
_COMPARATORS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_RESERVED = frozenset({"and", "or", "not", "in", "true", "false", "has"})


class Constant(Struct, frozen=True):
    """A number, a text, true or false."""

    value: bool | int | float | str


class Path(Struct, frozen=True):
    """A place in the state, from its outermost name inwards."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        """As it is written."""
        return ".".join(self.parts)


class Has(Struct, frozen=True):
    """Whether there is something at a place."""

    path: Path


class Items(Struct, frozen=True):
    """A list of values."""

    values: tuple[Tree, ...]


class Not(Struct, frozen=True):
    """The opposite."""

    value: Tree


class Both(Struct, frozen=True):
    """One and the other; the other is looked at only if the one holds."""

    left: Tree
    right: Tree


class Either(Struct, frozen=True):
    """One or the other; the other is looked at only if the one does not hold."""

    left: Tree
    right: Tree


class Compare(Struct, frozen=True):
    """Two values compared."""

    by: Comparator
    left: Tree
    right: Tree


class Compute(Struct, frozen=True):
    """Two numbers computed; a sign before one number is a subtraction from zero."""

    by: Sign
    left: Tree
    right: Tree


Tree = Constant | Path | Has | Items | Not | Both | Either | Compare | Compute


def parse(text: str) -> Tree:
    """The tree of a condition.

    >>> parse("not elevated")
    Not(value=Path(parts=('elevated',)))
    >>> parse("budget >")
    Traceback (most recent call last):
    ...
    vademecum.errors.ConditionWrong: The condition 'budget >' ends where a value should be.
    """
    if len(text) > MAX_CONDITION_CHARS:
        raise ConditionWrong(f"The condition {text[:40]!r}… has more than {MAX_CONDITION_CHARS} characters.")
    return _Parser(text).whole()


def paths_of(tree: Tree) -> list[Path]:
    """Every path that a tree reads, once each, in their order.

    >>> [str(path) for path in paths_of(parse("a.b > c and not c"))]
    ['a.b', 'c']
    """
    return list(dict.fromkeys(_paths(tree)))


def _paths(tree: Tree) -> list[Path]:
    match tree:
        case Path():
            return [tree]
        case Has(path=path):
            return [path]
        case Constant():
            return []
        case Items(values=values):
            return [path for value in values for path in _paths(value)]
        case Not(value=value):
            return _paths(value)
        case Both() | Either() | Compare() | Compute():
            return _paths(tree.left) + _paths(tree.right)


class _Token(Struct, frozen=True):
    kind: str
    text: str


_END = _Token("end", "")


class _Parser:
    """Goes through the tokens of one text, once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0
        self._operators = 0

    def _split(self, text: str) -> list[_Token]:
        found, position = [], 0
        end = len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                rest = text[position:].lstrip()
                raise self._wrong(f"has {rest[:1]!r}, which is not part of the language")
            kind = cast("str", match.lastgroup)
            found.append(_Token(kind, match[kind]))
            position = match.end()
        return found

    def whole(self) -> Tree:
        if not self._tokens:
            raise ConditionWrong("The condition is empty: write a field, or an expression.")
        tree = self._either()
        if (left := self._peek()) is not _END:
            raise self._wrong(f"goes on with {left.text!r} where it should end")
        return tree

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else _END

    def _is(self, *words: str) -> bool:
        token = self._peek()
        return token.kind in {"name", "sign"} and _WORDS.get(token.text, token.text) in words

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _accept(self, *words: str) -> bool:
        if not self._is(*words):
            return False
        self._next += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            found = self._peek()
            what = f"has {found.text!r}" if found is not _END else "ends"
            raise self._wrong(f"{what} where {word!r} should be")

    def _wrong(self, what: str) -> ConditionWrong:
        return ConditionWrong(f"The condition {self._text[:200]!r} {what}.")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"is nested more than {MAX_DEPTH} deep")

    def _another(self) -> None:
        """Count an operator: a chain of them is as deep as it is long."""
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise self._wrong(f"has more than {MAX_OPERATORS} operators: split it into several conditions")

    def _either(self) -> Tree:
        self._deeper()
        tree = self._both()
        while self._accept("or"):
            self._another()
            tree = Either(tree, self._both())
        self._depth -= 1
        return tree

    def _both(self) -> Tree:
        tree = self._negation()
        while self._accept("and"):
            self._another()
            tree = Both(tree, self._negation())
        return tree

    def _negation(self) -> Tree:
        if self._accept("not"):
            self._deeper()
            tree = Not(self._negation())
            self._depth -= 1
            return tree
        return self._comparison()

    def _comparison(self) -> Tree:
        left = self._sum()
        by = self._comparator()
        if by is None:
            return left
        tree = Compare(by, left, self._sum())
        if self._comparator() is not None:
            raise self._wrong("compares twice in a row: write a < b and b < c")
        return tree

    def _comparator(self) -> Comparator | None:
        if self._accept("not"):
            self._expect("in")
            return "not in"
        if self._is(*_COMPARATORS):
            return cast("Comparator", self._take().text)
        return None

    def _sum(self) -> Tree:
        tree = self._product()
        while self._is("+", "-"):
            self._another()
            tree = Compute(cast("Sign", self._take().text), tree, self._product())
        return tree

    def _product(self) -> Tree:
        tree = self._sign()
        while self._is("*", "/", "%"):
            self._another()
            tree = Compute(cast("Sign", self._take().text), tree, self._sign())
        return tree

    def _sign(self) -> Tree:
        if self._is("-", "!"):
            self._deeper()
            negative = self._take().text == "-"
            value = self._sign()
            self._depth -= 1
            if not negative:
                return Not(value)
            if isinstance(value, Constant) and not isinstance(value.value, bool | str):
                return Constant(-value.value)
            return Compute("-", Constant(0), value)
        return self._value()

    def _value(self) -> Tree:
        token = self._take()
        if token is _END:
            raise self._wrong("ends where a value should be")
        match token.kind:
            case "number":
                return Constant(self._number(token.text))
            case "text":
                return Constant(_unquoted(token.text))
            case "name":
                return self._named(token)
        if token.text == "(":
            tree = self._either()
            self._expect(")")
            return tree
        if token.text == "[":
            return self._items()
        raise self._wrong(f"has {token.text!r} where a value should be")

    def _named(self, token: _Token) -> Tree:
        word = _WORDS.get(token.text, token.text)
        if word in {"true", "false"}:
            return Constant(word == "true")
        if word == "has":
            self._expect("(")
            path = self._path(self._take())
            self._expect(")")
            return Has(path)
        path = self._path(token)
        if self._is("("):
            raise self._wrong(f"calls {str(path)!r}: there are no functions besides has(…)")
        return path

    def _path(self, token: _Token) -> Path:
        parts = [self._name(token)]
        while self._accept("."):
            parts.append(self._name(self._take()))
        return Path(tuple(parts))

    def _name(self, token: _Token) -> str:
        if token.kind != "name" or token.text in _RESERVED:
            found = f"has {token.text!r}" if token is not _END else "ends"
            raise self._wrong(f"{found} where a field's name should be")
        return token.text

    def _items(self) -> Tree:
        self._deeper()
        values: list[Tree] = []
        while not self._accept("]"):
            if values:
                self._expect(",")
            values.append(self._sum())
        self._depth -= 1
        return Items(tuple(values))

    def _number(self, text: str) -> int | float:
        if len(text) > MAX_NUMBER_CHARS:
            raise self._wrong(f"has a number of more than {MAX_NUMBER_CHARS} characters")
        number = int(text) if text.isdecimal() and text.isascii() else float(text)
        if not math.isfinite(number):
            raise self._wrong(f"has the number {text}, which is too large")
        return number


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
