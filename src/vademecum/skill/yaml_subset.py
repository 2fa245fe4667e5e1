"""Read YAML as fields (scalars as written, flat lists, one level of mapping) or as JSON values.

The parser's events are read directly. Fields are never converted to numbers or dates, anchors and aliases are
never expanded, and every value has its line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from yaml import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from vademecum.errors import LoadRefused
from vademecum.skill.diagnosis import INVALID, Parser, diagnose, misspelt_key
from vademecum.skill.frontmatter import FIRST_LINE, NOTHING, Field, Fields, Value, find_block
from vademecum.skill.skill import Problem, Severity

MAX_DEPTH = 32
# Where `metadata` names the variables that scripts need: our own list, and those of other runtimes.
_SECRETS_BELOW: dict[str, tuple[str, ...]] = {
    "secrets": (),
    **dict.fromkeys(("openclaw", "clawdbot", "moltbot"), ("requires", "env")),
}

# The meaning of plain scalars in the core schema of YAML 1.2.
_NULL = re.compile(r"~|[Nn]ull|NULL|")
_BOOL = re.compile(r"[Tt]rue|TRUE|[Ff]alse|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class _Node(Struct):
    """The event that begins a value, and the children of it: for a mapping, keys and values in turn."""

    event: Any
    children: list[_Node] = []

    def text(self) -> str | None:
        """Return a scalar as written; ``None`` for anything else."""
        return self.event.value if type(self.event) is ScalarEvent else None

    def texts(self) -> tuple[str, ...] | None:
        """Return a list of scalars; ``None`` for anything else."""
        if type(self.event) is not SequenceStartEvent:
            return None
        found = tuple(text for child in self.children if (text := child.text()) is not None)
        return found if len(found) == len(self.children) else None

    def pairs(self) -> Iterator[tuple[_Node, _Node]]:
        """Yield the keys of a mapping with their values."""
        if type(self.event) is MappingStartEvent:
            yield from zip(self.children[::2], self.children[1::2], strict=True)

    def line(self) -> int:
        """Return the line that the value begins on."""
        return int(self.event.start_mark.line) + FIRST_LINE


def read_fields(text: str, *, lenient: bool = False) -> Fields:
    r"""Read the frontmatter's text; ``broken`` is true if it is not a YAML mapping.

    >>> fields = read_fields("name: pdf\nversion: 1.10\ntags: [a, b]\n")
    >>> {name: field.value for name, field in fields.by_name.items()}
    {'name': 'pdf', 'version': '1.10', 'tags': ('a', 'b')}
    """
    try:
        reader = _Reader(text, lenient=lenient)
        top = reader.document()
    except YAMLError as error:
        return Fields({}, (diagnose(error, text),), broken=True)
    fields = reader.fields(top) if top else {}
    if reader.broken and not fields and (problem := misspelt_key(text)):
        return Fields({}, (problem,), broken=True)
    problems = sorted(reader.problems, key=lambda problem: problem.line or 0)
    return Fields(fields, tuple(problems), reader.broken, tuple(reader.secrets))


class _Reader:
    """Reads one document, and collects its ``problems`` and ``secrets``."""

    def __init__(self, text: str, *, lenient: bool = False) -> None:
        self._next = Parser(text).get_event
        self._lenient = lenient
        self.problems: list[Problem] = []
        self.broken = False
        self.secrets: list[str] = []
        self._noted: set[tuple[str, int]] = set()

    def document(self) -> _Node | None:
        """Return the only document as a tree; ``None`` if there is none."""
        self._next()  # the stream starts
        if type(self._next()) is StreamEndEvent:
            return None
        top = self._node()
        self._next()  # the document ends
        event = self._next()
        if type(event) is not StreamEndEvent:
            self._fail(_Node(event), "invalid-yaml", f"{INVALID}: a second document begins. Remove it")
        return top

    def _node(self, depth: int = 0) -> _Node:
        node = _Node(self._next())
        if depth > MAX_DEPTH + 2:  # plus the levels of the fields and of `metadata`
            mark = node.event.start_mark
            raise MarkedYAMLError(problem="values are nested too deeply", problem_mark=mark)
        if isinstance(node.event, NodeEvent):
            self._note_extras(node.event)
        if isinstance(node.event, CollectionStartEvent):
            while not isinstance((child := self._node(depth + 1)).event, CollectionEndEvent):
                node.children.append(child)
        return node

    def _note_extras(self, event: Any) -> None:
        """Note anchors, aliases and tags: they are ignored, and strict reading refuses them."""
        if event.anchor is None and event.tag is None:
            return
        anchor = "alias" if type(event) is AliasEvent else "anchor"
        for what, there in ((anchor, event.anchor), ("tag", getattr(event, "tag", None))):
            line = event.start_mark.line + FIRST_LINE
            if there is not None and (what, line) not in self._noted:  # one line can contain thousands
                self._noted.add((what, line))
                text = f"A YAML {what} is not followed in frontmatter: write the value itself"
                self._note(f"yaml-{what}", line, text)

    def fields(self, top: _Node) -> dict[str, Field]:
        """Return the fields of the frontmatter."""
        found: dict[str, Field] = {}
        if type(top.event) is not MappingStartEvent and top.text() != "":  # an empty one has only comments
            what = "SKILL.md frontmatter must be a YAML mapping. Write fields such as name: my-skill"
            self._fail(top, "not-a-mapping", what)
        for key, line, node in self._entries(top):
            value = self._value(node, key)
            if key in found:
                text = f"The field {key!r} appears twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            found[key] = Field(value, line)
        return found

    def _entries(self, mapping: _Node) -> Iterator[tuple[str, int, _Node]]:
        for key, value in mapping.pairs():
            if (text := key.text()) is None:
                self._fail(key, "invalid-yaml", f"{INVALID}: a key must be plain text. Quote it")
            else:
                yield text, key.line(), value

    def _value(self, node: _Node, key: str) -> Value:
        if type(node.event) is MappingStartEvent:
            entries = self._mapping(node, key)
            return entries if key == "metadata" else None
        text = node.text()
        if text is None:
            return node.texts()
        return "" if text in NOTHING and not node.event.style else text

    def _mapping(self, mapping: _Node, key: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, line, node in self._entries(mapping):
            if key != "metadata":
                continue  # of other mappings, only the keys are checked
            if name in found:
                text = f"'metadata.{name[:40]}' appears twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            if (value := node.text()) is not None:
                found[name] = value
                continue
            secrets = _texts_at(node, _SECRETS_BELOW[name]) if name in _SECRETS_BELOW else ()
            self.secrets += secrets
            if name != "secrets" or not secrets:
                what = "only its 'requires.env' was read" if secrets else "was left out"
                text = f"'metadata.{name[:40]}' is nested and {what}: only text is kept, write one string"
                self._note("nested-value", line, text, field=key, severity="warning")
        return found

    def _note(
        self, code: str, line: int, text: str, *, field: str | None = None, severity: Severity | None = None
    ) -> None:
        level: Severity = severity or ("warning" if self._lenient else "error")
        self.problems.append(Problem(code, level, text, field, line))

    def _fail(self, node: _Node, code: str, text: str) -> None:
        self.broken = True
        self.problems.append(Problem(code, "error", text, line=node.line()))


def _texts_at(node: _Node, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the text or the flat list of texts at a path of keys in a value."""
    if path:
        below = [value for key, value in node.pairs() if key.text() == path[0]]
        return tuple(text for value in below for text in _texts_at(value, path[1:]))
    if (text := node.text()) is not None:
        return (text,)
    return node.texts() or ()


def frontmatter_values(document: bytes) -> dict[str, Any]:
    r"""Return all fields of a document's frontmatter, including unknown and nested ones.

    Raise ``LoadRefused`` if it is not a mapping that JSON can express.

    >>> frontmatter_values(b"---\nname: a\nversion: 1.10\nok: yes\nsince: 2026-01-02\nx: {n: 0o17}\n---\n")
    {'name': 'a', 'version': 1.1, 'ok': 'yes', 'since': '2026-01-02', 'x': {'n': 15}}
    """
    block = find_block(document)
    if isinstance(block, Problem):
        raise _unfit(block.message)
    try:
        reader = _Reader(block)
        top = reader.document()
    except YAMLError as error:
        raise _unfit(diagnose(error, block).message) from error
    for problem in reader.problems:
        if problem.code != "yaml-anchor":  # an anchor alone changes nothing
            raise _unfit(problem.message)
    if top is None or type(top.event) is not MappingStartEvent:
        raise _unfit("The frontmatter is not a mapping")
    return dict(_value(top))


def _value(node: _Node) -> Any:
    if type(node.event) is ScalarEvent:
        return _scalar(node.event)
    if type(node.event) is SequenceStartEvent:
        return list(map(_value, node.children))
    found: dict[str, Any] = {}
    for key_node, value_node in node.pairs():
        key = _key(key_node)
        if key in found:
            raise _unfit(f"The frontmatter has {key[:80]!r} twice")
        found[key] = _value(value_node)
    return found


def _key(node: _Node) -> str:
    """Return a key as text, as JSON requires."""
    if type(node.event) is not ScalarEvent:
        raise _unfit("The frontmatter has a key that is not a text")
    value = _scalar(node.event)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _scalar(event: ScalarEvent) -> str | int | float | bool | None:
    text = str(event.value)
    if event.style:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(number):
        raise _unfit(f"The frontmatter has {text}, which JSON cannot express")
    return number


def _unfit(reason: str) -> LoadRefused:
    return LoadRefused(reason, code="frontmatter")
