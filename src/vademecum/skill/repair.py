"""Lenient mode's repair of frontmatter that is no YAML: text values get the quotes they lack."""

from __future__ import annotations

import json
import re

TEXT_FIELDS = ("name", "description", "version", "author", "license", "compatibility")

_START = re.compile(rf"({'|'.join(TEXT_FIELDS)}):[ \t]+(\S.*)$")
# A block scalar, a comment, or a text whose quotes are whole.
_IS_MARKED = re.compile(r"""[|>#]|"(?:[^"\\]|\\.)*"\s*(?:#.*)?$|'(?:[^']|'')*'\s*(?:#.*)?$""")


def quote_values(text: str) -> tuple[str, tuple[int, ...]]:
    r"""Quote the plain values of the text fields; returns the new text and the lines that changed.

    The number of lines stays the same, so that every later message still points at the right one.

    >>> quote_values("name: a\ndescription: Use when: needed\n  or asked\n")
    ('name: a\ndescription: "Use when: needed or asked"\n#\n', (1,))
    """
    out: list[str] = []
    changed: list[int] = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        match = _START.match(lines[number])
        end = number + 1
        if match is None or _IS_MARKED.match(match[2]):
            out.append(lines[number])
        else:
            while end < len(lines) and (lines[end][:1] in {" ", "\t"} or _is_gap(lines, end)):
                end += 1
            folded = " ".join([match[2], *lines[number + 1 : end]])
            value = " ".join(folded.split())
            if _needs_quotes(value):
                changed.append(number)
                out += [f"{match[1]}: {json.dumps(value, ensure_ascii=False)}", *["#"] * (end - number - 1)]
            else:
                out += lines[number:end]
        number = end
    return "\n".join(out), tuple(changed)


def _is_gap(lines: list[str], number: int) -> bool:
    """Whether a blank line only separates two paragraphs of one value."""
    return not lines[number].strip() and lines[number + 1 : number + 2] != [] and lines[number + 1][:1] == " "


def _needs_quotes(value: str) -> bool:
    return value[0] in "'\"" or ": " in value or value.endswith(":") or value[0] in "[]{}*&!%@`,?-"
