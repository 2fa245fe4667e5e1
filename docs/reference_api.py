"""The public names → a page of Markdown: each with its signature, its docstring and its example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from msgspec import Struct

import vademecum
from vademecum import governance, models

_HEAD = """# The Python API

Made from the docstrings. The examples of a section begin after `from pathlib import Path` and an import of
the section's own names; each of them runs as a test, in an empty directory. What may change, and when, is
said in [Stability](../stability.md).
"""
_MODULES: list[tuple[ModuleType, str]] = [
    (vademecum, "`import vademecum as vm`: everything for finding, checking, loading and running skills."),
    (models, "`vm.models`: who decides in a run."),
    (governance, "`from vademecum.governance import …`: a charter and those who act under it."),
]
_CONSTANTS = {
    "BUILTIN_ROOT": "The directory of the skills that ship with vademecum.",
    "__version__": "The version that is installed.",
}
_WIDTH = 100


def api_page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for module, about in _MODULES:
        parts.append(f"## {module.__name__}\n\n{about}\n")
        parts += [f"### {name}\n\n{_entry(name, getattr(module, name))}" for name in module.__all__]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if name in _CONSTANTS:
        return f"{_CONSTANTS[name]}\n"
    if isinstance(value, ModuleType):
        return f"{_text(value)}\nIts names are [below](#vademecummodels).\n"
    if isinstance(value, type) and issubclass(value, Exception):
        return f"{_text(value)}\nIts `code` is `{value.code}`.\n"  # type: ignore[attr-defined]
    members = "".join(_members(value)) if isinstance(value, type) else ""
    protocol = getattr(value, "_is_protocol", False)
    head = "" if protocol else f"```python\n{_signature(name, value)}\n```\n\n"
    return f"{head}{_text(value)}" + (f"\n{members}" if members else "")


def _text(value: Any) -> str:
    """A docstring as Markdown: prose, and examples in fences."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    shown = [f"```pycon\n{text}\n```" if text.startswith(">>>") else _marked(text) for text in paragraphs]
    return "\n\n".join(shown) + "\n"


def _marked(prose: str) -> str:
    return prose.replace("``", "`")


def _members(value: type) -> Iterator[str]:
    """The public methods and properties that a class has of its own, one line each."""
    for name, member in vars(value).items():
        about = _marked(re.split(r"\n\n", inspect.getdoc(member) or "")[0].replace("\n", " "))
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {about}\n"
        elif inspect.isfunction(member) or isinstance(member, classmethod):
            yield f"- `{_signature(name, getattr(value, name), method=True)}`: {about}\n"


def _signature(name: str, value: Callable[..., Any], *, method: bool = False) -> str:
    """A call as one would write it, on one line where it fits or belongs into a list."""
    found = inspect.signature(value)
    # As they were written: a struct's signature has them evaluated.
    bases = reversed(value.__mro__) if isinstance(value, type) else ()
    written = {key: each for base in bases for key, each in inspect.get_annotations(base).items()}
    parts: list[str] = []
    for parameter in found.parameters.values():
        if parameter.name == "self" or parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(str(_plain(parameter, written.get(parameter.name, parameter.annotation))))
    result = "" if isinstance(value, type) else f" -> {found.return_annotation}"
    line = f"{name}({', '.join(parts)}){result}"
    if method or len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


class _Word(str):
    """A text that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _plain(parameter: inspect.Parameter, annotation: str) -> inspect.Parameter:
    """The parameter without quotes, addresses and what only Python itself needs to know."""
    default = parameter.default
    if default is not parameter.empty and callable(default):
        default = _Word(default.__name__)
    elif repr(default) == "<factory>" or isinstance(default, Struct):
        default = ...
    return parameter.replace(annotation=_Word(annotation), default=default)
