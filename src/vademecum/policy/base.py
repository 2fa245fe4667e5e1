"""Requests and decisions, which precede everything that is shown, loaded or run.

A tool is limited by its risk and by a skill's ``allowed-tools``; neither grants anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Literal, Protocol

from msgspec import Struct

from vademecum.allowed_tools import Bounds
from vademecum.config import TOOLS

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
