"""A record of outcomes → whether the same charter and states give the same outcomes again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from vademecum.errors import FileRefused, RecordDamaged
from vademecum.files import read_capped
from vademecum.governance.changes import Change
from vademecum.governance.charter import Charter
from vademecum.governance.clauses import Seen, facts_of
from vademecum.governance.evaluate import EMPTY, Facts
from vademecum.governance.ledger import NOTHING_DONE, Ledger
from vademecum.governance.loading import MAX_CHARTER_BYTES, charter_of
from vademecum.governance.model import MISSING, ValidationResult
from vademecum.governance.program import Program
from vademecum.governance.registry import not_found
from vademecum.governance.writable import Writable, charge_of
from vademecum.paths import contained
from vademecum.runs.reading import PastRun
from vademecum.runs.record import Event


class Otherwise(Struct, frozen=True):
    """One outcome that would be another now: at which event, what it was, what it would be."""

    event: int
    what: str
    then: str
    now: str

    def to_json(self) -> dict[str, Any]:
        """As the commands print it."""
        return structs.asdict(self)


class Checked(Struct, frozen=True):
    """How many outcomes were gone through again, and which of them differ."""

    compared: int
    differences: tuple[Otherwise, ...]


def replay_outcomes(run: PastRun, *, charter: Charter | None = None) -> Checked:
    """Decide every recorded intent again; with ``charter``, by another charter than the recorded one.

    >>> from vademecum.governance import Actor, Audit, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.place import new_run
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
    Checked(compared=1, differences=())
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
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordDamaged(f"Event {event.number} of {run.place} is damaged ({error!r}).") from error
        found += [difference] if difference is not None else []
    return Checked(compared, tuple(found))


def facts_in_event(
    charter: Charter, run: PastRun, number: int
) -> tuple[Mapping[str, Any], Facts, Ledger] | None:
    """What a recorded outcome was decided on: the event, the state it saw, and what was done before it."""
    replaying = _Replaying(Path(run.place), charter)
    for event in run.events:
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

    def take(self, event: Event) -> Otherwise | None:
        """Let the recorded charter hold from here on, if it still has its hash."""
        if self._given is not None:
            return None
        file = contained(self._place, str(event.data["kept"]))
        try:
            text = read_capped(file, cap=MAX_CHARTER_BYTES).decode("utf-8")
        except (OSError, FileRefused, UnicodeDecodeError) as error:
            raise RecordDamaged(
                f"The charter of this run cannot be read ({error}): it was {file}."
            ) from error
        self._charter = charter_of(text)
        self._writable = Writable(self._charter)
        then, now = str(event.data["digest"]), self._charter.digest
        return None if then == now else Otherwise(event.number, "the charter", then, now)

    def again(self, event: Event) -> Otherwise | None:
        """Decide one intent again."""
        data = event.data
        if self._charter is None or self._writable is None:
            raise RecordDamaged("The record has outcomes before its charter.")
        program = self._charter.program(data["proposed"])
        then = _codes(data)
        now = _said(not_found(data["proposed"])) if program is None else self._decided(data, program)
        if data["executed"] == data["proposed"] and program is not None:
            self._note(data, program)
        if then == now:
            return None
        what = f"{data['agent']} proposes {data['proposed']} at step {data['step']}"
        return Otherwise(event.number, what, then, now)

    def _decided(self, data: Mapping[str, Any], program: Program) -> str:
        facts = _facts(data, program)
        history = self.ledger.agents.get(data["agent"], NOTHING_DONE)
        result = program.check(
            data["agent_type"], facts.state, facts.world, facts.params, history, data["step"], self.ledger
        )
        if not result and not data.get("shadow"):
            return _said(result)
        assert self._writable is not None
        charge = None if data.get("shadow") else charge_of(program, facts)
        changes: tuple[Change, ...] = tuple((key, *pair) for key, pair in data.get("changes", {}).items())
        objections = self._writable.objections(data["agent_type"], program.rules.skill_id, changes, charge)
        return _said(result, *(reason.code for reason in objections))

    def _note(self, data: Mapping[str, Any], program: Program) -> None:
        window = program.rules.constraints.limits.window(data["step"])
        self.ledger.add(
            data["executed"],
            agent_id=data["agent"],
            agent_type=data["agent_type"],
            step=data["step"],
            window=window,
        )


def _facts(data: Mapping[str, Any], program: Program) -> Facts:
    state = data.get("state", EMPTY)
    values = tuple(state.get(str(path), MISSING) for path in program.reads)
    params = data.get("parameters", EMPTY)
    seen = Seen(data["agent_type"], params, data["step"], None, (0, 0, 0), (), (), values)
    return facts_of(program.reads, seen, compat=False)


def _codes(data: Mapping[str, Any]) -> str:
    """What a recorded outcome came to; a failure of the engine is nothing that a charter decides."""
    codes = [reason["code"] for reason in data.get("reasons", ()) if reason["code"] != "engine"]
    return f"denied: {', '.join(codes)}" if codes else "approved"


def _said(result: ValidationResult, *more: str) -> str:
    codes = [*(reason.code for reason in result.reasons), *more]
    return f"denied: {', '.join(codes)}" if codes else "approved"
