"""Ask for approval: questions, their answers, and approvers."""

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
    """Return the keys that an answer to some requests covers, with the skill's current digest."""
    return {(r.permission, resource, r.agent, digest) for r in requests for resource in r.resources}


class Question(Struct, frozen=True):
    """A question to a person: the requests that need an answer, the strictest decision, and details.

    ``about`` describes in several lines what will happen: the command, the script, a diff, the risk.
    ``digest`` is the skill's current digest, ``exact`` everything else that a later answer depends on.
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
        """A digest of the act and its content."""
        told = "\0".join([self.wanted, self.digest, self.exact])
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()

    @property
    def keys(self) -> set[Key]:
        """Return the keys that an answer covers."""
        return keys_of(self.requests, self.digest)


class Answer(Struct, frozen=True):
    """The answer to a question: "always" has a duration and a scope; a rejection can have a message.

    ``seen`` is true if a person looked at this question, ``absent`` if no person was available.
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
    """Answers questions. It never approves on its own: no answer is a rejection."""

    def ask(self, question: Question) -> Answer:
        """Return the answer, however long it takes."""
        ...


class Nobody:
    """Rejects every question at once; tells people the command that would not need to ask.

    ``message`` is for the model, ``advice`` for people if ``replay`` is empty.
    """

    def __init__(
        self, replay: str = "", *, message: str = "nobody is there to ask", advice: str = ""
    ) -> None:
        self._message = message
        self._advice = f"to allow it this once: {replay}" if replay else advice

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - the interface has it
        """Reject it.

        >>> from vademecum.policy.base import Effect
        >>> request = Request("skill", ("x",))
        >>> question = Question("1", (request,), Decision(Effect.ASK, None, "skill", "x"))
        >>> Nobody(replay="vade show x --yes").ask(question).advice
        'to allow it this once: vade show x --yes'
        """
        return Answer("reject", self._message, seen=False, absent=True, advice=self._advice)


class Consent:
    """Approves everything, because the user did so in advance (``--yes``)."""

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - the interface has it
        """Allow it this once."""
        return Answer("once", seen=False)


class Desk:
    """Keeps questions until another thread answers them.

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
        """Return the unanswered questions, oldest first."""
        with self._lock:
            return [question for question, _ in self._waiting.values()]

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer a question; return whether it was waiting."""
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
        """Reject all waiting and later questions."""
        with self._lock:
            self._closed = True
            for _, answered in self._waiting.values():
                answered.set_result(_CLOSED)
            self._waiting.clear()
