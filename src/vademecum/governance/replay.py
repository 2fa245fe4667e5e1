"""A record of outcomes → whether the same charter and states give the same outcomes again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from vademecum.errors import CharterRefused, FileRefused, RecordDamaged
from vademecum.files import read_capped
from vademecum.governance.changes import Change
from vademecum.governance.charging import Charge, Unpayable, charge_of
from vademecum.governance.charter import Charter, digest_of
from vademecum.governance.clauses import Seen, facts_of
from vademecum.governance.evaluate import EMPTY, Facts
from vademecum.governance.ledger import NOTHING_DONE, Ledger
from vademecum.governance.loading import MAX_CHARTER_BYTES
from vademecum.governance.model import MISSING, ValidationResult
from vademecum.governance.program import Program
from vademecum.governance.recorded import from_json
from vademecum.governance.registry import not_found
from vademecum.governance.writable import Writable
from vademecum.paths import contained
from vademecum.runs.reading import Difference, PastRun, Replayed
from vademecum.runs.record import Event

# What only the engine knows: that it failed, was interrupted, or put something else in the agent's place.
BY_ENGINE = ("engine", "interrupted", "replaced")


def replay_outcomes(run: PastRun, *, charter: Charter | None = None) -> Replayed:
    """Decide every recorded intent again; with ``charter``, by another charter than the recorded one.

    >>> from vademecum.governance import Actor, Audit, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.record import new_run
    >>> from vademecum.runs.reading import read_run
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
    """What a recorded outcome was decided on: the event, the state it saw, and what was done before it."""
    replaying = _Replaying(Path(run.place), charter)
    for event in run.events:
        if event.type == "charter":
            replaying.take(event)
        if event.type != "outcome":
            continue
        if event.number == number:
            program = charter.program(event.data["proposed"])
            facts = Facts({}) if program is None else _facts(event.data, program)
            return event.data, facts, replaying.ledger
        replaying.again(event)
    return None


class _Replaying:
    """Goes through the events in order, with a ledger that fills as the first one did."""

    def __init__(self, place: Path, charter: Charter | None) -> None:
        self._place = place
        self._given = charter
        self._charter: Charter | None = charter
        self._writable = None if charter is None else Writable(charter)
        self.ledger = Ledger()

    def take(self, event: Event) -> Difference | None:
        """Let the recorded charter hold from here on, if it still has its hash."""
        if "past" in event.data:
            self.ledger = Ledger.from_json(event.data["past"])
        if self._given is not None:
            return None
        document = self._kept(str(event.data["kept"]))
        self._charter = Charter.from_json(document)
        self._writable = Writable(self._charter)
        # A charter with a secret in it was kept without, and has two hashes.
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
        if self._charter is None or self._writable is None:
            raise RecordDamaged("The record has outcomes before its charter.")
        program = self._charter.program(data["proposed"])
        decided = _Verdict(_codes(not_found(data["proposed"])))
        if program is not None:
            decided = self._decided(data, program, self._writable)
            if data["executed"] == data["proposed"]:
                self._note(data, program)
        found = _compared(_Verdict.recorded(data), decided)
        what = f"{data['agent']} proposes {data['proposed']} at step {data['step']}"
        return None if found is None else Difference(event.number, what, *found)

    def _decided(self, data: Mapping[str, Any], program: Program, writable: Writable) -> _Verdict:
        facts, shadow = _facts(data, program), bool(data.get("shadow"))
        history = self.ledger.agents.get(data["agent"], NOTHING_DONE)
        result = program.check(
            data["agent_type"], facts.state, facts.world, facts.params, history, data["step"], self.ledger
        )
        codes, charge = _codes(result), None
        if not codes and not shadow:
            found = charge_of(program, dict(facts.state), dict(facts.world), facts.params)
            if isinstance(found, Unpayable):
                codes = ("cost",)
            else:
                charge = found
        if codes and not shadow:
            return _Verdict(codes)
        by_engine = {*BY_ENGINE} & {*_recorded_codes(data)}
        failed, skill_id = bool(by_engine - {"replaced"}), program.rules.skill_id
        changes = [] if failed else _by_engine(data, charge)
        wrong = writable.objections(data["agent_type"], skill_id, changes)
        after = tuple(writable.reason(data["agent_type"], skill_id, change).code for change in wrong)
        undone = failed or (bool(after or by_engine) and not shadow)
        return _Verdict(
            (*codes, *after),
            approved=not codes,
            executed=None if undone else skill_id,
            rolled_back=undone,
            charged=None if undone or charge is None else charge.path,
        )

    def _note(self, data: Mapping[str, Any], program: Program) -> None:
        window = program.rules.constraints.limits.window(data["step"])
        self.ledger.add(
            data["executed"],
            agent_id=data["agent"],
            agent_type=data["agent_type"],
            step=data["step"],
            window=window,
        )


class _Verdict(Struct, frozen=True):
    """What came of an intent, as far as a charter decides it."""

    codes: tuple[str, ...]
    approved: bool = False
    executed: str | None = None
    rolled_back: bool = False
    charged: str | None = None

    @classmethod
    def recorded(cls, data: Mapping[str, Any]) -> _Verdict:
        """As the record has it; a failure of the engine is nothing that a charter decides."""
        codes = tuple(code for code in _recorded_codes(data) if code not in BY_ENGINE)
        return cls(
            codes, data["approved"], data["executed"], data.get("rolled_back", False), data.get("charged")
        )

    @property
    def said(self) -> str:
        """The verdict in words."""
        return f"denied: {', '.join(self.codes)}" if self.codes else "approved"


def _compared(then: _Verdict, now: _Verdict) -> tuple[str, str] | None:
    """What a verdict was and would be, where they differ."""
    if then.said != now.said:
        return then.said, now.said
    for name in ("approved", "executed", "rolled_back", "charged"):
        one, other = getattr(then, name), getattr(now, name)
        if one != other:
            return f"{then.said}, {name} {one}", f"{now.said}, {name} {other}"
    return None


def _by_engine(data: Mapping[str, Any], charge: Charge | None) -> list[Change]:
    """The changes that are not the charter's own: of the purse, only what is not the charge."""
    found = {key: (from_json(old), from_json(new)) for key, (old, new) in data.get("changes", {}).items()}
    if charge is not None:
        # A purse that is what it was has been filled again.
        before, after = found.get(charge.path, (charge.before, charge.before))
        found[charge.path] = (charge.left, after)
        if (before, after) == (charge.before, charge.left):
            del found[charge.path]
    return [(key, *pair) for key, pair in found.items()]


def _facts(data: Mapping[str, Any], program: Program) -> Facts:
    state = data.get("state", EMPTY)
    values = tuple(from_json(state[str(path)]) if str(path) in state else MISSING for path in program.reads)
    params = from_json(data.get("parameters", {}))
    seen = Seen(data["agent_type"], params, data["step"], 0, None, (0, 0, 0), (), (), values)
    return facts_of(program.reads, seen, compat=False)


def _recorded_codes(data: Mapping[str, Any]) -> list[str]:
    return [reason["code"] for reason in data.get("reasons", ())]


def _codes(result: ValidationResult) -> tuple[str, ...]:
    return tuple(reason.code for reason in result.reasons)
