"""Interpret ``allowed-tools``: entries → what they allow.

Entries are names of our tools, or those of other agents: ``Read``, ``Bash(python scripts/x.py:*)``. An entry
without a counterpart here allows nothing, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from vademecum.config import TOOLS
from vademecum.nearest import nearest
from vademecum.wildcards import matches

READING = ("read_file", "list_dir", "grep")
_CHANGING = ("write_file", "edit_file", "save_output")
# Names of our tools in other agents.
_WORDS: dict[str, tuple[str, ...]] = {
    word: tools
    for words, tools in (
        ("Read View NotebookRead", ("read_file",)),
        ("LS Glob", ("list_dir",)),
        ("Grep Search", ("grep",)),
        ("Write Edit MultiEdit NotebookEdit", _CHANGING),
        ("WebFetch Fetch", ("network_request",)),
        ("Bash Shell", ("run_command", "run_script")),
    )
    for word in words.split()
}
_TOOLS_OF = {word.casefold(): tools for word, tools in _WORDS.items()}
_OWN: dict[str, tuple[str, ...]] = {name.replace("_", ""): (name,) for name in TOOLS}
_OWN["writefile"] = ("write_file", "save_output")
# The file endings of the scripts that each interpreter runs.
_INTERPRETED = {"python": ".py", "python3": ".py", "bash": ".sh", "sh": ".sh", "node": ".js .mjs .cjs"}
_ENTRY = re.compile(r"(?P<name>[^()\s]+)(?:\((?P<argument>.*)\))?\Z", re.DOTALL)


class Bound(Struct, frozen=True):
    """One tool, and the pattern of what it may be used on."""

    tool: str
    pattern: str = "*"


class Bounds(Struct, frozen=True):
    """Everything that a skill's ``allowed-tools`` allows, and the entries without a meaning here."""

    allowed: tuple[Bound, ...]
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Bounds:
        """Interpret the entries. If none is known, the reading tools are allowed.

        >>> Bounds.of(["Read(docs/**)", "mcp__x"])
        Bounds(allowed=(Bound(tool='read_file', pattern='docs/*'),), unknown=('mcp__x',))
        >>> [bound.tool for bound in Bounds.of(["mcp__x"]).allowed]
        ['read_file', 'list_dir', 'grep']
        """
        understood = [(entry, _understand(entry)) for entry in _joined(entries)]
        allowed = tuple(bound for _, bounds in understood for bound in bounds)
        unknown = tuple(entry for entry, bounds in understood if not bounds)
        return cls(allowed or (tuple(map(Bound, READING)) if unknown else ()), unknown)

    def let_through(self, tool: str, resources: Iterable[str]) -> bool:
        """Return whether a tool may be used on all of these."""
        patterns = [bound.pattern for bound in self.allowed if bound.tool in {tool, "*"}]
        if not patterns:
            return False
        return "*" in patterns or all(any(matches(p, text) for p in patterns) for text in resources)


def nearest_word(entry: str) -> str | None:
    """Return the word for a tool that an unknown entry was probably meant to be.

    >>> nearest_word("Raed(docs/**)"), nearest_word("mcp__x")
    ('Read', None)
    """
    # Strict, because a wrong suggestion, such as Write for TodoWrite, would allow more.
    return nearest(entry.partition("(")[0], (*_WORDS, *TOOLS), like=0.75)


def _joined(entries: Iterable[str]) -> list[str]:
    """Return the entries, with those rejoined that were split at a space inside brackets."""
    whole: list[str] = []
    for entry in entries:
        if whole and whole[-1].count("(") > whole[-1].count(")"):
            whole[-1] += f" {entry}"
        else:
            whole.append(entry)
    return [entry for entry in whole if entry.strip()]


def _understand(entry: str) -> list[Bound]:
    found = _ENTRY.match(entry.strip())
    if found is None:
        return []
    if found["name"] == "*":
        return [Bound("*")]
    word = found["name"].replace("_", "").replace("-", "").casefold()
    tools = _OWN.get(word) or _TOOLS_OF.get(word, ())
    argument = (found["argument"] or "").strip()
    if argument in {"", "*", ":*", "**"}:
        return [Bound(tool) for tool in tools]
    return [bound for tool in tools for bound in _narrowed(tool, argument)]


def _narrowed(tool: str, argument: str) -> list[Bound]:
    """Return the bounds of one tool with an argument, in the syntax of its entry."""
    match tool:
        case "network_request":
            return [Bound(tool, argument.removeprefix("domain:"))]
        case "run_command":
            prefix = argument.removesuffix(":*").removesuffix(" *")
            return [Bound(tool, f"{prefix} *" if prefix != argument else argument)]
        case "run_script":
            return [Bound(tool, pattern) for pattern in _scripts(argument)]
    return [Bound(tool, argument.removeprefix("./").replace("**", "*"))]


def _scripts(command: str) -> list[str]:
    """Return the scripts of the skill that a shell command would run: ``scripts/x.py``, or all of a kind."""
    words = command.removesuffix(":*").removesuffix(" *").split()
    for word in words:
        _, found, tail = f"/{word}".rpartition("/scripts/")
        if found:
            return [f"scripts/{tail}"]
    kinds = _INTERPRETED.get(words[0], "").split() if len(words) == 1 else ()
    return [f"scripts/*{kind}" for kind in kinds]
