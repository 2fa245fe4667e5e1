"""The runs of one session, and each call in them: what was asked, what was answered, and how it ended."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from vademecum.errors import ToolRefused, VademecumError
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Decision, risk_of
from vademecum.policy.gate import Decided
from vademecum.runs.record import Record
from vademecum.session.base import Deferred, Guard, Kind
from vademecum.skill.skill import Skill
from vademecum.tools.calls import Observation

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")
T = TypeVar("T")
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

    def __init__(self, start: Callable[[], Record]) -> None:
        self._start = start
        self._lock = threading.RLock()
        self.now: Run | None = None  # the run that goes on
        self._open: dict[Run, None] = {}
        self.places: tuple[Path, ...] = ()

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
                    self._finish(run)

    def end(self, summary: Mapping[str, Any]) -> None:
        """End the run, at once or when its last call is over."""
        with self._lock:
            run, self.now = self.now, None
            if run is not None:
                run.summary = summary
                if not run.calls:
                    self._finish(run)

    def abandon(self) -> None:
        """End all runs at once, with whatever still goes on: the process is about to end."""
        with self._lock:
            self.now = None
            for run in list(self._open):
                if run.calls:
                    run.summary = {**run.summary, "status": "interrupted"}
                self._finish(run)

    def _begun(self, start: Callable[[], Record], *, asked_for: bool) -> Run:
        run = self.now = Run(start(), asked_for=asked_for)
        self._open[run] = None
        self.places = (*self.places, run.record.place)
        return run

    def _finish(self, run: Run) -> None:
        self._open.pop(run, None)
        if not run.record.is_closed:
            run.record.add("run_finished", **{key: run.summary[key] for key in CLOSED})
            run.record.finish({"run_id": run.record.run_id, **run.summary}, str(run.summary["answer"]))


CHANGED = "What was asked about has changed since: nothing was done, ask again."


def fingerprint(question: Question) -> str:
    """Return a digest that is the same for the same act on the same content."""
    told = "\0".join([question.wanted, question.digest, question.exact])
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


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
        return self._answers.get(fingerprint(question)) or self._then.ask(question)


class CallRecord(ExitStack):
    """One call on the record: the run it belongs to from its first event to its end, and its questions."""

    def __init__(self, approver: Approver, recording: Recording | None, guard: Guard | None = None) -> None:
        super().__init__()
        self._approver = approver
        self._recording = recording
        self.guard = guard
        self._run: Run | None = None
        self.answers: list[tuple[Question, Answer]] = []

    @property
    def run(self) -> Run:
        """The run, which is begun if nothing was written down yet, and stays open until the call is over."""
        if self._run is None:
            assert self._recording is not None
            self._run = self.enter_context(self._recording.held())
        return self._run

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run, if there is one."""
        if self._recording is not None:
            self.run.record.add(type_, **data)

    def guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do something with the leave of the guard, if there is one."""
        if self.guard is None:
            return do()
        return self.guard.act(kind, name, said, do, record=self.run.record)

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
        self.answers.append((question, answer))
        return answer

    def _asked(self, question: Question) -> Answer:
        try:
            return self._approver.ask(question)
        except (Deferred, VademecumError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever an approver raises, it is not a yes
            return Answer("reject", f"the question could not be put ({error})", seen=False, absent=True)


def record_of(  # noqa: PLR0913 - what belongs to a call
    seen: Observation,
    parameters: Mapping[str, Any],
    *,
    number: int,
    agent: str,
    started: float,
    seconds: float = 0.0,
    skill: Skill | None = None,
    decision: Decision | None = None,
    asked: Sequence[Decided] = (),
    approved_by: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the event for one call: who called, when, what the rules said, what came of it."""
    facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
    return {
        "call": number,
        "tool": seen.tool,
        "risk": risk_of(seen.tool),
        "agent": agent,
        "skill": None if skill is None else skill.name,
        "skill_id": None if skill is None else skill.skill_id,
        "parameters": dict(parameters),
        "started": started,
        "seconds": seconds,
        "decision": None if decision is None else decision.to_json(),
        "asked": [
            {
                "permission": request.permission,
                "resources": list(request.resources),
                "effect": decided.effect.name.lower(),
            }
            for request, decided in asked
        ],
        "approved_by": approved_by,
        "ok": seen.ok,
        "code": seen.code,
        "result": {**facts, "text": seen.text, "files": list(seen.files)},
        "hashes": {key: seen.facts[key] for key in _HASHES if key in seen.facts},
    }
