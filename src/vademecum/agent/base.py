"""What the loop asks before it acts, where somebody set a charter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeVar

Kind = Literal["skill", "script", "tool"]
T = TypeVar("T")


class Charter(Protocol):
    """Decides whether an act may be, and is there while it happens."""

    def act(self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do it if it may be, and give what came of it; else raise ``Denied`` with every reason.

        ``name`` is a skill, a skill and its script (``csv/scripts/a.py``), or a tool.
        """
        ...
