"""Questions to a person: on the record, and if they are put off, kept until somebody answers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_own, write_atomic
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Origin
from vademecum.runs.record import Record
from vademecum.session.base import Deferred

MAX_PENDING_BYTES = 64 * 1024 * 1024
PENDING = "deferred"

_ID = re.compile(r"[0-9a-f]{32}")


class Pending(msgspec.Struct, frozen=True):
    """A call that waits for an answer: all that is needed to do exactly that call later."""

    call: str
    arguments: dict[str, Any]
    agent: str
    origin: Origin
    fingerprint: str
    active: tuple[str, ...] = ()
    answers: dict[str, Answer] = {}


def fingerprint(question: Question) -> str:
    """Return a digest that is the same for the same act on the same content."""
    told = "\0".join([question.wanted, question.digest, question.exact])
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


def keep(run: Path, question_id: str, pending: Pending) -> None:
    """Keep a call below the record of its run, readable by its owner only."""
    write_atomic(run / PENDING / f"{question_id}.json", msgspec.json.encode(pending), mode=0o600)


def take(runs: Path, question_id: str, *, agent: str) -> Pending:
    """Return the call of this agent that waits for the answer; it can be taken once."""
    found = runs.glob(f"*/{PENDING}/{question_id}.json") if _ID.fullmatch(question_id) else iter(())
    file = next(found, None)
    if file is None:
        raise VademecumError(f"No call waits for an answer to {question_id[:40]!r}.", code="no-question")
    try:
        pending = msgspec.json.decode(read_own(file, cap=MAX_PENDING_BYTES), type=Pending)
        if pending.agent == agent:
            os.rename(file, file.with_suffix(".taken"))  # of two who answer at once, one gets it
            return pending
    except (OSError, FileRefused, msgspec.DecodeError) as error:
        text = f"The call that waits for an answer to {question_id!r} cannot be read ({error})."
        raise VademecumError(text, code="no-question") from error
    raise VademecumError("Another agent asked that question.", code="no-question")


class Answered:
    """Gives the answers that are known already; another question goes to ``then``.

    The question that was put off must come up again as it was. If it does not, something has changed since.
    """

    def __init__(self, pending: Pending, answer: Answer, then: Approver) -> None:
        self.answers = {**pending.answers, pending.fingerprint: answer}
        self._waiting = pending.fingerprint
        self._then = then

    def ask(self, question: Question) -> Answer:
        """Return the answer, or raise if the question is not the one that was answered."""
        key = fingerprint(question)
        if key in self.answers:
            self._waiting = "" if key == self._waiting else self._waiting
            return self.answers[key]
        if self._waiting:
            raise VademecumError(
                "What was asked about has changed since: nothing was done, ask again.", code="changed"
            )
        return self._then.ask(question)


class OnRecord:
    """Asks an approver, and writes the question and the answer into the record of a run.

    ``held`` gives the record, and keeps it open as long as the question waits.
    """

    def __init__(self, approver: Approver, held: Callable[[], AbstractContextManager[Record | None]]) -> None:
        self._approver = approver
        self.held = held

    @property
    def answers(self) -> dict[str, Answer]:
        """The answers to earlier questions of the same call, if it is one that was put off."""
        return self._approver.answers if isinstance(self._approver, Answered) else {}

    def ask(self, question: Question) -> Answer:
        """Ask, and write down what was asked and what was answered."""
        with self.held() as record:
            return self._approver.ask(question) if record is None else self._asked(question, record)

    def _asked(self, question: Question, record: Record) -> Answer:
        record.add(
            "approval_asked",
            id=question.id,
            wanted=question.wanted,
            reason=question.decision.reason,
            about=question.about,
        )
        try:
            answer = self._approver.ask(question)
        except BaseException as error:
            verdict = "deferred" if isinstance(error, Deferred) else "interrupted"
            record.add("approval_answered", id=question.id, verdict=verdict, message="")
            raise
        record.add(
            "approval_answered",
            id=question.id,
            verdict=answer.verdict,
            scope=answer.scope if answer.verdict == "always" else None,
            message=answer.message,
        )
        return answer
