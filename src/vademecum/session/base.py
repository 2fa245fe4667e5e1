"""Types of a session: results of calls, the guard it asks, and deferred approvals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from vademecum.loader.loading import BodyLimits as BodyLimits  # noqa: PLC0414 - part of what a session takes
from vademecum.loader.loading import LoadReport
from vademecum.policy.approval import Question
from vademecum.runs.record import Record
from vademecum.session.media import Content
from vademecum.skill.skill import Skill
from vademecum.tools.outputs import Output

Kind = Literal["skill", "script", "tool"]
TextKind = Literal["", "skill", "resource", "tool", "error"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a call: text for the model, and the code of what went wrong, ``""`` if nothing did.

    ``kind`` says what the text is: instructions of a skill, a file of one, the output of a tool, or an error.
    Text of our own has none. ``report`` says what was read, ``facts`` and ``files`` are for programs.
    ``advice`` is for people only: why something was refused, and what would allow it. ``outputs`` are the
    files that a script or command left, ``content`` the pictures and documents that a model can look at.
    """

    text: str
    code: str = ""
    kind: TextKind = ""
    skill: Skill | None = None
    report: LoadReport | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    advice: str = ""
    outputs: tuple[Output, ...] = ()
    content: tuple[Content, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether the call was carried out; a script that exits with 1 was."""
        return not self.code


class Deferred(Exception):
    """An approver raises this to have a question answered later. Nothing was done; ``resume`` does it.

    If ``kept`` is false, the caller itself makes the call again once there is an answer.
    """

    kept = True

    def __init__(self, question: Question) -> None:
        super().__init__(question.wanted)
        self.question = question


class Guard(Protocol):
    """Decides about acts besides the rules, and is there while they happen. A charter is one."""

    def act(
        self, kind: Kind, name: str, parameters: Mapping[str, object], do: Callable[[], T], *, record: Record
    ) -> T:
        """Do it and return what ``do`` returns, or raise ``Denied`` with every reason.

        ``name`` is a skill, a skill and its script (``csv/scripts/a.py``), or a tool.
        """
        ...


class Host(Protocol):
    """The loop that a session serves, if it is one of ours."""

    def has_room_for(self, text: str) -> bool:
        """Return whether a skill's instructions still fit into the prompt."""
        ...

    def run_subagent(self, skill: Skill, task: str, effect: str) -> Result:
        """Run a skill whose ``run-mode`` is ``subagent`` in a child agent; ``effect`` is what let it pass.

        ``task`` says what it should do; without one it gets the request.
        """
        ...
