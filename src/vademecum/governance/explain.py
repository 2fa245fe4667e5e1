"""A proposal, clause by clause: which stage of the gate it passes, and what each found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vademecum.errors import RecordDamaged
from vademecum.governance import clauses as c
from vademecum.governance.charter import Charter
from vademecum.governance.evaluate import EMPTY
from vademecum.governance.ledger import NOTHING_KNOWN, Ledger
from vademecum.governance.model import Actor, Agent, Reason, SkillDefinition, ValidationResult
from vademecum.governance.replay import BY_ENGINE, facts_in_event
from vademecum.governance.rules import Rules
from vademecum.runs.reading import PastRun

_AFTER = frozenset({"state-change", "write-permission", *BY_ENGINE})
_BEFORE = c.COOLDOWN | c.LIMIT_AGENT | c.LIMIT_TYPE | c.LIMIT_ALL


class Stage(Struct, frozen=True):
    """One stage of the gate: whether it holds, ``None`` where it asks for nothing, what speaks against it."""

    name: str
    holds: bool | None
    text: str
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``vade govern explain`` prints it."""
        reasons = [reason.to_json() for reason in self.reasons]
        return {"stage": self.name, "holds": self.holds, "text": self.text, "reasons": reasons}


def explain(  # noqa: PLR0913 - what a check depends on
    charter: Charter,
    skill_id: str,
    agent: Agent,
    parameters: Mapping[str, Any] = EMPTY,
    *,
    world: Mapping[str, Any] = EMPTY,
    step: int = 0,
    ledger: Ledger = NOTHING_KNOWN,
) -> list[Stage]:
    """Every stage before execution, in the order of the gate."""
    result = charter.check(skill_id, agent, parameters, world=world, step=step, ledger=ledger)
    return stages_of(charter, skill_id, result)


def stages_of(charter: Charter, skill_id: str, result: ValidationResult) -> list[Stage]:
    """The stages behind a result."""
    program, skill = charter.program(skill_id), charter.skills.get(skill_id)
    if program is None or skill is None:
        return [Stage("exists", holds=False, text="it is not in the charter", reasons=result.reasons)]
    rules, bits = program.rules, result.bits
    conditions = sum(1 << (c.FIRST_CONDITION + number) for number in range(len(rules.conditions)))
    asked: list[tuple[str, int, str]] = [
        ("role", c.ROLE, "" if charter.roles is None else "the role may propose it"),
        ("type", c.TYPE, f"for {', '.join(skill.eligible_agent_types)}"),
        (
            "parameters",
            c.PARAMETERS,
            ", ".join(skill.output_schema) or ("none are taken" if bits & c.PARAMETERS else ""),
        ),
        ("preconditions", conditions, "; ".join(skill.preconditions)),
        ("cost", c.COST, _cost(rules)),
        ("cooldown", _BEFORE, _often(rules)),
        ("conflicts", c.CONFLICT | c.DEPENDENCY, _others(rules)),
    ]
    stages = [Stage("exists", holds=True, text=skill.description or skill_id)]
    for name, mask, text in asked:
        reasons = tuple(_only(result, mask)) if bits & mask else ()
        stages.append(
            Stage(
                name,
                holds=not bits & mask if text or bits & mask else None,
                text=text or "nothing asked",
                reasons=reasons,
            )
        )
    return [*stages, Stage("may change", holds=None, text=_changes(charter, skill, result))]


def _only(result: ValidationResult, mask: int) -> tuple[Reason, ...]:
    return ValidationResult(result.bits & mask, result.explains, result.observed).reasons


def _cost(rules: Rules) -> str:
    cost = rules.constraints.cost
    return "" if cost is None else f"{cost.text} out of {rules.constraints.purse}"


def _often(rules: Rules) -> str:
    limits = rules.constraints.limits
    found = [f"every {rules.constraints.cooldown} steps"] if rules.constraints.cooldown else []
    span = limits.span
    for most, who in ((limits.agent, "an agent"), (limits.type, "a type"), (limits.population, "all")):
        found += [f"{most} for {who}{span}"] if most is not None else []
    return ", ".join(found)


def _others(rules: Rules) -> str:
    found = [f"not with {other}" for other in rules.conflicts] + [f"after {other}" for other in rules.needs]
    return ", ".join(found)


def _changes(charter: Charter, skill: SkillDefinition, result: ValidationResult) -> str:
    listed = ", ".join(skill.allowed_state_changes) or "nothing"
    if charter.roles is None or not result.observed:
        return listed
    writes = charter.roles.role_of(str(result.observed[0])).writes
    return f"{listed}; the role may write {', '.join(writes) or 'nothing'}"


def facts_of_event(charter: Charter, run: PastRun, number: int) -> tuple[list[Stage], str]:
    """A recorded intent explained by a charter, from what the record says was seen and done before it."""
    found = facts_in_event(charter, run, number)
    if found is None:
        known = [
            event.number for event in run.events if event.type == "outcome" and event.data.get("reasons")
        ]
        advice = f"the first denial is event {known[0]}" if known else "nothing was denied in it"
        raise RecordDamaged(f"Event {number} of {run.run_id} is not an outcome: {advice}.", code="no-run")
    data, facts, ledger = found
    actor = Actor(data["agent"], data["agent_type"], dict(facts.state))
    result = charter.check(
        data["proposed"], actor, facts.params, world=facts.world, step=data["step"], ledger=ledger
    )
    stages = [*_other_charter(charter, data), *stages_of(charter, data["proposed"], result)]
    after = [reason for reason in data.get("reasons", ()) if reason["code"] in _AFTER]
    if after:
        reasons = tuple(Reason(**reason) for reason in after)
        undone = "it was carried out and rolled back"
        stays = "it was carried out, and stays so: the charter was only looking on"
        text = undone if data.get("rolled_back") else stays
        stages.append(Stage("changes", holds=False, text=text, reasons=reasons))
    who = f"{data['agent']} ({data['agent_type']})"
    about = f"event {number}: {who} wanted {data['proposed']} at step {data['step']}"
    return stages, about


def _other_charter(charter: Charter, data: Mapping[str, Any]) -> list[Stage]:
    """That this is not the charter which decided then, where it is not."""
    then, now = str(data["charter"]), charter.digest
    if now.startswith(then):
        return []
    text = f"another one decided then, {then}…; this is {now[: len(then)]}…"
    return [Stage("charter", holds=None, text=text)]
