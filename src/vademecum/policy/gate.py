"""The gate: apply a decision, and if it is to ask, a stored answer or a new one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from vademecum.config import TOOLS
from vademecum.errors import Declined, Denied
from vademecum.policy.approval import Answer, Approver, Key, Nobody, Question, keys_of
from vademecum.policy.base import Decider, Decision, Effect, Request
from vademecum.policy.engine import FIXED, OwnPolicy, Policy
from vademecum.policy.grants import Grants

By = Literal["rule", "remembered", "once", "always"]
Decided = tuple[Request, Decision]


class Passage(Struct, frozen=True):
    """An allowed request: the decision, and whether a rule, a stored answer or a person allowed it.

    ``seen`` is true if a person looked at this question just now.
    """

    decision: Decision
    by: By
    seen: bool = False


class Gate:
    """Lets requests pass together, or raises ``Denied`` with the rule and what would allow it.

    A stored answer can only turn ask into allow: a denial by a rule is never asked about. A question that a
    person declined is not asked again in this conversation. Threads can share a gate: its memory is locked,
    but not while it waits for an answer.
    """

    def __init__(
        self,
        policy: Decider,
        *,
        project: Path,
        grants: Grants | None = None,
        approver: Approver | None = None,
    ) -> None:
        self.follow(policy)
        self._id = uuid.uuid4().hex
        self._project = project
        self._grants = grants
        self._approver = approver or Nobody()
        self._lock = threading.Lock()
        self._for_this_run: set[Key] = set()
        self._declined: dict[frozenset[Key], str] = {}  # whatever the skill's content is now

    def follow(self, policy: Decider) -> None:
        """Use this policy from now on; the fixed rules apply to a caller's own policy too."""
        self.policy = policy if isinstance(policy, Policy) else OwnPolicy(policy)

    def begin_run(self) -> None:
        """Forget the approvals and refusals that were for one run."""
        with self._lock:
            self._for_this_run.clear()
            self._declined.clear()

    def require(self, *requests: Request, digest: Callable[[], str]) -> Passage:
        """Return only if every request is allowed; ``digest`` returns the skill's current digest."""
        return self.settle([(each, self.policy.decide(each)) for each in requests], digest=digest)

    def settle(  # noqa: PLR0913 - the facts about an act
        self,
        decided: Sequence[Decided],
        *,
        digest: Callable[[], str],
        approver: Approver | None = None,
        about: Callable[[], str] = str,
        exact: Callable[[], str] = str,
        also: Sequence[Decision] = (),
    ) -> Passage:
        """Return only if every decision allows it, after asking if needed; otherwise raise.

        ``digest`` returns the skill's current digest, ``about`` the text for the person, ``exact`` what else
        an answer depends on; they are called only if needed. ``also`` are further decisions about the same
        act, such as a bound on tools.
        """
        worst = max((*(decision for _, decision in decided), *also), key=lambda decision: decision.effect)
        if worst.effect is Effect.ALLOW:
            return Passage(worst, "rule")
        if worst.effect is Effect.DENY:
            raise refusal([request for request, _ in decided], worst)
        asking = [request for request, decision in decided if decision.effect is Effect.ASK]
        known = {(r.permission, r.resources) for r in asking}
        asking += [
            Request(d.permission, (d.resource,), agent=decided[0][0].agent)
            for d in also
            if d.effect is Effect.ASK and (d.permission, (d.resource,)) not in known
        ]
        now = digest()
        if self._is_answered(asking, now):
            return Passage(worst, "remembered")
        question = Question(uuid.uuid4().hex, tuple(asking), worst, about(), now, exact(), self._id)
        answer = (approver or self._approver).ask(question)
        if answer.verdict == "reject":
            if answer.absent:
                remedies = _remedies([decision for _, decision in decided], also)
                raise refusal(asking, worst, answer, remedies)
            with self._lock:
                self._declined[frozenset(keys_of(asking, ""))] = answer.message or "the answer was no"
            message = f" ({answer.message})" if answer.message else ""
            raise Declined(f"{_wanted(asking)} was declined{message}: it was not done.", told=answer.message)
        if answer.verdict == "always":
            self._remember(asking, now, answer)
        return Passage(worst, answer.verdict, answer.seen)

    def _is_answered(self, asking: Sequence[Request], digest: str) -> bool:
        """Return whether every request was allowed before; raise if a person declined one.

        A declined request stays declined, in any combination and whatever the skill's content is now.
        """
        with self._lock:
            refusals = [told for refused, told in self._declined.items() if refused <= keys_of(asking, "")]
            if keys_of(asking, digest) <= self._for_this_run:
                return True
        if self._grants is not None and all(
            self._grants.cover(request, digest=digest, project=self._project) for request in asking
        ):
            return True
        if refusals:
            raise Declined(f"{_wanted(asking)} was declined before ({refusals[0]}).")
        return False

    def _remember(self, asking: Sequence[Request], digest: str, answer: Answer) -> None:
        if answer.scope == "run" or self._grants is None:
            with self._lock:
                self._for_this_run |= keys_of(asking, digest)
            return
        for request in asking:
            self._grants.add(
                request, digest=digest, scope=answer.scope, project=self._project, seconds=answer.seconds
            )


def _wanted(requests: Sequence[Request]) -> str:
    return "; ".join(f"{r.permission} {', '.join(map(repr, r.resources))}" for r in requests)


def _remedies(decided: Sequence[Decision], also: Sequence[Decision]) -> str:
    """Return everything needed to allow it; approval of a tool covers its use, too."""
    asked = [each for each in (*also, *decided) if each.effect is Effect.ASK]
    tools = [each.resource for each in also if each.permission == "tool" and each.resource in TOOLS]
    answered = {permission for tool in tools for permission in ("tool", TOOLS[tool][1])}
    needed = (each for each in asked if each in also or each.permission not in answered)
    return ", and ".join(dict.fromkeys(each.remedy for each in needed))


def refusal(
    requests: Sequence[Request], decision: Decision, answer: Answer | None = None, remedies: str | None = None
) -> Denied:
    """Return the error for a refusal; its advice tells a person why, and what to do."""
    text = f"{decision.effect.name.lower()} {_wanted(requests)}"
    if decision.rule is not None and not decision.rule.number:  # a bound, which the model already knows
        text += f", because {decision.reason}"
    advice = said(requests, decision, remedies).removeprefix(text).lstrip(",; ")
    if answer is not None:
        advice = "; ".join(filter(None, (advice, answer.advice)))
        text += f" ({answer.message})" if answer.message else ""
    return Denied(f"{text}.", advice=advice)


def said(requests: Sequence[Request], decision: Decision, remedies: str | None = None) -> str:
    """Return a decision as one sentence: what, which rule, and what would allow it."""
    remedy = decision.remedy if remedies is None else remedies
    if remedy:
        remedy = f"; {remedy}" if decision.layer == FIXED else f"; to allow it, {remedy}"
    return f"{decision.effect.name.lower()} {_wanted(requests)}, because {decision.reason}{remedy}"
