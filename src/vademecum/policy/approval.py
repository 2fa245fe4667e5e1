"""Asking: a question that anybody can answer from another thread, and what becomes of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Literal, Protocol

from msgspec import Struct

from vademecum.policy.base import Decision, Request

Verdict = Literal["once", "always", "reject"]
Scope = Literal["run", "project", "user"]

# A permission, a resource, the agent and the digest of the skill.
Key = tuple[str, str, str, str]


def keys_of(requests: Iterable[Request], digest: str) -> set[Key]:
    """Return what an answer to some requests applies to, with the content that the skill has now."""
    return {(r.permission, resource, r.agent, digest) for r in requests for resource in r.resources}


class Question(Struct, frozen=True):
    """A question to a person: the requests that need an answer, the strictest decision, and its details.

    ``about`` describes in several lines what will happen: the command, the script, a difference, the risk.
    ``digest`` is the skill's digest now, ``exact`` everything else that a later answer depends on.
    """

    id: str
    requests: tuple[Request, ...]
    decision: Decision
    about: str = ""
    digest: str = ""
    exact: str = ""
    conversation: str = ""

    @property
    def wanted(self) -> str:
        """Return the requests in one line."""
        return "; ".join(f"{request.permission} {', '.join(request.resources)}" for request in self.requests)

    @property
    def fingerprint(self) -> str:
        """A digest that is the same for the same act on the same content."""
        told = "\0".join([self.wanted, self.digest, self.exact])
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()

    @property
    def keys(self) -> set[Key]:
        """Return what an answer applies to."""
        return keys_of(self.requests, self.digest)


class Answer(Struct, frozen=True):
    """The answer to a question: "always" says for how long and where; a rejection may have a message.

    ``seen`` says whether a person looked at this very question, ``absent`` that no person was there.
    ``message`` is for the model, ``advice`` for people.
    """

    verdict: Verdict
    message: str = ""
    scope: Scope = "project"
    seconds: float | None = None
    seen: bool = True
    absent: bool = False
    advice: str = ""


_CLOSED = Answer("reject", "nobody answers any more")


class Approver(Protocol):
    """Answers questions. It never answers on a person's behalf: no answer is a rejection."""

    def ask(self, question: Question) -> Answer:
        """Get an answer, however long it takes."""
        ...


class Nobody:
    """Rejects every question at once; people get the command that would not need to ask.

    ``message`` is for the model, ``advice`` for people if ``replay`` is empty.
    """

    def __init__(
        self, replay: str = "", *, message: str = "nobody is there to ask", advice: str = ""
    ) -> None:
        self._message = message
        self._advice = f"to allow it this once: {replay}" if replay else advice

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - whatever it is
        """Reject it.

        >>> from vademecum.policy.base import Effect
        >>> request = Request("skill", ("x",))
        >>> question = Question("1", (request,), Decision(Effect.ASK, None, "skill", "x"))
        >>> Nobody(replay="vade show x --yes").ask(question).advice
        'to allow it this once: vade show x --yes'
        """
        return Answer("reject", self._message, seen=False, absent=True, advice=self._advice)


class Consent:
    """Approves everything, because the user said so beforehand (``--yes``)."""

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - whatever it is
        """Allow it this once."""
        return Answer("once", seen=False)


class Desk:
    """Keeps questions until they are answered, from any thread.

    "Always" also answers the waiting questions that it covers. Closing the desk rejects all of them, and
    every later one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Question, Future[Answer]]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, question: Question) -> Answer:
        """Wait for the answer."""
        with self._lock:
            if self._closed:
                return _CLOSED
            answered: Future[Answer] = Future()
            self._waiting[question.id] = question, answered
        return answered.result()

    def waiting(self) -> list[Question]:
        """Return the questions that have no answer yet, the oldest first."""
        with self._lock:
            return [question for question, _ in self._waiting.values()]

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer a question; says whether it was waiting."""
        with self._lock:
            if question_id not in self._waiting:
                return False
            question, answered = self._waiting.pop(question_id)
            answered.set_result(answer)
            for other, answered in [*self._waiting.values()] if answer.verdict == "always" else ():
                here = other.conversation == question.conversation or answer.scope != "run"
                if here and other.keys <= question.keys:
                    del self._waiting[other.id]
                    answered.set_result(answer)
            return True

    def close(self) -> None:
        """Reject everything that waits, and whatever still comes."""
        with self._lock:
            self._closed = True
            for _, answered in self._waiting.values():
                answered.set_result(_CLOSED)
            self._waiting.clear()
