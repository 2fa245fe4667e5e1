"""The one question that is asked before anything is shown, loaded or run, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol

Origin = Literal["model", "user", "nested"]


class Effect(IntEnum):
    """What may happen, in the order of strictness: of several answers the greatest counts."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants: a permission such as ``skill`` or ``resource``, and what it is wanted for."""

    permission: str
    resources: tuple[str, ...]
    origin: Origin = "model"
    agent: str = "default"
    skill: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and why."""

    effect: Effect
    reason: str


class Policy(Protocol):
    """Decides; the same request gets the same answer, without a file, a clock or a question."""

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
        return Decision(Effect.ALLOW, f"no rule restricts {request.permission}")
