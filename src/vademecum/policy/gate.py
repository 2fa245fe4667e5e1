"""The gate: a decision, and where it is ask, the answer that was remembered or is given now."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from vademecum.errors import Denied
from vademecum.policy.approval import Approver, Nobody, Question
from vademecum.policy.base import Decider, Decision, Effect, Request
from vademecum.policy.grants import Grants


class Gate:
    """Lets a request pass, or raises ``Denied`` with the rule and what would allow it.

    A remembered answer only ever turns ask into allow: a rule that denies is not asked about.
    """

    def __init__(
        self,
        policy: Decider,
        *,
        project: Path,
        grants: Grants | None = None,
        approver: Approver | None = None,
    ) -> None:
        self._policy = policy
        self._project = project
        self._grants = grants
        self._approver = approver or Nobody()

    def require(self, request: Request, *, digest: Callable[[], str], about: str = "") -> Decision:
        """Go on only when it is allowed; ``digest`` says what the skill is now, if that is needed."""
        decision = self._policy.decide(request)
        if decision.effect is Effect.ALLOW:
            return decision
        if decision.effect is Effect.DENY:
            raise Denied(f"{said(request, decision)}.")
        content = digest()
        if self._grants is not None and self._grants.cover(request, digest=content, project=self._project):
            return decision
        answer = self._approver.ask(Question(uuid.uuid4().hex, request, decision, about))
        if answer.verdict == "reject":
            message = f" ({answer.message})" if answer.message else ""
            raise Denied(f"{said(request, decision)}{message}.")
        if answer.verdict == "always" and self._grants is not None:
            self._grants.add(request, digest=content, scope="project", project=self._project)
        return decision


def said(request: Request, decision: Decision) -> str:
    """A decision in one sentence: what, because of which rule, and what would allow it."""
    wanted = f"{request.permission} {', '.join(map(repr, request.resources))}"
    remedy = f"; to allow it, {decision.remedy}" if decision.remedy else ""
    return f"{decision.effect.name.lower()} {wanted}, because {decision.reason}{remedy}"
