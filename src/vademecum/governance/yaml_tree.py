"""YAML text → nodes that know their lines. No anchors, aliases and tags; depth and size are capped."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from msgspec import Struct
from yaml import MarkedYAMLError, SafeLoader, YAMLError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from vademecum.skill.skill import Problem

try:
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]
except ImportError:  # a PyYAML without LibYAML: slower, the same events
    _Parser = SafeLoader  # type: ignore[assignment,misc]

MAX_DEPTH = 16
MAX_NODES = 2_000_000
MAX_PROBLEMS = 200

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?"
)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


class Scalar(Struct, frozen=True):
    """A value, typed as plain YAML has it, and as it is written; what is in quotes is text."""

    value: str | int | float | bool | None
    line: int
    written: str = ""


class Sequence(Struct, frozen=True):
    """A list."""

    items: tuple[Node, ...]
    line: int


class Entry(Struct, frozen=True):
    """One key of a mapping, with its own line."""

    key: str
    value: Node
    line: int


class Mapping(Struct, frozen=True):
    """Keys with their values, each key once."""

    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        """The entry of a key, if there is one."""
        return next((entry for entry in self.entries if entry.key == key), None)


Node = Scalar | Sequence | Mapping


class Tree(Struct, frozen=True):
    """A whole document, if it could be read, and what was wrong on the way."""

    root: Node | None
    problems: tuple[Problem, ...] = ()


def read_tree(text: str) -> Tree:
    r"""The nodes of a text.

    >>> read_tree("a: [1, 'x']\n").root.entries[0].value.items[1]
    Scalar(value='x', line=1, written='x')
    """
    reader = None
    try:
        reader = _Reader(_Parser(text).get_event)
        root = reader.read()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        return _broken(f"This is not YAML: {error.problem}. Correct this line.", line)
    except (YAMLError, UnicodeError):
        return _broken("This is not YAML: it holds a character that is not allowed. Remove it.", 1)
    return Tree(root, tuple(reader.problems))


def _broken(message: str, line: int) -> Tree:
    return Tree(None, (Problem(code="invalid-yaml", severity="error", message=message, line=line),))


class _Reader:
    """Walks the events of one document."""

    def __init__(self, next_event: Callable[[], Any]) -> None:
        self._next = next_event
        self._left = MAX_NODES
        self.problems: list[Problem] = []

    def read(self) -> Node | None:
        self._next()  # the stream starts
        if type(event := self._next()) is StreamEndEvent:
            return None
        root = self._node(self._next(), 0)
        self._next()  # the document ends
        if type(event := self._next()) is not StreamEndEvent:
            self._wrong(event, "A second document begins: a charter is one.")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        line: int = event.start_mark.line + 1
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise MarkedYAMLError(problem="it is too deep or too large", problem_mark=event.start_mark)
        if type(event) is AliasEvent:
            self._wrong(event, "An alias is not followed: write the value itself.")
            return Scalar(None, line)
        if event.anchor is not None or event.tag is not None:
            self._wrong(event, "Anchors and tags are not used: write the value itself.")
        if type(event) is ScalarEvent:
            return Scalar(event.value if event.style else typed(event.value), line, event.value)
        if type(event) is SequenceStartEvent:
            return Sequence(tuple(self._items(depth)), line)
        assert type(event) is MappingStartEvent
        return Mapping(tuple(self._entries(depth)), line)

    def _items(self, depth: int) -> list[Node]:
        found = []
        while type(event := self._next()) is not SequenceEndEvent:
            found.append(self._node(event, depth + 1))
        return found

    def _entries(self, depth: int) -> list[Entry]:
        found: dict[str, Entry] = {}
        while type(event := self._next()) is not MappingEndEvent:
            line = event.start_mark.line + 1
            if type(event) is not ScalarEvent:
                raise MarkedYAMLError(problem="a key must be plain text", problem_mark=event.start_mark)
            key = event.value
            value = self._node(self._next(), depth + 1)
            if key in found:
                self._wrong(event, f"The key {key!r} is there twice: remove one of them.", "duplicate-key")
            found[key] = Entry(key, value, line)
        return list(found.values())

    def _wrong(self, event: Any, message: str, code: str = "invalid-yaml") -> None:
        if len(self.problems) < MAX_PROBLEMS:
            line = event.start_mark.line + 1
            self.problems.append(Problem(code=code, severity="error", message=message, line=line))


def typed(text: str) -> str | int | float | bool | None:
    """What a word without quotes stands for; ``08`` and what is too large for a number are texts.

    >>> typed("8"), typed("1e3"), typed("08"), typed("True"), typed("1e999")
    (8, 1000.0, '08', True, '1e999')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and isfinite(float(text)) else text
