"""YAML text → fields: scalars as they are written, flat lists, and one level of mapping.

The parser's events are read directly: nothing is guessed to be a number or a date, an anchor or an alias
is never expanded, and every value has its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yaml import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from vademecum.skill.diagnosis import INVALID, Parser, diagnose, misspelt_key
from vademecum.skill.frontmatter import FIRST_LINE, NOTHING, Field, Fields, Value
from vademecum.skill.skill import Problem, Severity

MAX_DEPTH = 32
# Where `metadata` names the variables that scripts want: a list of our own, and what other runtimes have.
_SECRETS_BELOW: Mapping[str, tuple[str, ...]] = {
    "secrets": (),
    **dict.fromkeys(("openclaw", "clawdbot", "moltbot"), ("requires", "env")),
}


def read_fields(text: str, *, lenient: bool = False) -> Fields:
    r"""Read the frontmatter's text; ``broken`` says that it is no YAML mapping at all.

    >>> fields = read_fields("name: pdf\nversion: 1.10\ntags: [a, b]\n")
    >>> {name: field.value for name, field in fields.by_name.items()}
    {'name': 'pdf', 'version': '1.10', 'tags': ('a', 'b')}
    """
    try:
        reader = _Reader(Parser(text).get_event, lenient=lenient)
        reader.read()
    except MarkedYAMLError as error:
        return _broken(diagnose(error, text))
    except (YAMLError, UnicodeError):
        # The parser's reader gives neither line nor column; there is only one thing it objects to.
        return _broken(diagnose(None, text))
    if reader.broken and not reader.fields and (problem := misspelt_key(text)):
        return _broken(problem)
    return Fields(reader.fields, tuple(reader.problems), reader.broken, tuple(reader.secrets))


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
        self.secrets: list[str] = []
        self._seen_extras: set[tuple[str, int]] = set()

    def read(self) -> None:
        self._next()  # the stream starts
        if type(self._next()) is StreamEndEvent:
            return
        self._read_top(self._node())
        self._next()  # the document ends
        event = self._next()
        if type(event) is not StreamEndEvent:
            self._fail(event, "invalid-yaml", f"{INVALID}: a second document begins. Remove it")

    def _read_top(self, event: Any) -> None:
        if type(event) is not MappingStartEvent:
            if type(event) is ScalarEvent and not event.value:
                return  # only comments: every field is missing, which is said elsewhere
            what = "SKILL.md frontmatter must be a YAML mapping. Write fields such as name: my-skill"
            self._fail(event, "not-a-mapping", what)
            self._skip(event)
            return
        for key, line in self._keys():
            value = self._value(self._node(), key)
            if key in self.fields:
                text = f"The field {key!r} is there twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            self.fields[key] = Field(value, line)

    def _keys(self) -> Iterator[tuple[str, int]]:
        """Yield the keys of a mapping that has just begun, with their lines; the caller takes each value."""
        while type(event := self._node()) is not MappingEndEvent:
            line: int = event.start_mark.line + FIRST_LINE
            if type(event) is ScalarEvent:
                yield event.value, line
            else:
                self._fail(event, "invalid-yaml", f"{INVALID}: a key must be plain text. Quote it")
                self._skip(event)
                self._skip(self._node())

    def _value(self, event: Any, key: str) -> Value:
        if type(event) is ScalarEvent:
            value: str = event.value
            return "" if value in NOTHING and not event.style else value
        if type(event) is SequenceStartEvent:
            return self._list()
        if type(event) is MappingStartEvent:
            return self._mapping(key)
        return None

    def _list(self) -> Value:
        items: list[str] = []
        flat = True
        while type(event := self._node()) is not SequenceEndEvent:
            if type(event) is ScalarEvent:
                items.append(event.value)
            else:
                self._skip(event)
                flat = False
        return tuple(items) if flat else None

    def _mapping(self, key: str) -> Value:
        entries: dict[str, str] = {}
        for name, line in self._keys():
            event = self._node()
            if name in entries and key == "metadata":
                text = f"'metadata.{name[:40]}' is there twice: remove one of them"
                self._note("duplicate-field", line, text, field=key)
            if type(event) is ScalarEvent:
                entries[name] = event.value
                continue
            if key != "metadata":
                self._skip(event)
                continue
            found = self._texts_at(event, _SECRETS_BELOW.get(name))
            self.secrets += found
            if name != "secrets" or not found:
                what = "only its 'requires.env' was read" if found else "was left out"
                text = f"'metadata.{name[:40]}' is nested and {what}: only text is kept, write one string"
                self._note("nested-value", line, text, field=key, severity="warning")
        return entries if key == "metadata" else None

    def _texts_at(self, event: Any, path: tuple[str, ...] | None) -> tuple[str, ...]:
        """Pass over a nested value, and return the text or the flat list of texts at a path of keys in it."""
        if path == () and type(event) is ScalarEvent:
            return (event.value,)
        if path == () and type(event) is SequenceStartEvent:
            found = self._list()
            return found if isinstance(found, tuple) else ()
        if not path or type(event) is not MappingStartEvent:
            self._skip(event)
            return ()
        texts: tuple[str, ...] = ()
        while type(key := self._node()) is not MappingEndEvent:
            self._skip(key)
            value = self._node()
            here = type(key) is ScalarEvent and key.value == path[0]
            texts += self._texts_at(value, path[1:] if here else None)
        return texts

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
            event = self._node()

    def _node(self) -> Any:
        """Return the next event. Anchors, aliases and tags are not followed; strict reading refuses them."""
        event = self._next()
        is_alias = type(event) is AliasEvent
        for what, there in (
            ("alias", is_alias),
            ("anchor", not is_alias and getattr(event, "anchor", None) is not None),
            ("tag", getattr(event, "tag", None) is not None),
        ):
            line = event.start_mark.line + FIRST_LINE
            if there and (what, line) not in self._seen_extras:  # one line can hold thousands
                self._seen_extras.add((what, line))
                text = f"A YAML {what} is not followed in frontmatter: write the value itself"
                self._note(f"yaml-{what}", line, text)
        return event

    def _note(
        self, code: str, line: int, text: str, *, field: str | None = None, severity: Severity | None = None
    ) -> None:
        level: Severity = severity or ("warning" if self._lenient else "error")
        self.problems.append(Problem(code, level, text, field, line))

    def _fail(self, event: Any, code: str, text: str) -> None:
        self.broken = True
        self.problems.append(Problem(code, "error", text, line=event.start_mark.line + FIRST_LINE))
