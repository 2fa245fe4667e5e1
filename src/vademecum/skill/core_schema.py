"""Frontmatter → JSON values, with the types that a YAML 1.2 reader gives them (its core schema)."""

from __future__ import annotations

import math
import re
from typing import Any

from yaml import YAMLError
from yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

from vademecum.errors import LoadRefused
from vademecum.skill.diagnosis import diagnose
from vademecum.skill.frontmatter import find_block
from vademecum.skill.skill import Problem
from vademecum.skill.yaml_subset import Node, Reader

_NULL = re.compile(r"~|[Nn]ull|NULL|")
_BOOL = re.compile(r"[Tt]rue|TRUE|[Ff]alse|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


def frontmatter_values(document: bytes) -> dict[str, Any]:
    r"""Return all fields of a document's frontmatter, known or not, nested ones included.

    Raises ``LoadRefused`` if it is not a mapping that JSON can express.

    >>> frontmatter_values(b"---\nname: a\nversion: 1.10\nok: yes\nsince: 2026-01-02\nx: {n: 0o17}\n---\n")
    {'name': 'a', 'version': 1.1, 'ok': 'yes', 'since': '2026-01-02', 'x': {'n': 15}}
    """
    block = find_block(document)
    if isinstance(block, Problem):
        raise _unfit(block.message)
    reader = Reader(block)
    try:
        top = reader.document()
    except YAMLError as error:
        raise _unfit(diagnose(error, block).message) from error
    for problem in reader.problems:
        if problem.code != "yaml-anchor":  # which only an alias would follow
            raise _unfit(problem.message)
    if top is None or type(top.event) is not MappingStartEvent:
        raise _unfit("The frontmatter is not a mapping")
    found: dict[str, Any] = _value(top)
    return found


def _value(node: Node) -> Any:
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


def _key(node: Node) -> str:
    """Return a key as text, which is what becomes of it in JSON."""
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
