"""The runs of one session, and each call in them: what was asked, what was answered, and how it ended."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vademecum.errors import FileRefused, ToolRefused, VademecumError
from vademecum.files import keep_newest, read_own, write_atomic
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Decision, Origin, risk_of
from vademecum.policy.gate import Decided
from vademecum.runs.record import Record
from vademecum.session.base import Deferred, Kind
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation

if TYPE_CHECKING:
    from vademecum.session.session import Session

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")
T = TypeVar("T")
MAX_PENDING = 1000
MAX_PENDING_BYTES = 64 * 1024 * 1024
CLOSED: Mapping[str, Any] = {"status": "done", "stop_reason": "closed", "answer": "", "stats": {}}


class Run:
    """One run of a conversation: its record and the numbers of its calls."""

    def __init__(self, record: Record, *, asked_for: bool) -> None:
        self.record = record
        self.asked_for = asked_for  # by `begin`; any other run begins with the first thing to write down
        self.numbers = itertools.count(1)
        self.started = time.time()
        self.calls = 0
        self.summary = CLOSED


class Recording:
    """Begins and ends runs. A record stays open until its last call is done, even if the run ends earlier."""

    def __init__(self, start: Callable[[], Record], *, is_on: bool = True) -> None:
        self._start = start
        self.is_on = is_on
        self._lock = threading.RLock()
        self.now: Run | None = None  # the run that goes on
        self.places: tuple[Path, ...] = ()  # of the records of this conversation

    def begin(self, start: Callable[[], Record]) -> Run:
        """Begin a run that the caller asked for; a session has one at a time."""
        with self._lock:
            if self.now is not None and self.now.asked_for:
                text = "A run goes on in this session: wait for its end, or begin another session."
                raise VademecumError(text, code="busy")
            self.end(CLOSED)
            return self._begun(start, asked_for=True)

    @contextmanager
    def held(self) -> Iterator[Run]:
        """Return the current run, begun now if there is none; its record stays open until this ends."""
        with self._lock:
            run = self.now or self._begun(self._start, asked_for=False)
            run.calls += 1
        try:
            yield run
        finally:
            with self._lock:
                run.calls -= 1
                if run is not self.now and not run.calls:
                    run.record.finish(run.summary)

    def end(self, summary: Mapping[str, Any], *, at_once: bool = False) -> None:
        """End the run when its last call is over, or ``at_once``, because the process is about to end."""
        with self._lock:
            run, self.now = self.now, None
            if run is not None:
                run.summary = {**summary, "status": "interrupted"} if run.calls and at_once else summary
                if at_once or not run.calls:
                    run.record.finish(run.summary)

    def _begun(self, start: Callable[[], Record], *, asked_for: bool) -> Run:
        run = self.now = Run(start(), asked_for=asked_for)
        self.places = (*self.places, run.record.place)
        return run


CHANGED = "What was asked about has changed since: nothing was done, ask again."


class Answered:
    """Gives the answers that are known already, by fingerprint; another question goes to ``then``.

    What was asked about must be what it was (``expected``: digest and exact), whether or not a question
    comes up again: ``CallRecord.check`` is called before anything is done.
    """

    def __init__(self, answers: dict[str, Answer], expected: tuple[str, str], then: Approver) -> None:
        self._answers = answers
        self.expected = expected
        self._then = then

    def ask(self, question: Question) -> Answer:
        """Return the answer, or ask."""
        return self._answers.get(question.fingerprint) or self._then.ask(question)


class Pending(msgspec.Struct, frozen=True):
    """A call that waits for an answer: all that is needed to do exactly that call later."""

    call: str
    arguments: dict[str, Any]
    agent: str
    origin: Origin
    question: Question
    for_skill: str | None
    active: tuple[str, ...]
    answers: dict[str, Answer]


def _pending_file(session: Session, question_id: str) -> Path:
    """Return where a call of this project waits: in the home directory, where no repository can bring one."""
    told = f"{os.path.realpath(session.place.project)}\0{question_id}".encode("utf-8", "replace")
    # Files below `.agent/runs` are never read for a model.
    waiting = session.place.context.home / ".agent/runs/.deferred"
    return waiting / f"{hashlib.sha256(told).hexdigest()}.json"


def claimed(session: Session, question_id: str) -> Pending:
    """Return the call that waits for this answer. Each call can be claimed once."""
    file = _pending_file(session, question_id)
    try:
        pending = msgspec.json.decode(read_own(file, cap=MAX_PENDING_BYTES), type=Pending)
    except (OSError, FileRefused, msgspec.MsgspecError, RecursionError) as error:
        text = f"No call waits for an answer to {question_id[:40]!r}."
        raise VademecumError(text, code="no-question") from error
    if pending.agent != session.agent:
        raise VademecumError("Another agent asked that question.", code="no-question")
    try:
        os.unlink(file)
    except OSError as error:
        raise VademecumError("That question was answered already.", code="no-question") from error
    return pending


class CallRecord(ExitStack):
    """One call on the record: the run it belongs to from its first event to its end, and its questions."""

    def __init__(self, session: Session, approver: Approver, origin: Origin) -> None:
        super().__init__()
        self.session = session
        self.origin = origin
        self._approver = approver
        self._run: Run | None = None
        self.answers: dict[str, Answer] = {}
        self.is_written = False

    @property
    def run(self) -> Run:
        """The run, which is begun if nothing was written down yet, and stays open until the call is over."""
        if self._run is None:
            self._run = self.enter_context(self.session.recording.held())
        return self._run

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run, if there is one."""
        if self.session.recording.is_on:
            self.run.record.add(type_, **data)

    def write_call(  # noqa: PLR0913 - what belongs to a call
        self,
        seen: Observation,
        parameters: Mapping[str, Any],
        *,
        number: int,
        started: float,
        seconds: float = 0.0,
        skill: Skill | None = None,
        decision: Decision | None = None,
        asked: Sequence[Decided] = (),
        approved_by: str | None = None,
    ) -> None:
        """Add the event for one call of a tool: who called, when, what the rules said, what came of it."""
        self.is_written = True
        facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
        self.run.record.add_bounded(
            "tool_called",
            call=number,
            tool=seen.tool,
            risk=risk_of(seen.tool),
            agent=self.session.agent,
            skill=None if skill is None else skill.name,
            skill_id=None if skill is None else skill.skill_id,
            parameters=dict(parameters),
            started=started,
            seconds=seconds,
            decision=None if decision is None else decision.to_json(),
            asked=[
                {"permission": r.permission, "resources": list(r.resources), "effect": d.effect.name.lower()}
                for r, d in asked
            ],
            approved_by=approved_by,
            ok=not seen.code,
            code=seen.code,
            result={**facts, "text": seen.text, "files": list(seen.files)},
            hashes={key: seen.facts[key] for key in _HASHES if key in seen.facts},
        )

    def guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do something with the leave of the guard, if there is one."""
        guard = self.session.guard
        if guard is None:
            return do()
        self.is_written = kind != "skill"  # the guard itself writes down what it refuses to tools
        return guard.act(kind, name, said, do, record=self.run.record)

    def check(self, digest: Callable[[], str], exact: Callable[[], str] = str) -> None:
        """Raise if this is a call that was put off and what it is about has changed since."""
        if isinstance(self._approver, Answered) and (digest(), exact()) != self._approver.expected:
            raise ToolRefused(CHANGED, code="changed")

    def ask(self, question: Question) -> Answer:
        """Ask, and write down what was asked and what was answered; who cannot be asked has not said yes."""
        self.write(
            "approval_asked",
            id=question.id,
            wanted=question.wanted,
            reason=question.decision.reason,
            about=question.about,
        )
        verdict, scope, message = "interrupted", None, ""
        try:
            answer = self._asked(question)
            verdict, message = answer.verdict, answer.message
            scope = answer.scope if verdict == "always" else None
        except Deferred:
            verdict = "deferred"
            raise
        finally:
            self.write("approval_answered", id=question.id, verdict=verdict, scope=scope, message=message)
        self.answers[question.fingerprint] = answer
        return answer

    def _asked(self, question: Question) -> Answer:
        try:
            return self._approver.ask(question)
        except (Deferred, VademecumError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever an approver raises, it is not a yes
            return Answer("reject", f"the question could not be put ({error})", seen=False, absent=True)

    def keep(self, question: Question, call: calls.Call, for_skill: str | None) -> None:
        """Keep this call until its question is answered, also by another process."""
        pending = Pending(
            calls.NAMES[type(call)],
            calls.said(call),
            self.session.agent,
            self.origin,
            question,
            for_skill,
            tuple(skill.location for skill in self.session.active),
            self.answers,
        )
        file = _pending_file(self.session, question.id)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(file, msgspec.json.encode(pending), mode=0o600)
        keep_newest(file.parent, "*.json", MAX_PENDING)
