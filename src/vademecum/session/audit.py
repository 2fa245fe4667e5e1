"""A call as the record keeps it: what was wanted, by whom, what the rules said, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vademecum.policy.base import Decision, Request
from vademecum.policy.bounds import risk_of
from vademecum.skill.skill import Skill
from vademecum.tools.base import Observation

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")


@dataclass(frozen=True, slots=True)
class Entry:
    """Who called, when, and what the rules said."""

    number: int
    agent: str
    skill: Skill | None
    started: float
    seconds: float = 0.0
    decision: Decision | None = None
    asked: Sequence[tuple[Request, Decision]] = ()
    approved_by: str | None = None


def record_of(entry: Entry, parameters: Mapping[str, Any], seen: Observation) -> dict[str, Any]:
    """Return the fields of the event for one call."""
    facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
    asked = [
        {
            "permission": request.permission,
            "resources": list(request.resources),
            "effect": decision.effect.name.lower(),
        }
        for request, decision in entry.asked
    ]
    return {
        "call": entry.number,
        "tool": seen.tool,
        "risk": risk_of(seen.tool).name.lower(),
        "agent": entry.agent,
        "skill": None if entry.skill is None else entry.skill.name,
        "skill_id": None if entry.skill is None else entry.skill.skill_id,
        "parameters": dict(parameters),
        "started": entry.started,
        "seconds": entry.seconds,
        "decision": None if entry.decision is None else entry.decision.to_json(),
        "asked": asked,
        "approved_by": entry.approved_by,
        "ok": seen.ok,
        "code": seen.code,
        "result": {**facts, "text": seen.text, "files": list(seen.files)},
        "hashes": {key: seen.facts[key] for key in _HASHES if key in seen.facts},
    }
