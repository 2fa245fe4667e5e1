"""Decide recorded intents again, and compare the outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.errors import CharterRefused, FileRefused, RecordDamaged
from vademecum.files import read_capped
from vademecum.governance.audit import from_json
from vademecum.governance.charter import MAX_CHARTER_BYTES, Charter, digest_of
from vademecum.governance.check import SkillCheck, facts_of, not_found
from vademecum.governance.definitions import EMPTY, MISSING, ValidationResult
from vademecum.governance.ledger import NOTHING_DONE, Charge, Ledger, charge_of
from vademecum.governance.state import Change
from vademecum.paths import contained
from vademecum.runs.record import Event
from vademecum.runs.stored import Difference, PastRun, Replayed

# What only the engine and the state tell: it failed, was interrupted, replaced the agent's own attributes, or
# the state was not plain data.
BY_ENGINE = ("engine", "interrupted", "replaced", "state")

# The agent's state, the shared state and the parameters, as far as the record has them.
Facts = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]


def replay_outcomes(run: PastRun, *, charter: Charter | None = None) -> Replayed:
    """Decide every recorded intent again; with ``charter``, by another charter than the recorded one.

    >>> from vademecum.governance import Actor, Audit, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.record import new_run
    >>> from vademecum.runs.stored import read_run
    >>> from vademecum.runs.record import Record
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
    replaying = _Replaying(Path(run.place), charter)
    compared, found = 0, []
    for event in run.events:
        try:
            if event.type == "charter":
                difference = replaying.take(event)
            elif event.type == "outcome":
                compared += 1
                difference = replaying.again(event)
            else:
                continue
        except (KeyError, TypeError, AttributeError, ValueError, CharterRefused) as error:
            raise RecordDamaged(f"Event {event.number} of {run.place} is damaged ({error!r}).") from error
        found += [difference] if difference is not None else []
    return Replayed(compared, tuple(found))


def facts_in_event(
    charter: Charter, run: PastRun, number: int
) -> tuple[Mapping[str, Any], Facts, Ledger] | None:
    """Return what a recorded outcome was decided on: the event, the observed state, and the ledger."""
    replaying = _Replaying(Path(run.place), charter)
    for event in run.events:
        if event.type == "charter":
            replaying.take(event)
        if event.type != "outcome":
            continue
        if event.number == number:
            check = charter.skill_check(event.data["proposed"])
            facts = (EMPTY, EMPTY, EMPTY) if check is None else _facts(event.data, check)
            return event.data, facts, replaying.ledger
        replaying.again(event)
    return None


class _Replaying:
    """Go through the events in order, with a ledger that fills as it did then."""

    def __init__(self, place: Path, charter: Charter | None) -> None:
        self._place = place
        self._given = charter
        self._charter: Charter | None = charter
        self._recorded: Charter | None = None
        self.ledger = Ledger()

    def take(self, event: Event) -> Difference | None:
        """Put the recorded charter in force; return a difference if its hash is another."""
        if "past" in event.data:
            self.ledger = Ledger.from_json(event.data["past"])
        document = self._kept(str(event.data["kept"]))
        self._recorded = Charter.from_json(document)
        if self._given is not None:
            return None
        self._charter = self._recorded
        # A charter that contained a secret was kept without it, and has two hashes.
        then, now = str(event.data.get("masked") or event.data["digest"]), digest_of(document)
        return None if then == now else Difference(event.number, "the charter", then, now)

    def _kept(self, name: str) -> dict[str, Any]:
        file = contained(self._place, name)
        try:
            found = json.loads(read_capped(file, cap=MAX_CHARTER_BYTES))
        except (OSError, FileRefused, ValueError, RecursionError) as error:
            raise RecordDamaged(
                f"The charter of this run cannot be read ({error}): it was {file}."
            ) from error
        document: dict[str, Any] = found
        return document

    def again(self, event: Event) -> Difference | None:
        """Decide one intent again."""
        data = event.data
        if self._charter is None:
            raise RecordDamaged("The record has outcomes before its charter.")
        check = self._charter.skill_check(data["proposed"])
        decided = _Verdict(_codes(not_found(data["proposed"])))
        if check is not None:
            decided = self._decided(data, check, self._charter)
            if data["executed"] == data["proposed"]:
                self.ledger.add(data["executed"], agent_id=data["agent"], step=data["step"])
        found = _compared(_Verdict.recorded(data), decided)
        what = f"{data['agent']} proposes {data['proposed']} at step {data['step']}"
        return None if found is None else Difference(event.number, what, *found)

    def _decided(self, data: Mapping[str, Any], check: SkillCheck, charter: Charter) -> _Verdict:
        (state, world, params), shadow = _facts(data, check), bool(data.get("shadow"))
        last = self.ledger.agents.get(data["agent"], NOTHING_DONE)
        codes = _codes(check.check(data["agent_type"], state, world, params, last, data["step"]))
        charge = None
        if not codes and not shadow:
            found = charge_of(check, dict(state), dict(world), params)
            if found is None or isinstance(found, Charge):
                charge = found
            else:
                codes = ("cost",)
        if codes and not shadow:
            return _Verdict(codes)
        by_engine = {*BY_ENGINE} & {*_recorded_codes(data)}
        failed, skill_id = bool(by_engine - {"replaced"}), check.rules.skill_id
        changes = () if failed else self._by_engine(data)
        wrong = charter.objections(data["agent_type"], skill_id, changes)
        after = tuple(charter.objection(data["agent_type"], skill_id, change).code for change in wrong)
        undone = failed or (bool(after or by_engine) and not shadow)
        return _Verdict(
            (*codes, *after),
            approved=not codes,
            executed=None if undone else skill_id,
            rolled_back=undone,
            charged=None if undone or charge is None else charge.path,
        )

    def _by_engine(self, data: Mapping[str, Any]) -> Sequence[Change]:
        """Return the recorded changes without what the charter of that time charged."""
        written = data.get("changes", {}).items()
        found = [(key, from_json(old), from_json(new)) for key, (old, new) in written]
        check = None if self._recorded is None else self._recorded.skill_check(data["proposed"])
        if check is None or data.get("shadow"):
            return found
        state, world, params = _facts(data, check)
        charge = charge_of(check, dict(state), dict(world), params)
        return charge.split(found)[1] if isinstance(charge, Charge) else found


class _Verdict(Struct, frozen=True):
    """An outcome, as far as a charter decides it."""

    codes: tuple[str, ...]
    approved: bool = False
    executed: str | None = None
    rolled_back: bool = False
    charged: str | None = None

    @classmethod
    def recorded(cls, data: Mapping[str, Any]) -> _Verdict:
        """Return a recorded outcome without what only the engine knows."""
        codes = tuple(code for code in _recorded_codes(data) if code not in BY_ENGINE)
        return cls(
            codes, data["approved"], data["executed"], data.get("rolled_back", False), data.get("charged")
        )

    @property
    def said(self) -> str:
        """Return the verdict in words."""
        return f"denied: {', '.join(self.codes)}" if self.codes else "approved"


def _compared(then: _Verdict, now: _Verdict) -> tuple[str, str] | None:
    """Return what a verdict was and what it would be now, if they differ."""
    if then.said != now.said:
        return then.said, now.said
    for name in ("approved", "executed", "rolled_back", "charged"):
        one, other = getattr(then, name), getattr(now, name)
        if one != other:
            return f"{then.said}, {name} {one}", f"{now.said}, {name} {other}"
    return None


def _facts(data: Mapping[str, Any], check: SkillCheck) -> Facts:
    state = data.get("state", EMPTY)
    values = tuple(from_json(state[str(path)]) if str(path) in state else MISSING for path in check.reads)
    return facts_of(check.reads, values, from_json(data.get("parameters", {})))


def _recorded_codes(data: Mapping[str, Any]) -> list[str]:
    return [reason["code"] for reason in data.get("reasons", ())]


def _codes(result: ValidationResult) -> tuple[str, ...]:
    return tuple(reason.code for reason in result.reasons)
