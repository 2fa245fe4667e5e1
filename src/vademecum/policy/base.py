"""The one question that is asked before anything is shown, loaded or run, and its answer."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, Literal, Protocol

from msgspec import Struct

Origin = Literal["model", "user", "nested"]


class Effect(IntEnum):
    """The effects of a rule in the order of strictness: of several answers the greatest counts."""

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
    """One rule, and where it stands: its layer, such as a file, and its number there, from one.

    ``remedy`` says what to do about it if adding a rule of one's own would not help. A bound that is not
    written as a rule, such as a skill's ``allowed-tools``, has the number 0 and its own words as the pattern.
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
    """The answer: its effect, the rule that made it (none: no rule matches), and for what it was asked."""

    effect: Effect
    rule: Rule | None
    permission: str
    resource: str

    @property
    def reason(self) -> str:
        """Why, in words."""
        if self.rule is None:
            return f"no rule matches {self.permission} {self.resource!r}"
        return str(self.rule)

    @property
    def layer(self) -> str | None:
        """Where the rule stands that made it."""
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
        """Return the decision as ``vade permissions explain`` prints it."""
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
    """Decides; the same request gets the same answer, without a file, a clock or a question.

    An implementation that raises, or does not answer within ten seconds, has not allowed it.
    """

    def decide(self, request: Request) -> Decision:
        """Say what may happen."""
        ...


class AllowAll:
    """Allows everything: the policy of those who set none."""

    def decide(self, request: Request) -> Decision:
        """Allow it.

        >>> AllowAll().decide(Request("skill", ("pdf",))).effect.name
        'ALLOW'
        """
        return Decision(Effect.ALLOW, None, request.permission, ", ".join(request.resources))
