"""Decide recorded intents again, and compare the outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vademecum.errors import CharterRefused, RecordDamaged
from vademecum.governance.audit import from_json
from vademecum.governance.charter import Charter, digest_of
from vademecum.governance.check import SkillCheck, facts_of, not_found
from vademecum.governance.definitions import EMPTY, MISSING, ValidationResult
from vademecum.governance.ledger import charge_of
from vademecum.governance.state import Change
from vademecum.runs.record import Event
from vademecum.runs.stored import Difference, PastRun, Replayed

# What only the engine and the state tell: it failed, was interrupted, replaced the agent's own attributes, or
# the state was not plain data.
BY_ENGINE = ("engine", "interrupted", "replaced", "state")


def replay_outcomes(run: PastRun, *, charter: Charter | None = None) -> Replayed:
    """Decide every recorded intent again; with ``charter``, by another charter than the recorded one.

    >>> from pathlib import Path
    >>> from vademecum.governance import Actor, Audit, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.record import Record, new_run
    >>> from vademecum.runs.stored import read_run
    >>> record = Record(new_run(Path("runs")), secrets=Secrets({}))
    >>> audit = Audit(record, secrets=Secrets({}))
    >>> rest = SkillDefinition("rest", implementation_mapping="rest")
    >>> broker = Broker(SkillRegistry([rest]), None, Functions({"rest": lambda agent: None}), audit=audit)
    >>> outcome = broker.propose(Actor("a1", "resident"), "rest")
    >>> audit.flush()
    >>> run = read_run(Path("runs"), record.run_id)
    >>> replay_outcomes(run)
    Replayed(compared=1, differences=())
    >>> replay_outcomes(run, charter=Charter(SkillRegistry())).differences[0].now
    'denied: not-found'
    """
    recorded: Charter | None = None
    compared, found = 0, []
    for event in run.events:
        try:
            if event.type == "charter":
                document = from_json(event.data["charter"])
                recorded = Charter.from_json(document)
                then, now = event.data.get("masked") or event.data["digest"], digest_of(event.data["charter"])
                if charter is None and then != now:
                    found.append(Difference(event.number, "the charter", then, now))
            elif event.type == "outcome":
                compared += 1
                if recorded is None:
                    raise RecordDamaged("The record has outcomes before its charter.")
                found += _compared(event, _decided(event.data, charter or recorded, recorded))
        except (KeyError, TypeError, AttributeError, ValueError, CharterRefused) as error:
            raise RecordDamaged(f"Event {event.number} of {run.place} is damaged ({error!r}).") from error
    return Replayed(compared, tuple(found))


class RecordedFacts(NamedTuple):
    """What an intent was decided on, as far as the record has it."""

    state: Mapping[str, Any]
    world: Mapping[str, Any]
    params: Mapping[str, Any]
    last: Mapping[str, int]

    @classmethod
    def of(cls, data: Mapping[str, Any], check: SkillCheck) -> RecordedFacts:
        """Return the facts of an event."""
        seen = data.get("state", EMPTY)
        values = tuple(from_json(seen[str(path)]) if str(path) in seen else MISSING for path in check.reads)
        last = {data["proposed"]: data["last"]} if "last" in data else {}
        return cls(*facts_of(check.reads, values, from_json(data.get("parameters", {}))), last)


class _Verdict(NamedTuple):
    """An outcome, as far as a charter decides it."""

    codes: tuple[str, ...]
    approved: bool = False
    executed: str | None = None
    rolled_back: bool = False
    charged: str | None = None

    @property
    def said(self) -> str:
        """Return the verdict in words."""
        return f"denied: {', '.join(self.codes)}" if self.codes else "approved"


def _decided(data: Mapping[str, Any], charter: Charter, recorded: Charter) -> _Verdict:
    """Return the verdict of a charter on a recorded intent."""
    skill_id = data["proposed"]
    check = charter.skill_check(skill_id)
    if check is None:
        return _Verdict(_codes(not_found(skill_id)))
    facts, shadow = RecordedFacts.of(data, check), bool(data.get("shadow"))
    codes = _codes(charter.decide(skill_id, data["agent_type"], *facts, data["step"]))
    if codes and not shadow:
        return _Verdict(codes)
    charge = None if shadow else charge_of(check, dict(facts.state), dict(facts.world), facts.params)
    by_engine = {*BY_ENGINE} & {*_recorded_codes(data)}
    failed = bool(by_engine - {"replaced"})
    changes = () if failed else _by_engine(data, recorded)
    after = tuple(reason.code for reason in charter.objections(data["agent_type"], skill_id, changes))
    undone = failed or (bool(after or by_engine) and not shadow)
    return _Verdict(
        (*codes, *after),
        approved=not codes,
        executed=None if undone else skill_id,
        rolled_back=undone,
        charged=None if undone or charge is None else charge.path,
    )


def _by_engine(data: Mapping[str, Any], recorded: Charter) -> Sequence[Change]:
    """Return the recorded changes without what the charter of that time charged."""
    written = data.get("changes", {}).items()
    found = [(key, from_json(old), from_json(new)) for key, (old, new) in written]
    check = recorded.skill_check(data["proposed"])
    if check is None or data.get("shadow"):
        return found
    facts = RecordedFacts.of(data, check)
    charge = charge_of(check, dict(facts.state), dict(facts.world), facts.params)
    return found if charge is None else charge.split(found)[1]


def _compared(event: Event, now: _Verdict) -> list[Difference]:
    """Return the difference between a recorded outcome and a verdict, if there is one."""
    data = event.data
    codes = tuple(code for code in _recorded_codes(data) if code not in BY_ENGINE)
    undone, charged = data.get("rolled_back", False), data.get("charged")
    then = _Verdict(codes, data["approved"], data["executed"], undone, charged)
    what = f"{data['agent']} proposes {data['proposed']} at step {data['step']}"
    for name, one, other in zip(_Verdict._fields, then, now, strict=True):
        if one != other:
            more = ("", "") if name == "codes" else (f", {name} {one}", f", {name} {other}")
            return [Difference(event.number, what, then.said + more[0], now.said + more[1])]
    return []


def _recorded_codes(data: Mapping[str, Any]) -> list[str]:
    return [reason["code"] for reason in data.get("reasons", ())]


def _codes(result: ValidationResult) -> tuple[str, ...]:
    return tuple(reason.code for reason in result.reasons)
