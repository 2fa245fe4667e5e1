"""Frontmatter of plain lines → fields, several times faster than a YAML parser and with the same result.

Most documents are nothing but ``key: value`` lines and a flat ``metadata``. Whatever goes beyond that is left
to the parser; a property test and the real documents compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from vademecum.skill.skill import Problem

# The opening fence is line 1 of the document, and lines of the frontmatter are counted from zero.
FIRST_LINE = 2
# How YAML writes that there is no value.
NOTHING = frozenset({"~", "null", "Null", "NULL"})

# Characters that YAML refuses, folds or escapes.
_SPECIAL = re.compile(r"[\x00-\x09\x0b-\x1f\\\x7f-\xa0\u2028-\u202e\ud800-\udfff\ufeff\ufffe\uffff]")
_LINE = re.compile(
    r"(  )?([A-Za-z][A-Za-z0-9_-]{0,60}):"
    r"""(?: +(?:([^\x00-/:-@\[-`{-\xa0].*)|"([^"]*)" *|'([^']*)' *))?"""
)


# None stands for a value of a shape that is not read: something nested, or an alias.
Value = str | tuple[str, ...] | Mapping[str, str] | None


class Field(Struct, frozen=True, gc=False):
    """One key of the frontmatter: its value and its line."""

    value: Value
    line: int


class Fields(Struct, frozen=True):
    """All keys in their order, and what was met on the way."""

    by_name: Mapping[str, Field]
    problems: tuple[Problem, ...] = ()
    broken: bool = False
    # Names of variables that `metadata` lists for scripts, as they are written.
    secrets: tuple[str, ...] = ()


def read_plain_lines(text: str) -> Fields | None:
    r"""Read frontmatter of plain lines; ``None`` if any line is something else.

    >>> fields = read_plain_lines("name: pdf\nmetadata:\n  version: '1.10'\n")
    >>> {name: field.value for name, field in fields.by_name.items()}
    {'name': 'pdf', 'metadata': {'version': '1.10'}}
    >>> read_plain_lines("tags: [a, b]\n") is None
    True
    """
    if _SPECIAL.search(text):
        return None
    fields: dict[str, Field] = {}
    entries: dict[str, str] | None = None  # those below `metadata:`, while its lines last
    for number, line in enumerate(text.splitlines(), FIRST_LINE):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        indent, key, plain, double, single = match.groups()
        value = plain.rstrip(" ") if plain else double or single or ""
        if plain and (": " in value or " #" in value or value[-1] == ":"):
            return None
        if indent:
            if entries is None or key in entries:
                return None
            entries[key] = value
        elif key in fields:
            return None
        else:
            entries = {} if key == "metadata" and match.end(2) + 1 == len(line) else None
            fields[key] = Field("" if plain and value in NOTHING else value, number)
        if entries:
            fields["metadata"] = Field(entries, fields["metadata"].line)
    return Fields(fields) if fields else None
