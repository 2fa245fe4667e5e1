"""Explain how a request would be decided, with the code that decides about calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vademecum.policy.base import Decision
from vademecum.policy.bounds import needs_approval
from vademecum.session.act import Finer
from vademecum.session.session import Session
from vademecum.tools import calls

# A call that needs the permission, for its resource.
_CALLS: dict[str, Callable[[str], calls.ToolCall]] = {
    "write": lambda path: calls.WriteFile(path, ""),
    "delete": calls.DeleteFile,
    "network": calls.NetworkRequest,
    "script": lambda resource: calls.RunScript("", resource),
    "command": lambda line: calls.RunCommand([line]),
}


def explain(session: Session, permission: str, resources: Sequence[str]) -> Decision:
    """Return the decision about a request of the user, without doing or asking anything."""
    first = resources[0] if resources else ""
    wanted: list[Finer] = [(permission, tuple(resources), "")]
    act = session.foreseen(_CALLS.get(permission, calls.ReadFile)(first))
    decisions = [act.effect_of(permission, tuple(resources))]
    match permission:
        case "read":
            decisions.append(act.foresee(act.reads(act.locate(first))))
        case "write" | "delete":
            decisions.append(act.foresee(act.writes(act.locate(first), permission)))
        case "network" | "script" | "command":
            decisions.append(act.foresee(wanted))
        case "tool":
            careful = session.place.config.execution.require_approval_for
            decisions += filter(None, (needs_approval(tool, careful=careful) for tool in resources))
    return max(decisions, key=lambda decision: decision.effect)
