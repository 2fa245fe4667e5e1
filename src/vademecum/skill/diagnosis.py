"""Find the fault in frontmatter that is not YAML, say what to write instead, or repair the text.

The text is split into one entry for each field, to find the field that is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import yaml
from msgspec import Struct
from yaml import Mark, MarkedYAMLError, YAMLError
from yaml.events import StreamEndEvent

from vademecum.skill.frontmatter import FIRST_LINE
from vademecum.skill.skill import CONTROL_FIELDS, KNOWN_FIELDS, OWN_FIELDS, SPECIFIED_FIELDS, Problem

# A PyYAML without LibYAML is slower and gives the same events.
Parser: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

INVALID = "Invalid YAML in frontmatter"
NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The mark of a merge conflict: neither side may be guessed.
CONFLICT = re.compile(r"^<{7} ", re.MULTILINE)
# A known field is recognised with any colon, other keys only with a colon and a space or a full-width colon.
_FIELD = re.compile(rf"([ \t]*)({'|'.join(SPECIFIED_FIELDS + OWN_FIELDS)})[ \t]*([:：])(\s*)(.*)", re.I)
_KEY = re.compile(
    r"([ \t]*)([\"']?[\w$][^:：\s\"'{}\[\]]*[\"']?)[ \t]*(?:(:)(?:([ \t]+)(.*)|$)|(：)([ \t]*)(.*))"
)
_ONE_LINE = re.compile(r"[^\s|>\[{\"'#&*!]")
_BLOCK = re.compile(r"[|>][-+0-9]*\s*")
_CONTROL = re.compile(rf"^[ \t]*[\"']?({'|'.join(CONTROL_FIELDS)})[\"']?[ \t]*[:：]", re.I | re.M)
_TABS = re.compile(r" *\t\s*(?![\s#])(?!(?:name|description)[ \t]*[:：])", re.I)
_NESTED = frozenset({"metadata", "allowed-tools"})
_UNQUOTED = "The value lacked quotes and was read as one text. Put it in quotes"
_LEFT_OUT = "The value of {!r} cannot be parsed and was left out. Correct it, or put it in quotes"


class FieldLines(Struct):
    """One field as written: its key, its value, and the lines that follow it."""

    line: int
    indent: str
    key: str
    value: str
    # The fault in how the key is written, and what to write instead.
    slip: str = ""
    more: list[str] = []

    def lines(self, margin: str = "") -> list[str]:
        """Return all lines of the entry, the first one in valid YAML."""
        return [f"{margin}{self.key}: {self.value}".rstrip(), *self.more]

    def children(self) -> list[FieldLines]:
        """Return the entries below ``metadata:``, if its own line has no value."""
        if self.key.strip("\"'").lower() != "metadata" or self.value:
            return []
        first = next((line for line in self.more if line.strip()), "")
        margin = first[: len(first) - len(first.lstrip())]
        return split(self.more, margin, self.line + 1) if margin else []


def split(lines: Sequence[str], margin: str = "", first: int = 0) -> list[FieldLines]:
    r"""Return the entries whose keys begin at a margin; lines before the first key belong to no entry.

    At the top, a known field also counts if it is indented below a value that ends on its line.

    >>> [(entry.key, entry.value, entry.more) for entry in split(["name：a", "  description: b", "  c"])]
    [('name', 'a', []), ('description', 'b', ['  c'])]
    """
    found: list[FieldLines] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, first):
        entry = _entry(number, line, margin)
        if entry and entry.indent != margin:
            goes_on = found and (found[-1].more or not _ONE_LINE.match(found[-1].value))
            if margin or goes_on or entry.key.lower() in seen:
                entry = None
        if entry:
            seen.add(entry.key.lower())
            found.append(entry)
        elif found:
            found[-1].more.append(line)
    return found


def _entry(number: int, line: str, margin: str) -> FieldLines | None:
    known = None if margin else _FIELD.fullmatch(line)
    match = known or _KEY.fullmatch(line)
    if match is None or (known is None and match[1] != margin):
        return None
    indent, key, colon, space, value = (part or "" for part in match.groups()[:5])
    if known is None and match[6]:
        colon, space, value = match.groups()[5:]
    slip = ""
    if colon == "：":
        slip = f"the colon after {key!r} is full-width. Write an ASCII colon and a space: {key}: …"
    elif value and not space:
        slip = f"there is no space after {key + ':'!r}. Add a space after the colon: {key}: …"
    elif indent != margin:
        slip = f"the field {key!r} is indented. Remove the spaces or tabs before it"
    return FieldLines(number, indent, key, value, slip)


def diagnose(error: YAMLError, text: str) -> Problem:
    """Return the problem that describes a syntax error of the whole frontmatter."""
    if conflict := CONFLICT.search(text):
        return _problem(_line_of(conflict), "a merge conflict. Resolve it")
    if found := NOT_YAML.search(text):
        return _problem(_line_of(found), f"U+{ord(found[0]):04X} is not allowed. Remove it")
    assert isinstance(error, MarkedYAMLError)  # only a character is refused without its place
    lines = text.split("\n")
    for entry in split(lines):
        for one in (entry, *entry.children()):
            if one.slip:
                return _problem(one.line, one.slip)
        if own := syntax_error(entry.lines()):
            return _described(own, entry.lines(), entry.line)
    return _described(error, lines, 0)


def misspelt_key(text: str) -> Problem | None:
    """Return the problem of the first key with a wrong colon, a missing space or an indentation."""
    entries = split(text.split("\n"))
    return next((_problem(entry.line, entry.slip) for entry in entries if entry.slip), None)


def syntax_error(lines: Sequence[str]) -> MarkedYAMLError | None:
    """Return the parser's error for lines without control characters, or ``None``."""
    parser = Parser("\n".join(lines))
    try:
        while type(parser.get_event()) is not StreamEndEvent:
            pass
    except MarkedYAMLError as error:
        return error
    return None


def _described(error: MarkedYAMLError, lines: Sequence[str], first: int) -> Problem:
    number = _place(error, lines)
    return _problem(first + number, f"{error.problem}. {_hint(lines[number], error)}")


def _place(error: MarkedYAMLError, lines: Sequence[str]) -> int:
    """Return the line of the fault: the beginning of an unclosed value, else where the parser stopped."""
    mark: Mark | None = error.problem_mark or error.context_mark
    if mark is None:
        return 0
    context = error.context or ""
    began = error.context_mark or mark
    rest = [lines[mark.line][mark.column :], *lines[mark.line + 1 :]] if mark.line < len(lines) else []
    unclosed = "flow" in context and (not "".join(rest).strip() or rest[0][:1] in {"]", "}"})
    if unclosed or context in {"while scanning a simple key", "while scanning a quoted scalar"}:
        mark = began
    return int(min(mark.line, len(lines) - 1))


def _line_of(found: re.Match[str]) -> int:
    return found.string.count("\n", 0, found.start())


def _problem(number: int, what: str) -> Problem:
    return Problem("invalid-yaml", "error", f"{INVALID}: {what}", line=number + FIRST_LINE)


def _hint(written: str, error: MarkedYAMLError) -> str:
    problem, context = error.problem or "", error.context or ""
    if "\t" in written[: len(written) - len(written.lstrip())] or "\t" in problem:
        return "Indent with spaces, not tabs"
    if "flow" in context:
        return "Close every bracket and brace, or put the whole value in quotes"
    if "quoted scalar" in context:
        return "Close the quotation mark, or remove it"
    if "mapping values" in problem:
        return f'Put the value in quotes: {written.partition(":")[0].strip()[:40]}: "…"'
    if "nested too deeply" in problem:
        return "Flatten the value"
    return "Correct this line, or put its value in quotes"


def repair(text: str) -> tuple[str, tuple[Problem, ...]]:
    r"""Rewrite the fields that cannot be parsed; return the new text and a note for each change.

    The number of lines stays the same, so that later messages have the right line.

    >>> repair("name: a\ndescription: Use when: needed\n  or asked\n")[0]
    'name: a\ndescription: "Use when: needed or asked"\n#\n#'
    """
    cleaned, removed = NOT_YAML.subn("", text)
    notes: list[Problem] = []
    if found := NOT_YAML.search(text):
        what = f"The frontmatter had {removed} control characters, which were removed. Delete them"
        notes.append(_note("hidden-characters", _line_of(found), what))
    lines = cleaned.split("\n")
    tabs = [number for number, line in enumerate(lines) if _TABS.match(line) and not _CONTROL.match(line)]
    if tabs:
        notes.append(_note("field-repaired", tabs[0], "Tabs indent this line. Indent with spaces"))
        for number in tabs:
            lines[number] = lines[number].expandtabs(2)
    entries = split(lines)
    head = lines[: entries[0].line] if entries else lines
    written = [*head, *(line for entry in entries for line in _rewritten(entry, notes))]
    return "\n".join(written), tuple(notes)


def lost_controls(text: str, kept: Iterable[str]) -> bool:
    """Return whether a repair lost a control field that the text contains."""
    written = {found.lower() for found in _CONTROL.findall(text)}
    return not written <= {key.lower() for key in kept}


def _rewritten(entry: FieldLines, notes: list[Problem], margin: str = "") -> Iterator[str]:
    """Yield the lines of an entry, unchanged if they can be parsed."""
    if slip := entry.slip:
        notes.append(_note("field-repaired", entry.line, f"{slip[0].upper()}{slip[1:]}", entry.key))
    key = entry.key
    lines = entry.lines(margin)
    if syntax_error(lines) is None:
        yield from lines
        return
    name = "" if margin else key.strip("\"'").lower()
    nested = not entry.value or (entry.value[0] in "[{" and (margin or name in _NESTED))
    if name == "metadata" and not entry.value:
        children = entry.children()
        yield lines[0]
        yield from ["#"] * ((children[0].line - entry.line - 1) if children else len(entry.more))
        for child in children:
            yield from _rewritten(child, notes, child.indent)
    elif nested and (name not in KNOWN_FIELDS or name in _NESTED):
        notes.append(_note("unreadable-value", entry.line, _LEFT_OUT.format(key[:40]), key))
        # The field itself stays: an `allowed-tools` that cannot be read allows nothing.
        yield "#" if margin else f"{key}: {{}}" if name == "metadata" else f"{key}: []"
        yield from ["#"] * len(entry.more)
    else:
        notes.append(_note("unquoted-value", entry.line, _UNQUOTED, key))
        first = "" if _BLOCK.fullmatch(entry.value) else entry.value
        more = (line for line in entry.more if not line.startswith("#"))
        value = _without_quotes(" ".join(" ".join((first, *more)).split()))
        yield f"{margin}{key}: {json.dumps(value, ensure_ascii=False)}"
        yield from ["#"] * len(entry.more)


def _without_quotes(value: str) -> str:
    """Remove quotation marks around a whole value, or an unclosed one."""
    mark = value[:1]
    if mark not in {"'", '"'}:
        return value
    inner = value[1:].removesuffix(mark)
    before, found, after = inner.partition(mark)
    closed = found and not before[-1:].isspace() and not after[:1].isalnum()  # as in 'a' and 'b'
    return value if closed else inner


def _note(code: str, number: int, message: str, key: str | None = None) -> Problem:
    return Problem(code, "warning", message, key, line=number + FIRST_LINE)
