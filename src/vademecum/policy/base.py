"""Requests and decisions, which precede everything that is shown, loaded or run, and bounds on tools.

A tool is limited by its risk and by a skill's ``allowed-tools``; neither grants anything. Entries of
``allowed-tools`` are names of our tools, or those of other agents: ``Read``,
``Bash(python scripts/x.py:*)``. An entry without a counterpart here allows nothing, and is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Literal, Protocol

from msgspec import Struct

from vademecum.config import TOOLS
from vademecum.wildcards import matches

Origin = Literal["model", "user", "nested"]


class Effect(IntEnum):
    """The effects of a rule in order of strictness: of several effects, the greatest counts."""

    ALLOW = 0
    ASK = 1
    DENY = 2


class Request(Struct, frozen=True):
    """A permission that an agent needs, such as ``skill`` or ``write``, and the resources it is for."""

    permission: str
    resources: tuple[str, ...]
    origin: Origin = "model"
    agent: str = "default"
    skill: str | None = None


class Rule(Struct, frozen=True):
    """One rule and its origin: its layer, such as a file, and its number there, from one.

    ``remedy`` says how to allow it if adding a rule would not help. A bound that is not written as a rule,
    such as a skill's ``allowed-tools``, has the number 0 and a description as its pattern.
    """

    permission: str
    pattern: str
    effect: Effect
    layer: str
    number: int
    remedy: str = ""

    def __str__(self) -> str:
        """Return the rule as people refer to it."""
        if not self.number:
            return f"{self.layer} {self.pattern}"
        says = f"{self.effect.name.lower()} {self.permission} {self.pattern!r}"
        return f"rule {self.number} of {self.layer}: {says}"


class Decision(Struct, frozen=True):
    """The answer to a request: its effect, the rule that decided (or none), and the resource."""

    effect: Effect
    rule: Rule | None
    permission: str
    resource: str

    @property
    def reason(self) -> str:
        """The reason in words."""
        if self.rule is None:
            return f"no rule matches {self.permission} {self.resource!r}"
        return str(self.rule)

    @property
    def layer(self) -> str | None:
        """The layer of the rule that decided."""
        return None if self.rule is None else self.rule.layer

    @property
    def remedy(self) -> str:
        """Return advice on how to allow it; empty if it is allowed."""
        if self.effect is Effect.ALLOW:
            return ""
        if self.rule is not None and self.rule.remedy:
            return self.rule.remedy
        rule = {"permission": self.permission, "pattern": self.resource, "effect": "allow"}
        written = json.dumps(rule, ensure_ascii=False)
        return f"add {written} at the end of the permissions in ~/.agent/config.json"

    def to_json(self) -> dict[str, Any]:
        """Return the decision in the form that ``vade permissions explain`` prints."""
        rule = self.rule
        return {
            "effect": self.effect.name.lower(),
            "reason": self.reason,
            "rule": None if rule is None else f"{rule.permission} {rule.pattern} {rule.effect.name.lower()}",
            "layer": self.layer,
            "number": None if rule is None else rule.number,
            "remedy": self.remedy,
        }


class Decider(Protocol):
    """Decides requests; the same request gets the same answer, without a file, a clock or a question.

    If an implementation raises, or does not answer within ten seconds, the request is not allowed.
    """

    def decide(self, request: Request) -> Decision:
        """Return the decision about a request."""
        ...


RISKS = {tool: risk for tool, (risk, _) in TOOLS.items()}


def risk_of(tool: str) -> Literal["low", "medium", "high"]:
    """Return the risk of a tool; the risk of an unknown one is high.

    >>> risk_of("grep"), risk_of("launch_rocket")
    ('low', 'high')
    """
    return RISKS.get(tool, "high")


def needs_approval(tool: str, *, careful: Iterable[str] = ()) -> Decision | None:
    """Return a decision to ask, if the risk is high or the configuration names the tool; else nothing."""
    if risk_of(tool) == "high":
        layer, says = "the risk", f"of {tool!r} is high, which always needs approval"
    elif tool in careful:
        layer, says = "'execution.require_approval_for'", f"names {tool!r}"
    else:
        return None
    remedy = "approve it, or name it with --allow for one run"
    return Decision(Effect.ASK, Rule("tool", says, Effect.ASK, layer, 0, remedy), "tool", tool)


READING = ("read_file", "list_dir", "grep")
_CHANGING = ("write_file", "edit_file", "save_output")
# Names of our tools in other agents.
_WORDS: dict[str, tuple[str, ...]] = {
    word: tools
    for words, tools in (
        ("read view notebookread", ("read_file",)),
        ("ls glob", ("list_dir",)),
        ("grep search", ("grep",)),
        ("write edit multiedit notebookedit", _CHANGING),
        ("webfetch fetch", ("network_request",)),
        ("bash shell", ("run_command", "run_script")),
    )
    for word in words.split()
}
_OWN: dict[str, tuple[str, ...]] = {name.replace("_", ""): (name,) for name in RISKS}
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


def bounded(
    tool: str,
    resources: Iterable[str],
    *,
    skill: str,
    allowed_tools: Iterable[str],
    effect: Effect = Effect.DENY,
) -> Decision | None:
    """Return a decision if a skill lists its tools and this one is not among them; nothing otherwise."""
    if Bounds.of(allowed_tools).let_through(tool, resources):
        return None
    layer = f"'allowed-tools' of skill {skill!r}"
    remedy = "let the skill's author add it to 'allowed-tools'"
    rule = Rule("tool", f"does not name {tool!r} for this", effect, layer, 0, remedy)
    # An answer about the tool does not apply to this skill.
    about = tool if effect is Effect.DENY else f"{tool}, which {skill} excludes"
    return Decision(effect, rule, "tool", about)


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
    tools = _OWN.get(word) or _WORDS.get(word, ())
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
