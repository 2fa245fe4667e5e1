"""The most that a tool may do: by its risk, and by a skill's ``allowed-tools``. Neither grants anything.

Entries of ``allowed-tools`` are our own tools by name, or what others call theirs: ``Read``,
``Bash(python scripts/x.py:*)``. What has no counterpart here allows nothing here, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct

from vademecum.policy.base import Decision, Effect, Rule
from vademecum.wildcards import matches


class Risk(IntEnum):
    """What a tool could do at worst."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


RISKS = {
    "read_file": Risk.LOW,
    "list_dir": Risk.LOW,
    "grep": Risk.LOW,
    "run_script": Risk.MEDIUM,
    "write_file": Risk.HIGH,
    "delete_file": Risk.HIGH,
    "network_request": Risk.HIGH,
}


def risk_of(tool: str) -> Risk:
    """The risk of a tool; one that nobody knows is high.

    >>> risk_of("grep").name, risk_of("launch_rocket").name
    ('LOW', 'HIGH')
    """
    return RISKS.get(tool, Risk.HIGH)


def needs_approval(tool: str, *, careful: Iterable[str] = ()) -> Decision | None:
    """Ask, where the risk is high or the configuration names the tool, whatever the rules allow."""
    risk = risk_of(tool)
    if risk is Risk.HIGH:
        layer, says = "the risk", f"of {tool!r} is high, which always needs approval"
    elif tool in careful:
        layer, says = "'execution.require_approval_for'", f"names {tool!r}"
    else:
        return None
    remedy = "approve it, or name it with --allow for one run"
    return Decision(Effect.ASK, Rule("tool", says, Effect.ASK, layer, 0, remedy), "tool", tool)


_OTHER_NAMES = {
    "read": "read_file",
    "view": "read_file",
    "notebookread": "read_file",
    "ls": "list_dir",
    "glob": "list_dir",
    "search": "grep",
    "write": "write_file",
    "edit": "write_file",
    "multiedit": "write_file",
    "notebookedit": "write_file",
    "webfetch": "network_request",
    "fetch": "network_request",
    "bash": "run_script",
    "shell": "run_script",
}
_TOOLS = {name.replace("_", ""): name for name in RISKS} | _OTHER_NAMES
_ENTRY = re.compile(r"(?P<name>[^()\s]+)(?:\((?P<argument>.*)\))?\Z", re.DOTALL)
# Which of a skill's scripts a command that is only an interpreter would run.
_INTERPRETED = {"python": "py", "python3": "py", "bash": "sh", "sh": "sh", "node": "[jm]s"}
_SUFFIXES = {"py": ("*.py",), "sh": ("*.sh",), "[jm]s": ("*.js", "*.mjs", "*.cjs")}


class Bound(Struct, frozen=True):
    """One tool, and what it may be used on."""

    tool: str
    pattern: str = "*"


class Bounds(Struct, frozen=True):
    """All that a skill's ``allowed-tools`` lets through, and the entries that mean nothing here."""

    allowed: tuple[Bound, ...]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, entries: Iterable[str]) -> Bounds:
        """Understand the entries.

        >>> Bounds.of(["Bash(git:*)", "Bash(python scripts/a.py:*)"])
        Bounds(allowed=(Bound(tool='run_script', pattern='scripts/a.py'),), unknown=('Bash(git:*)',))
        """
        understood = [(entry, _understand(entry)) for entry in _joined(entries)]
        allowed = [bound for _, bounds in understood for bound in bounds]
        return cls(tuple(allowed), tuple(entry for entry, bounds in understood if not bounds))

    def let_through(self, tool: str, resources: Iterable[str]) -> bool:
        """Whether a tool may be used on all of these."""
        patterns = [bound.pattern for bound in self.allowed if bound.tool == tool]
        if not patterns:
            return False
        return "*" in patterns or all(any(matches(p, text) for p in patterns) for text in resources)


def bounded(
    tool: str, resources: Iterable[str], *, skill: str, allowed_tools: Iterable[str] | None
) -> Decision | None:
    """Deny, where a skill names its tools and this is none of them; nothing where it names none at all."""
    if allowed_tools is None or Bounds.of(allowed_tools).let_through(tool, resources):
        return None
    layer = f"'allowed-tools' of skill {skill!r}"
    remedy = "let the skill's author add it to 'allowed-tools'"
    rule = Rule("tool", f"does not name {tool!r} for this", Effect.DENY, layer, 0, remedy)
    return Decision(Effect.DENY, rule, "tool", tool)


def _joined(entries: Iterable[str]) -> list[str]:
    """The entries, with those put together again that were split at a blank inside brackets."""
    whole: list[str] = []
    for entry in entries:
        if whole and whole[-1].count("(") > whole[-1].count(")"):
            whole[-1] += f" {entry}"
        else:
            whole.append(entry)
    return whole


def _understand(entry: str) -> list[Bound]:
    found = _ENTRY.match(entry.strip())
    if found is None:
        return []
    tool = _TOOLS.get(found["name"].replace("_", "").replace("-", "").casefold())
    argument = (found["argument"] or "").strip()
    if tool is None:
        return []
    if argument in {"", "*", ":*", "**"}:
        return [Bound(tool)]
    if tool == "run_script":
        return [Bound(tool, pattern) for pattern in _scripts(argument)]
    if tool == "network_request":
        return [Bound(tool, argument.removeprefix("domain:"))]
    return [Bound(tool, argument.removeprefix("./").replace("**", "*"))]


def _scripts(command: str) -> list[str]:
    """Which scripts of the skill a command for a shell would run: ``scripts/x.py``, or all of a kind."""
    words = command.removesuffix(":*").removesuffix(" *").split()
    for word in words:
        _, found, tail = word.rpartition("scripts/")
        if found and (word.startswith("scripts/") or "/scripts/" in word):
            return [f"scripts/{tail}"]
    if len(words) == 1 and words[0] in _INTERPRETED:
        return [f"scripts/{suffix}" for suffix in _SUFFIXES[_INTERPRETED[words[0]]]]
    return []
