"""Record outcomes as events of a run, decide recorded intents again, and explain decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import MsgspecError, Struct, structs

from vademecum.errors import CharterRefused, FileRefused, RecordDamaged
from vademecum.files import read_capped
from vademecum.governance.charter import MAX_CHARTER_BYTES, Charter, digest_of
from vademecum.governance.check import facts_of
from vademecum.governance.conditions import Facts
from vademecum.governance.definitions import MISSING, ActionOutcome, Clause, Reason, ValidationResult, shown
from vademecum.governance.state import MAX_DEPTH, Charge
from vademecum.masking import Secrets
from vademecum.paths import contained
from vademecum.runs.record import Event, Record, masked
from vademecum.runs.stored import Difference, PastRun, Replayed

MAX_WAITING = 1000  # outcomes that are kept before they are written
MAX_REMEMBERED = 100_000
DIGEST_CHARS = 23  # "sha256:" and sixteen digits; all of it is in the event `charter`
LARGEST = 2**1000  # a larger number has more digits than Python reads

# Reasons that come from the engine or the state: the engine failed, was interrupted or replaced attributes of
# the agent, or the state was not plain data.
BY_ENGINE = frozenset({"engine", "interrupted", "replaced", "state"})
AFTER = BY_ENGINE | {"state-change", "write-permission"}

_NUMBERS = frozenset({int, float, bool})


class RecordedOutcome(Struct, omit_defaults=True, gc=False):
    """One outcome in the form of a record, without empty values."""

    charter: str
    step: int
    agent: str
    agent_type: str
    proposed: str
    approved: bool
    executed: str | None
    last: int | None = None
    charged: str | None = None
    parameters: Mapping[str, Any] = {}
    state: Mapping[str, Any] = {}
    changes: Mapping[str, Any] = {}
    reasons: list[Any] = []
    rolled_back: bool = False
    shadow: bool = False

    @property
    def facts(self) -> Facts:
        """Return the recorded part of the state, the shared state and the parameters."""
        return facts_of(from_json(self.state), from_json(self.parameters))


class Audit:
    """Write outcomes into a record in blocks: at the end of each step, or when enough are waiting.

    >>> from pathlib import Path
    >>> from vademecum.governance import Actor, Broker, Functions, SkillDefinition, SkillRegistry
    >>> from vademecum.masking import Secrets
    >>> from vademecum.runs.record import Record, new_run
    >>> from vademecum.runs.stored import read_run
    >>> record = Record(new_run(Path("runs")), secrets=Secrets({}))
    >>> audit = Audit(record, secrets=Secrets({}))
    >>> skills = SkillRegistry([SkillDefinition("rest", implementation_mapping="rest")])
    >>> broker = Broker(skills, None, Functions({"rest": lambda agent: None}), audit=audit)
    >>> outcome = broker.propose(Actor("a1", "resident"), "rest")
    >>> audit.flush()
    >>> [event.type for event in read_run(Path("runs"), record.run_id).events]
    ['charter', 'outcome']
    """

    def __init__(self, record: Record, *, secrets: Secrets) -> None:
        self._record = record
        self._waiting: list[bytes] = []
        self._digest = ""
        self._charter: tuple[Charter, int] | None = None  # the one on record, and how many skills it had
        # The same few texts occur many times.
        self._mask = lru_cache(MAX_REMEMBERED)(lambda key, text: masked(text, secrets, name=key))

    def charter(self, charter: Charter) -> None:
        """Record which charter is in force from here on, unless it is recorded already."""
        skills = len(charter.registry.checks)
        if (charter, skills) == self._charter:
            return
        self._charter = charter, skills
        self.flush()
        self._digest = charter.digest[:DIGEST_CHARS]
        document = as_json(charter.to_json(), self._mask)
        digest = digest_of(document)
        # A charter that contains a secret is recorded without it, and has two hashes.
        more = {} if digest == charter.digest else {"masked": digest}
        self._record.add("charter", digest=charter.digest, charter=document, skills=skills, **more)

    def outcome(self, outcome: ActionOutcome, state: Mapping[str, Any], last: int | None) -> None:
        """Record an outcome, the values that the charter read, and when the agent last did the skill."""
        said, mask = outcome.proposed.parameters, self._mask
        changes: dict[str, Any] = {}
        for key, *pair in outcome.changes:
            values = [None if value is MISSING else value for value in pair]
            changes[mask("", key)] = values if _are_numbers(values) else as_json(values, mask, key)
        proposed = mask("", outcome.proposed.skill_id)
        row = RecordedOutcome(
            self._digest,
            outcome.step,
            mask("", str(outcome.agent_id)),
            mask("", str(outcome.agent_type)),
            proposed,
            outcome.approved,
            None if outcome.executed is None else proposed,
            last,
            outcome.charged,
            as_json(said, mask) if said else {},
            # Numbers need no masking.
            state if _are_numbers(state.values()) else as_json(state, mask),
            changes,
            [as_json(reason.to_json(), mask) for reason in outcome.reasons],
            outcome.rolled_back,
            outcome.shadow,
        )
        self._waiting.append(msgspec.json.encode(row))
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the outcomes that are waiting."""
        if self._waiting:
            self._record.add_encoded("outcome", self._waiting)
            self._waiting = []


def _are_numbers(values: Collection[Any]) -> bool:
    """Return whether values are numbers that JSON can write: a sum is finite only if each number is."""
    try:
        return _NUMBERS.issuperset(map(type, values)) and isfinite(sum(values))
    except OverflowError:
        return False


# Takes the name of a value and its text, and returns the text without secrets.
Mask = Callable[[str, str], str]


def as_json(value: Any, mask: Mask, key: str = "", depth: int = 0) -> Any:
    """Return a value in the form of a record, with masked texts.

    A value that JSON cannot represent is a mapping with one key that begins with ``$``; an unknown object is
    its text.

    >>> as_json({"debt": float("inf"), "cells": [None]}, lambda key, text: text)
    {'debt': {'$float': 'inf'}, 'cells': [None]}
    """
    match value:
        case None | bool():
            return value
        case str():
            return mask(key, str(value))
        case int():
            return int(value) if abs(value) < LARGEST else {"$int": hex(value)}
        case float():
            return float(value) if isfinite(value) else {"$float": str(float(value))}
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        found = {mask("", str(k)): as_json(item, mask, str(k), depth + 1) for k, item in value.items()}
        return {"$dict": found} if len(found) == 1 and next(iter(found)).startswith("$") else found
    if isinstance(value, list | tuple):
        return [as_json(item, mask, key, depth + 1) for item in value]
    return mask(key, shown(value))


def from_json(value: Any) -> Any:
    """Return the value from the form that ``as_json`` writes.

    >>> from_json({"debt": {"$float": "inf"}})
    {'debt': inf}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match [*value.items()]:
        case [("$float", str(text))]:
            return float(text)
        case [("$int", str(text))]:
            return int(text, 16)
        case [("$dict", dict(inner))]:
            value = inner
    return {key: from_json(item) for key, item in value.items()}


def replay_outcomes(run: PastRun, *, charter: Charter | None = None) -> Replayed:
    """Decide every recorded intent again, by the recorded charter or by ``charter``.

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
    for event in _complete(run):
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
                row = msgspec.convert(event.data, RecordedOutcome)
                found += _compared(event.number, row, _decided(row, charter or recorded, recorded))
        except (KeyError, TypeError, AttributeError, ValueError, MsgspecError, CharterRefused) as error:
            raise RecordDamaged(f"Event {event.number} of {run.place} is damaged ({error!r}).") from error
    return Replayed(compared, tuple(found))


def _complete(run: PastRun) -> Iterator[Event]:
    """Yield the events of a run; add the charter and the steps that records of earlier versions lack.

    Such a record keeps its charter in a file, and does not contain when an agent last did a skill.
    """
    kept, last = False, dict[tuple[Any, Any], int]()
    for event in run.events:
        data = dict(event.data)
        if event.type == "charter" and "kept" in data:
            kept, data["charter"] = True, _read_charter(run, str(data["kept"]))
        elif event.type == "outcome" and kept:
            who = data.get("agent"), data.get("proposed")
            data["last"] = last.get(who)
            if data.get("executed") == data.get("proposed"):
                last[who] = data.get("step", 0)
        yield structs.replace(event, data=data)


def _read_charter(run: PastRun, name: str) -> Any:
    file = contained(Path(run.place), name)
    try:
        return json.loads(read_capped(file, cap=MAX_CHARTER_BYTES))
    except (OSError, FileRefused, ValueError, RecursionError) as error:
        raise RecordDamaged(f"The charter of this run cannot be read ({error}): it was {file}.") from error


def _checked(row: RecordedOutcome, charter: Charter) -> ValidationResult:
    last = {} if row.last is None else {row.proposed: row.last}
    return charter.decide(row.proposed, row.agent_type, row.facts, last, row.step)


def _charged(row: RecordedOutcome, charter: Charter) -> Charge | None:
    check = charter.registry.skill_check(row.proposed)
    return None if check is None or row.shadow else check.charge(row.facts)


class _Verdict(NamedTuple):
    """The part of an outcome that a charter decides."""

    codes: tuple[str, ...]
    approved: bool = False
    executed: str | None = None
    rolled_back: bool = False
    charged: str | None = None

    @property
    def said(self) -> str:
        """Return the verdict in words."""
        return f"denied: {', '.join(self.codes)}" if self.codes else "approved"


def _decided(row: RecordedOutcome, charter: Charter, recorded: Charter) -> _Verdict:
    codes = tuple(reason.code for reason in _checked(row, charter).reasons)
    if "not-found" in codes or (codes and not row.shadow):
        return _Verdict(codes)
    charge = _charged(row, charter)
    then = {reason["code"] for reason in row.reasons}
    by_engine = then & BY_ENGINE
    failed = bool(by_engine - {"replaced"})
    changes = tuple((key, from_json(old), from_json(new)) for key, (old, new) in row.changes.items())
    paid = _charged(row, recorded) if then <= AFTER else None
    if paid is not None:
        _, changes = paid.split(changes)  # the recorded cost is not a change by the engine
    after = () if failed else charter.objections(row.agent_type, row.proposed, changes).reasons
    undone = failed or (bool(after or by_engine) and not row.shadow)
    return _Verdict(
        (*codes, *(reason.code for reason in after)),
        approved=not codes,
        executed=None if undone else row.proposed,
        rolled_back=undone,
        charged=None if undone or charge is None else charge.path,
    )


def _compared(number: int, row: RecordedOutcome, now: _Verdict) -> list[Difference]:
    """Return the difference between a recorded outcome and a verdict, if there is one."""
    codes = tuple(reason["code"] for reason in row.reasons if reason["code"] not in BY_ENGINE)
    then = _Verdict(codes, row.approved, row.executed, row.rolled_back, row.charged)
    what = f"{row.agent} proposes {row.proposed} at step {row.step}"
    for name, one, other in zip(_Verdict._fields, then, now, strict=True):
        if one != other:
            more = ("", "") if name == "codes" else (f", {name} {one}", f", {name} {other}")
            return [Difference(number, what, then.said + more[0], now.said + more[1])]
    return []


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
    check = charter.registry.skill_check(skill_id)
    if check is None:
        return [Stage("exists", holds=False, text="it is not in the charter", reasons=result.reasons)]
    skill, bits = check.skill, result.bits
    parameters = ", ".join(skill.output_schema) or ("none are accepted" if bits & Clause.PARAMETERS else "")
    asked: list[tuple[str, int, str]] = [
        ("role", Clause.ROLE, "" if charter.roles is None else "the role may propose it"),
        ("type", Clause.TYPE, f"for {', '.join(skill.eligible_agent_types)}"),
        ("parameters", Clause.PARAMETERS, parameters),
        ("preconditions", Clause.CONDITIONS, "; ".join(skill.preconditions)),
        ("cost", Clause.COST, "" if check.cost is None else f"{check.cost.text} out of {check.purse}"),
        ("cooldown", Clause.COOLDOWN, f"every {check.cooldown} steps" if check.cooldown else ""),
    ]
    stages = [Stage("exists", holds=True, text=skill.description or skill_id)]
    for name, mask, text in asked:
        holds = not bits & mask if text or bits & mask else None
        stages.append(Stage(name, holds, text or "no requirement", result.only(mask).reasons))
    may = ", ".join(skill.allowed_state_changes) or "nothing"
    if charter.roles is not None:
        may += f"; the role may write {', '.join(charter.roles.role_of(agent_type).writes) or 'nothing'}"
    return [*stages, Stage("may change", holds=None, text=may)]


def explain_event(charter: Charter, run: PastRun, number: int) -> tuple[list[Stage], str]:
    """Explain a recorded intent by a charter, from the values in the record."""
    outcomes = [event for event in _complete(run) if event.type == "outcome"]
    found = next((event for event in outcomes if event.number == number), None)
    if found is None:
        known = [event.number for event in outcomes if event.data.get("reasons")]
        advice = f"the first denial is event {known[0]}" if known else "nothing was denied in it"
        raise RecordDamaged(f"Event {number} of {run.run_id} is not an outcome: {advice}.", code="no-run")
    row, now = msgspec.convert(found.data, RecordedOutcome), charter.digest
    stages = stages_of(charter, row.proposed, row.agent_type, _checked(row, charter))
    if not now.startswith(row.charter):
        text = f"the run had another charter, {row.charter}…; this is {now[: len(row.charter)]}…"
        stages.insert(0, Stage("charter", holds=None, text=text))
    reasons = tuple(Reason(**reason) for reason in row.reasons if reason["code"] in AFTER)
    if reasons:
        undone = "it was carried out and rolled back"
        stays = "it was carried out and not rolled back: the charter was in shadow mode"
        text = undone if row.rolled_back else stays
        stages.append(Stage("changes", holds=False, text=text, reasons=reasons))
    about = f"event {number}: {row.agent} ({row.agent_type}) wanted {row.proposed} at step {row.step}"
    return stages, about
