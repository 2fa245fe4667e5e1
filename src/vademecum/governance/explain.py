"""Explain a proposal stage by stage: what each check asks, and what it found."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from vademecum.errors import RecordDamaged
from vademecum.governance import check as c
from vademecum.governance.audit_replay import BY_ENGINE, RecordedFacts
from vademecum.governance.charter import Charter
from vademecum.governance.definitions import Reason, SkillDefinition, ValidationResult
from vademecum.runs.stored import PastRun

_AFTER = frozenset({"state-change", "write-permission", *BY_ENGINE})


class Stage(Struct, frozen=True):
    """One check: whether it passed, ``None`` if it requires nothing, and the reasons if it failed."""

    name: str
    holds: bool | None
    text: str
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the stage as ``vade govern explain`` prints it."""
        reasons = [reason.to_json() for reason in self.reasons]
        return {"stage": self.name, "holds": self.holds, "text": self.text, "reasons": reasons}


def stages_of(charter: Charter, skill_id: str, agent_type: str, result: ValidationResult) -> list[Stage]:
    """Return the stages behind a result, in the order of the checks."""
    check, skill = charter.skill_check(skill_id), charter.skills.get(skill_id)
    if check is None or skill is None:
        return [Stage("exists", holds=False, text="it is not in the charter", reasons=result.reasons)]
    rules, bits = check.rules, result.bits
    parameters = ", ".join(skill.output_schema) or ("none are taken" if bits & c.PARAMETERS else "")
    asked: list[tuple[str, int, str]] = [
        ("role", c.ROLE, "" if charter.roles is None else "the role may propose it"),
        ("type", c.TYPE, f"for {', '.join(skill.eligible_agent_types)}"),
        ("parameters", c.PARAMETERS, parameters),
        ("preconditions", c.CONDITIONS, "; ".join(skill.preconditions)),
        ("cost", c.COST, "" if rules.cost is None else f"{rules.cost.text} out of {rules.purse}"),
        ("cooldown", c.COOLDOWN, f"every {rules.cooldown} steps" if rules.cooldown else ""),
    ]
    stages = [Stage("exists", holds=True, text=skill.description or skill_id)]
    for name, mask, text in asked:
        holds = not bits & mask if text or bits & mask else None
        stages.append(Stage(name, holds, text or "nothing asked", result.only(mask).reasons))
    return [*stages, Stage("may change", holds=None, text=_changes(charter, skill, agent_type))]


def _changes(charter: Charter, skill: SkillDefinition, agent_type: str) -> str:
    listed = ", ".join(skill.allowed_state_changes) or "nothing"
    if charter.roles is None:
        return listed
    return f"{listed}; the role may write {', '.join(charter.roles.role_of(agent_type).writes) or 'nothing'}"


def explain_event(charter: Charter, run: PastRun, number: int) -> tuple[list[Stage], str]:
    """Explain a recorded intent by a charter, from the values in the record."""
    outcomes = [event for event in run.events if event.type == "outcome"]
    data = next((event.data for event in outcomes if event.number == number), None)
    if data is None:
        known = [event.number for event in outcomes if event.data.get("reasons")]
        advice = f"the first denial is event {known[0]}" if known else "nothing was denied in it"
        raise RecordDamaged(f"Event {number} of {run.run_id} is not an outcome: {advice}.", code="no-run")
    skill_id = data["proposed"]
    check, result = charter.skill_check(skill_id), c.not_found(skill_id)
    if check is not None:
        facts = RecordedFacts.of(data, check)
        result = charter.decide(skill_id, data["agent_type"], *facts, data["step"])
    stages = stages_of(charter, skill_id, data["agent_type"], result)
    then, now = str(data["charter"]), charter.digest
    if not now.startswith(then):
        text = f"another one decided then, {then}…; this is {now[: len(then)]}…"
        stages.insert(0, Stage("charter", holds=None, text=text))
    after = [reason for reason in data.get("reasons", ()) if reason["code"] in _AFTER]
    if after:
        reasons = tuple(Reason(**reason) for reason in after)
        undone = "it was carried out and rolled back"
        stays = "it was carried out, and stays so: the charter was in shadow mode"
        text = undone if data.get("rolled_back") else stays
        stages.append(Stage("changes", holds=False, text=text, reasons=reasons))
    who = f"{data['agent']} ({data['agent_type']})"
    about = f"event {number}: {who} wanted {data['proposed']} at step {data['step']}"
    return stages, about
