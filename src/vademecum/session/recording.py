"""The runs of one session, and the calls that wait for an answer, possibly given in another process."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import keep_newest, read_own, writable, write_atomic
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Origin
from vademecum.runs.record import Record
from vademecum.tools import calls

if TYPE_CHECKING:
    from vademecum.session.act import Act
    from vademecum.session.session import Session

MAX_PENDING = 1000
MAX_PENDING_BYTES = 64 * 1024 * 1024
CLOSED: Mapping[str, Any] = {"status": "done", "stop_reason": "closed", "answer": "", "stats": {}}


class Run:
    """One run of a conversation: its record and the numbers of its calls."""

    def __init__(self, record: Record, *, asked_for: bool) -> None:
        self.record = record
        self.asked_for = asked_for  # by `begin`; any other run begins with its first event
        self.numbers = itertools.count(1)
        self.started = time.time()
        self.calls = 0
        self.summary = CLOSED


class Recording:
    """Begins and ends runs. A record stays open until its last call is done, even if the run ends before."""

    def __init__(self, start: Callable[[], Record], *, is_on: bool = True) -> None:
        self._start = start
        self.is_on = is_on
        self._lock = threading.RLock()
        self.now: Run | None = None  # the current run
        self.last: Run | None = None  # the run before it
        self.places: tuple[Path, ...] = ()  # of the records of this conversation

    def begin(self, start: Callable[[], Record]) -> Run:
        """Begin a run for the caller; a session has one at a time."""
        with self._lock:
            if self.now is not None and self.now.asked_for:
                text = "A run is in progress in this session: wait for its end, or begin another session."
                raise VademecumError(text, code="busy")
            self.end(CLOSED)
            return self._begun(start, asked_for=True)

    @contextmanager
    def held(self, *, by_person: bool) -> Iterator[Run]:
        """Yield the current run, and keep its record open meanwhile.

        Without one, the act of a person belongs to the last run; anything else begins a new run.
        """
        with self._lock:
            last = self.last if by_person and self.last and self.last.record.place.is_dir() else None
            run = self.now or last or self._begun(self._start, asked_for=False)
            run.record.open()
            run.calls += 1
        try:
            yield run
        finally:
            with self._lock:
                run.calls -= 1
                if run is not self.now and not run.calls:
                    run.record.finish(run.summary)

    def end(self, summary: Mapping[str, Any], *, at_once: bool = False) -> None:
        """End the run after its last call, or ``at_once`` if the process is about to end."""
        with self._lock:
            run, self.now = self.now, None
            if run is not None:
                self.last = run
                run.summary = {**summary, "status": "interrupted"} if run.calls and at_once else summary
                if at_once or not run.calls:
                    run.record.finish(run.summary)

    def _begun(self, start: Callable[[], Record], *, asked_for: bool) -> Run:
        run = self.now = Run(start(), asked_for=asked_for)
        self.places = (*self.places, run.record.place)
        return run


CHANGED = "The content changed after the question: nothing was done, ask again."


class Answered:
    """Gives answers that are known already, by fingerprint; other questions go to ``then``.

    The content must be unchanged (``expected``: digest and exact), even if no question comes up again:
    ``Act.check`` is called before anything is done.
    """

    def __init__(self, answers: dict[str, Answer], expected: tuple[str, str], then: Approver) -> None:
        self._answers = answers
        self.expected = expected
        self._then = then

    def ask(self, question: Question) -> Answer:
        """Return the answer, or ask."""
        return self._answers.get(question.fingerprint) or self._then.ask(question)


class Pending(msgspec.Struct, frozen=True):
    """A call that waits for an answer, with everything needed to carry it out later."""

    call: str
    arguments: dict[str, Any]
    agent: str
    origin: Origin
    question: Question
    for_skill: str | None
    active: tuple[str, ...]
    answers: dict[str, Answer]


def _pending_file(session: Session, question_id: str) -> Path:
    """Return the file of a waiting call, which is in the home directory, so no repository can contain one."""
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


def keep_pending(act: Act, question: Question, call: calls.Call, for_skill: str | None) -> None:
    """Keep a call until its question is answered, also by another process."""
    pending = Pending(
        calls.NAMES[type(call)],
        calls.said(call),
        act.session.agent,
        act.origin,
        question,
        for_skill,
        tuple(skill.location for skill in act.session.active),
        act.answers,
    )
    file = _pending_file(act.session, question.id)
    with writable(file.parent):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(file, msgspec.json.encode(pending), mode=0o600)
        keep_newest(file.parent, "*.json", MAX_PENDING)
