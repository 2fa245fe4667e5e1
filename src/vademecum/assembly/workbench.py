"""The tools of one run in one place: its limits, its sandbox, the texts that were approved, its record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vademecum.config import ExecutionSettings, SandboxName
from vademecum.context import Context
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Origin
from vademecum.policy.engine import grants_file
from vademecum.policy.gate import Gate
from vademecum.policy.trust import ApprovedTexts
from vademecum.runs.record import Record
from vademecum.skill.skill import Skill
from vademecum.tools.base import AuditRecord
from vademecum.tools.runtime import Surroundings, Tools
from vademecum.tools.sandbox.base import Sandbox
from vademecum.tools.sandbox.choose import choose_sandbox
from vademecum.tools.snapshot import Snapshots
from vademecum.tools.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Shared:
    """What all tools that write into one record share: the numbers of calls, and the copies of skills."""

    numbers: Iterator[int]
    snapshots: Snapshots

    @classmethod
    def of(cls, record: Record) -> Shared:
        """Of a record that begins."""
        return cls(itertools.count(1), Snapshots(record.place / "skills"))


def tools_of(  # noqa: PLR0913 - the parts
    gate: Gate,
    record: Record,
    *,
    context: Context,
    skill: Callable[[str], Skill],
    skill_at: Callable[[Path], Skill | None],
    workspace: Workspace,
    execution: ExecutionSettings,
    sandbox: Callable[[SandboxName], Sandbox] = choose_sandbox,
    agent: str = "default",
    origin: Origin = "model",
    shared: Shared | None = None,
) -> Tools:
    """Tools behind this gate, each call written down; ``skill`` says which skills' scripts they know.

    ``shared`` is what other tools that write into the same record have, where there are any.
    """
    shared = shared or Shared.of(record)

    def observe(audit: AuditRecord) -> None:
        record.add("tool_called", **audit.to_json())

    around = Surroundings(
        workspace=workspace,
        record=record.place,
        skill=skill,
        sandbox=partial(sandbox, execution.sandbox),
        execution=execution,
        env=context.env,
        skill_at=skill_at,
        approved=ApprovedTexts(grants_file(context)),
        observer=observe,
        agent=agent,
        origin=origin,
        numbers=shared.numbers,
        snapshots=shared.snapshots,
    )
    return Tools(gate, around)


class OnRecord:
    """Asks whoever answers, and writes both down."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self.record: Record | None = None

    def ask(self, question: Question) -> Answer:
        """Ask, and write down what was asked and what was answered."""
        if self.record is not None:
            self.record.add(
                "approval_asked",
                id=question.id,
                wanted=question.wanted,
                reason=question.decision.reason,
                about=question.about,
            )
        try:
            answer = self._approver.ask(question)
        except BaseException:
            if self.record is not None:
                self.record.add("approval_answered", id=question.id, verdict="interrupted", message="")
            raise
        if self.record is not None:
            self.record.add(
                "approval_answered",
                id=question.id,
                verdict=answer.verdict,
                scope=answer.scope if answer.verdict == "always" else None,
                message=answer.message,
            )
        return answer
