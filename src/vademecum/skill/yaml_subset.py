"""YAML text → fields: scalars as they are written, flat lists, and one level of mapping.

The parser's events are read directly: nothing is guessed to be a number or a date, an anchor or an alias
is never expanded, and every value has its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from yaml import MarkedYAMLError, SafeLoader, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from vademecum.skill.skill import Problem, Severity

try:
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]
except ImportError:  # a PyYAML without LibYAML: slower, the same events
    _Parser = SafeLoader  # type: ignore[assignment,misc]

MAX_DEPTH = 32
# The opening fence is line 1, and the parser's marks count from zero.
FIRST_LINE = 2
INVALID = "Invalid YAML in frontmatter"
_WIDE_COLON = re.compile(r"\s*[\w-]+：")
_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Dropped(Struct, frozen=True):
    """Stands for a value of a shape that is not read: something nested, or an alias."""


DROPPED = Dropped()
Value = str | tuple[str, ...] | Mapping[str, str] | Dropped


class Field(Struct, frozen=True, gc=False):
    """One key of the frontmatter: its value and its line."""

    value: Value
    line: int


class Fields(Struct, frozen=True):
    """All keys in their order, and what was met on the way."""

    by_name: Mapping[str, Field]
    problems: tuple[Problem, ...] = ()
    broken: bool = False


def read_fields(text: str, *, lenient: bool = False) -> Fields:
    r"""Read the frontmatter's text; ``broken`` says that it is no YAML mapping at all.

    >>> fields = read_fields("name: pdf\nversion: 1.10\ntags: [a, b]\n")
    >>> {name: field.value for name, field in fields.by_name.items()}
    {'name': 'pdf', 'version': '1.10', 'tags': ('a', 'b')}
    """
    try:
        reader = _Reader(_Parser(text).get_event, lenient=lenient)
        reader.read()
    except MarkedYAMLError as error:
        return _broken(_invalid(error, text))
    except (YAMLError, UnicodeError):
        # The parser's reader gives neither line nor column; there is only one thing it objects to.
        return _broken(_unreadable_character(text))
    return Fields(reader.fields, tuple(reader.problems), broken=reader.broken)


def _unreadable_character(text: str) -> Problem:
    found = _NOT_YAML.search(text)
    character = f"U+{ord(found[0]):04X}" if found else "a control character"
    line = text.count("\n", 0, found.start()) + FIRST_LINE if found else None
    return Problem("invalid-yaml", "error", f"{INVALID}: {character} is not allowed. Remove it", line=line)


def _broken(problem: Problem) -> Fields:
    return Fields({}, (problem,), broken=True)


class _Reader:
    """Walks the events of one document; ``fields`` and ``problems`` fill as it goes."""

    def __init__(self, next_event: Callable[[], Any], *, lenient: bool) -> None:
        self._next = next_event
        self._lenient = lenient
        self.fields: dict[str, Field] = {}
        self.problems: list[Problem] = []
        self.broken = False
        self._seen_extras: set[tuple[str, int]] = set()

    def read(self) -> None:
        self._next()  # the stream starts
        if type(self._next()) is StreamEndEvent:
            return
        self._read_top(self._next())
        self._next()  # the document ends
        event = self._next()
        if type(event) is not StreamEndEvent:
            self._fail(event, "invalid-yaml", f"{INVALID}: a second document begins. Remove it")

    def _read_top(self, event: Any) -> None:
        self._inspect(event)
        if type(event) is not MappingStartEvent:
            if type(event) is ScalarEvent and not event.value:
                return  # only comments: every field is missing, which is said elsewhere
            what = "SKILL.md frontmatter must be a YAML mapping. Write fields such as name: my-skill"
            self._fail(event, "not-a-mapping", what)
            self._skip(event)
            return
        for key, line in self._keys():
            value = self._value(self._next(), key)
            if key in self.fields:
                text = f"The field {key!r} is there twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            self.fields[key] = Field(value, line)

    def _keys(self) -> Iterator[tuple[str, int]]:
        """The keys of the mapping that has just begun, with their lines; the caller takes each value."""
        while type(event := self._next()) is not MappingEndEvent:
            if event.anchor is not None or event.tag is not None:
                self._inspect(event)
            line: int = event.start_mark.line + FIRST_LINE
            if type(event) is ScalarEvent:
                yield event.value, line
            else:
                self._fail(event, "invalid-yaml", f"{INVALID}: a key must be plain text. Quote it")
                self._skip(event)
                self._skip(self._next())

    def _value(self, event: Any, key: str) -> Value:
        if event.anchor is not None or event.tag is not None:
            self._inspect(event)
        if type(event) is ScalarEvent:
            return str(event.value)
        if type(event) is SequenceStartEvent:
            return self._list()
        if type(event) is MappingStartEvent:
            return self._mapping(key)
        return DROPPED

    def _list(self) -> Value:
        items: list[str] = []
        flat = True
        while type(event := self._next()) is not SequenceEndEvent:
            if event.anchor is not None or event.tag is not None:
                self._inspect(event)
            if type(event) is ScalarEvent:
                items.append(event.value)
            else:
                self._skip(event)
                flat = False
        return tuple(items) if flat else DROPPED

    def _mapping(self, key: str) -> Value:
        entries: dict[str, str] = {}
        for name, line in self._keys():
            event = self._next()
            if event.anchor is not None or event.tag is not None:
                self._inspect(event)
            if name in entries and key == "metadata":
                text = f"'metadata.{name[:40]}' is there twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            if type(event) is ScalarEvent:
                entries[name] = event.value
                continue
            self._skip(event)
            if key == "metadata":
                text = (
                    f"'metadata.{name[:40]}' is nested and was left out: only text is kept, write one string"
                )
                self._note("nested-value", line, text, field=key, severity="warning")
        return entries if key == "metadata" else DROPPED

    def _skip(self, event: Any) -> None:
        """Pass over a whole value, however deep, without keeping any of it."""
        depth = 0
        while True:
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise MarkedYAMLError(problem="values are nested too deeply", problem_mark=event.start_mark)
            if depth == 0:
                return
            event = self._next()
            if isinstance(event, NodeEvent):
                self._inspect(event)

    def _inspect(self, event: Any) -> None:
        """Note an anchor, an alias or a tag: they are never followed, and strict reading refuses them."""
        if type(event) is AliasEvent:  # which has no tag
            self._note_extra("alias", event)
            return
        if event.anchor is not None:
            self._note_extra("anchor", event)
        if event.tag is not None:
            self._note_extra("tag", event)

    def _note_extra(self, what: str, event: Any) -> None:
        line = event.start_mark.line + FIRST_LINE
        if (what, line) not in self._seen_extras:  # one line can hold thousands
            self._seen_extras.add((what, line))
            self._note(
                f"yaml-{what}", line, f"A YAML {what} is not followed in frontmatter: write the value itself"
            )

    def _note(
        self, code: str, line: int, text: str, *, field: str | None = None, severity: Severity | None = None
    ) -> None:
        level: Severity = severity or ("warning" if self._lenient else "error")
        self.problems.append(Problem(code, level, text, field, line))

    def _fail(self, event: Any, code: str, text: str) -> None:
        self.broken = True
        self.problems.append(Problem(code, "error", text, line=event.start_mark.line + FIRST_LINE))


def _invalid(error: MarkedYAMLError, text: str) -> Problem:
    """The parser's complaint with the line it is about and what to do there."""
    lines = text.split("\n")
    conflict = next((n for n, line in enumerate(lines) if line.startswith("<<<<<<< ")), None)
    # For these the parser gives up far behind the line that is to be corrected.
    began_before = error.context in {"while scanning a simple key", "while scanning a quoted scalar"}
    mark = error.context_mark if began_before else error.problem_mark or error.context_mark
    number = conflict if conflict is not None else mark.line if mark is not None else 0
    written = lines[number] if number < len(lines) else ""
    hint = _hint(written, error.problem or "")
    return Problem("invalid-yaml", "error", f"{INVALID}: {error.problem}. {hint}", line=number + FIRST_LINE)


def _hint(written: str, problem: str) -> str:
    if written.startswith("<<<<<<< "):
        return "Resolve the merge conflict"
    if _WIDE_COLON.match(written):
        return "Write an ASCII colon and a space after the field's name"
    if "\t" in written[: len(written) - len(written.lstrip())] or "\t" in problem:
        return "Indent with spaces, not tabs"
    if "mapping values" in problem:
        return f'Put the value in quotes: {written.partition(":")[0].strip()[:40]}: "…"'
    if "nested too deeply" in problem:
        return "Flatten the value"
    return "Correct this line, or put its value in quotes"
