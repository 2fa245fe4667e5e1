"""Frontmatter → JSON values, with the types that a YAML 1.2 reader gives them (its core schema)."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from vademecum.errors import LoadRefused
from vademecum.skill.frontmatter import find_block
from vademecum.skill.skill import Problem

MAX_NESTING = 32
_NULL = re.compile(r"~|[Nn]ull|NULL|")
_BOOL = re.compile(r"[Tt]rue|TRUE|[Ff]alse|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# It leaves every plain scalar a text: no dates, no `yes`, no base 60.
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def frontmatter_values(document: bytes) -> dict[str, Any]:
    r"""Return all fields of a document's frontmatter, known or not, nested ones included.

    Raises ``LoadRefused`` if it is not a mapping that JSON can express.

    >>> frontmatter_values(b"---\nname: a\nversion: 1.10\nok: yes\nsince: 2026-01-02\nx: {n: 0o17}\n---\n")
    {'name': 'a', 'version': 1.1, 'ok': 'yes', 'since': '2026-01-02', 'x': {'n': 15}}
    """
    block = find_block(document)
    if isinstance(block, Problem):
        raise _unfit(block.message)
    try:
        for event in yaml.parse(block, _Loader) if "*" in block or "!" in block else ():
            if isinstance(event, AliasEvent) or getattr(event, "tag", None):
                raise _unfit("The frontmatter has an alias or a tag")
        node = yaml.compose(block, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise _unfit(f"The frontmatter is not YAML ({type(error).__name__})") from error
    if not isinstance(node, MappingNode):
        raise _unfit("The frontmatter is not a mapping")
    found: dict[str, Any] = _value(node, MAX_NESTING)
    return found


def _value(node: Node, depth: int) -> Any:
    if not depth:
        raise _unfit("The frontmatter is nested too deeply")
    if isinstance(node, SequenceNode):
        return [_value(item, depth - 1) for item in node.value]
    if isinstance(node, MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            if key in found:
                raise _unfit(f"The frontmatter has {key[:80]!r} twice")
            found[key] = _value(value_node, depth - 1)
        return found
    return _scalar(node)


def _key(node: Node) -> str:
    """Return a key as text, which is what becomes of it in JSON."""
    if not isinstance(node, ScalarNode):
        raise _unfit("The frontmatter has a key that is not a text")
    value = _scalar(node)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _scalar(node: Node) -> str | int | float | bool | None:
    text = str(node.value)
    if isinstance(node, ScalarNode) and node.style:
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
