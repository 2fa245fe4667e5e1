"""Asking: a question that anybody can answer from another thread, and what becomes of it."""

from __future__ import annotations

import threading
from typing import Literal, Protocol

from msgspec import Struct

from vademecum.policy.base import Decision, Request

Verdict = Literal["once", "always", "reject"]


class Question(Struct, frozen=True):
    """What is asked: the request, the rule that asks, and what the person should see before answering."""

    id: str
    request: Request
    decision: Decision
    about: str = ""


class Answer(Struct, frozen=True):
    """What was answered; a rejection may carry a message for whoever asked."""

    verdict: Verdict
    message: str = ""


class Approver(Protocol):
    """Answers questions. It never answers on a person's behalf: no answer is a rejection."""

    def ask(self, question: Question) -> Answer:
        """Get an answer, however long it takes."""
        ...


class Nobody:
    """Is not there: every question is rejected at once."""

    def ask(self, question: Question) -> Answer:
        """Reject it.

        >>> from vademecum.policy.base import Effect
        >>> request = Request("skill", ("x",))
        >>> Nobody().ask(Question("1", request, Decision(Effect.ASK, None, "skill", "x"))).verdict
        'reject'
        """
        return Answer("reject", f"{question.request.permission} needs approval, and nobody is there to ask")


class Desk:
    """Questions wait here until somebody answers them, from any thread.

    "Always" also answers the waiting questions that ask for the same. Closing the desk rejects all of them,
    and every later one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Question] = {}
        self._answers: dict[str, Answer] = {}
        self._changed = threading.Condition()
        self._closed = False

    def ask(self, question: Question) -> Answer:
        """Wait for the answer."""
        with self._changed:
            self._waiting[question.id] = question
            self._changed.notify_all()
            while question.id not in self._answers and not self._closed:
                self._changed.wait()
            self._waiting.pop(question.id, None)
            return self._answers.pop(question.id, Answer("reject", "nobody answers any more"))

    def waiting(self) -> list[Question]:
        """The questions that have no answer yet, the oldest first."""
        with self._changed:
            return [question for question in self._waiting.values() if question.id not in self._answers]

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer a question; says whether it was waiting."""
        with self._changed:
            question = self._waiting.get(question_id)
            if question is None or question_id in self._answers:
                return False
            self._answers[question_id] = answer
            if answer.verdict == "always":
                for other in self._waiting.values():
                    if _same(other.request, question.request):
                        self._answers.setdefault(other.id, answer)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Reject everything that waits, and whatever still comes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _same(one: Request, other: Request) -> bool:
    return (one.permission, set(one.resources), one.skill) == (
        other.permission,
        set(other.resources),
        other.skill,
    )
