"""Explain how a request would be decided, with the code that decides about calls."""

from __future__ import annotations

from collections.abc import Sequence

from vademecum.policy.base import Decision, Request
from vademecum.policy.bounds import needs_approval
from vademecum.session.act import Act
from vademecum.session.session import Session
from vademecum.tools import calls


def explain(session: Session, permission: str, resources: Sequence[str]) -> Decision:
    """Return the decision about a request of the user, without doing or asking anything."""
    first = resources[0] if resources else ""
    decisions = [session.decide(Request(permission, tuple(resources), "user", session.agent))]
    match permission:
        case "read":
            act = session.foreseen(calls.ReadFile(first))
            decisions.append(act.foresee(act.reads(act.locate(first))))
        case "write" | "delete":
            call = calls.WriteFile(first, "") if permission == "write" else calls.DeleteFile(first)
            act = session.foreseen(call)
            decisions.append(act.foresee(act.writes(act.locate(first), permission)))
        case "network":
            decisions.append(_asked(session.foreseen(calls.NetworkRequest(first)), permission, resources))
        case "script":
            decisions.append(_asked(session.foreseen(calls.RunScript("", first)), permission, resources))
        case "command":
            decisions.append(_asked(session.foreseen(calls.RunCommand([first])), permission, resources))
        case "tool":
            careful = session.place.config.execution.require_approval_for
            decisions += filter(None, (needs_approval(tool, careful=careful) for tool in resources))
    return max(decisions, key=lambda decision: decision.effect)


def _asked(act: Act, permission: str, resources: Sequence[str]) -> Decision:
    return act.foresee([(permission, tuple(resources), "")])
