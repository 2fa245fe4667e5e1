"""The tools of one run in one place: its limits, its sandbox, the texts that were approved, its record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vademecum.config import ExecutionSettings, SandboxName
from vademecum.context import Context
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Origin
from vademecum.policy.engine import grants_file
from vademecum.policy.gate import Gate
from vademecum.policy.trust import ApprovedTexts
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Record
from vademecum.skill.skill import Skill
from vademecum.tools.base import AuditRecord
from vademecum.tools.runtime import Surroundings, Tools
from vademecum.tools.sandbox.base import Sandbox
from vademecum.tools.sandbox.choose import choose_sandbox
from vademecum.tools.workspace import Workspace


def tools_of(  # noqa: PLR0913 - the parts
    gate: Gate,
    record: Record,
    *,
    context: Context,
    index: SkillIndex,
    workspace: Workspace,
    execution: ExecutionSettings,
    skill: Callable[[str], Skill] | None = None,
    sandbox: Callable[[SandboxName], Sandbox] = choose_sandbox,
    agent: str = "default",
    origin: Origin = "model",
) -> Tools:
    """Tools behind this gate, each call written down; ``skill`` says which skills' scripts they know."""

    def observe(audit: AuditRecord) -> None:
        record.add("tool_called", **audit.to_json())

    around = Surroundings(
        workspace=workspace,
        record=record.place,
        skill=skill or index.get,
        sandbox=partial(sandbox, execution.sandbox),
        execution=execution,
        env=context.env,
        skill_at=index.at,
        approved=ApprovedTexts(grants_file(context)),
        observer=observe,
        agent=agent,
        origin=origin,
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
