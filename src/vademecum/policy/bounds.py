"""The most that a tool may do: by its risk, and by a skill's ``allowed-tools``. Neither grants anything.

Entries of ``allowed-tools`` are our own tools by name, or what others call theirs: ``Read``,
``Bash(python scripts/x.py:*)``. What has no counterpart here allows nothing here, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct

from vademecum.config import TOOLS
from vademecum.policy.base import Decision, Effect, Rule
from vademecum.wildcards import matches


class Risk(IntEnum):
    """The worst that a tool could do."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


RISKS = {tool: Risk[risk.upper()] for tool, (risk, _) in TOOLS.items()}


def risk_of(tool: str) -> Risk:
    """Return the risk of a tool; that of an unknown one is high.

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


READING = ("read_file", "list_dir", "grep")
_CHANGING = ("write_file", "edit_file", "save_output")
# What others call our tools.
_WORDS = {
    "read": ("read_file",),
    "view": ("read_file",),
    "notebookread": ("read_file",),
    "ls": ("list_dir",),
    "glob": ("list_dir",),
    "grep": ("grep",),
    "search": ("grep",),
    "write": _CHANGING,
    "edit": _CHANGING,
    "multiedit": _CHANGING,
    "notebookedit": _CHANGING,
    "webfetch": ("network_request",),
    "fetch": ("network_request",),
    "bash": ("run_command", "run_script"),
    "shell": ("run_command", "run_script"),
}
_OWN: dict[str, tuple[str, ...]] = {name.replace("_", ""): (name,) for name in RISKS}
_OWN["writefile"] = ("write_file", "save_output")
# The kinds of scripts that a command which is only an interpreter would run.
_INTERPRETED = {
    "python": (".py",),
    "python3": (".py",),
    "bash": (".sh",),
    "sh": (".sh",),
    "node": (".js", ".mjs", ".cjs"),
}
_ENTRY = re.compile(r"(?P<name>[^()\s]+)(?:\((?P<argument>.*)\))?\Z", re.DOTALL)


class Bound(Struct, frozen=True):
    """One tool, and what it may be used on."""

    tool: str
    pattern: str = "*"


class Bounds(Struct, frozen=True):
    """Everything that a skill's ``allowed-tools`` lets through, and the entries that mean nothing here."""

    allowed: tuple[Bound, ...]
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Bounds:
        """Understand the entries. If none is understood, the reading tools stay.

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


def bounded(
    tool: str,
    resources: Iterable[str],
    *,
    skill: str,
    allowed_tools: Iterable[str] | None,
    effect: Effect = Effect.DENY,
) -> Decision | None:
    """Return a decision if a skill names its tools and this is none of them; nothing otherwise."""
    if allowed_tools is None or Bounds.of(allowed_tools).let_through(tool, resources):
        return None
    layer = f"'allowed-tools' of skill {skill!r}"
    remedy = "let the skill's author add it to 'allowed-tools'"
    rule = Rule("tool", f"does not name {tool!r} for this", effect, layer, 0, remedy)
    # An answer about the tool is not one about this skill.
    return Decision(
        effect, rule, "tool", tool if effect is Effect.DENY else f"{tool}, which {skill} excludes"
    )


def _joined(entries: Iterable[str]) -> list[str]:
    """Return the entries, with those put together again that were split at a blank inside brackets."""
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
    tools = _OWN.get(word) or _WORDS.get(word, ())
    argument = (found["argument"] or "").strip()
    if argument in {"", "*", ":*", "**"}:
        return [Bound(tool) for tool in tools]
    return [bound for tool in tools for bound in _narrowed(tool, argument)]


def _narrowed(tool: str, argument: str) -> list[Bound]:
    """Return the bounds of one tool with an argument, as the words before it write it."""
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
    """Which scripts of the skill a command for a shell would run: ``scripts/x.py``, or all of a kind."""
    words = command.removesuffix(":*").removesuffix(" *").split()
    for word in words:
        _, found, tail = f"/{word}".rpartition("/scripts/")
        if found:
            return [f"scripts/{tail}"]
    kinds = _INTERPRETED.get(words[0], ()) if len(words) == 1 else ()
    return [f"scripts/*{kind}" for kind in kinds]
