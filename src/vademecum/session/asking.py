"""Ask a person: record the question, and keep a deferred one until it is answered."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_own, write_atomic
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Origin
from vademecum.session.base import Deferred, Guard, Kind
from vademecum.session.recording import Run

MAX_PENDING_BYTES = 64 * 1024 * 1024
PENDING = "deferred"
KEY_BYTES = 32

T = TypeVar("T")

_ID = re.compile(r"[0-9a-f]{32}")


class Pending(msgspec.Struct, frozen=True):
    """A call that waits for an answer: all that is needed to do exactly that call later."""

    call: str
    arguments: dict[str, Any]
    agent: str
    origin: Origin
    fingerprint: str
    digest: str
    exact: str
    wanted: str
    for_skill: str | None = None
    active: tuple[str, ...] = ()
    answers: dict[str, Answer] = {}


class _Signed(msgspec.Struct, frozen=True):
    """A pending call with the proof that this user's session wrote it, for this run."""

    mac: str
    pending: msgspec.Raw


def fingerprint(question: Question) -> str:
    """Return a digest that is the same for the same act on the same content."""
    told = "\0".join([question.wanted, question.digest, question.exact])
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


def keep(run: Path, question_id: str, pending: Pending, *, key: bytes) -> None:
    """Keep a call below the record of its run, readable by its owner only."""
    data = msgspec.json.encode(pending)
    signed = _Signed(_mac(key, run.name, question_id, data), msgspec.Raw(data))
    write_atomic(run / PENDING / f"{question_id}.json", msgspec.json.encode(signed), mode=0o600)


def find(runs: Path, question_id: str, *, key: bytes) -> tuple[Path, Pending]:
    """Return the call that waits for this answer, and its file; one that we did not write is none."""
    found = runs.glob(f"*/{PENDING}/{question_id}.json") if _ID.fullmatch(question_id) else iter(())
    for file in sorted(found, reverse=True):  # the latest run first
        with contextlib.suppress(OSError, FileRefused, msgspec.MsgspecError, RecursionError):
            signed = msgspec.json.decode(read_own(file, cap=MAX_PENDING_BYTES), type=_Signed)
            data = bytes(signed.pending)
            if hmac.compare_digest(signed.mac, _mac(key, file.parent.parent.name, question_id, data)):
                return file, msgspec.json.decode(data, type=Pending)
    raise VademecumError(f"No call waits for an answer to {question_id[:40]!r}.", code="no-question")


def claimed(runs: Path, question_id: str, *, agent: str, home: Path) -> Pending:
    """Return the call that waits for this answer; each call can be claimed once."""
    file, pending = find(runs, question_id, key=key_of(home))
    if pending.agent != agent:
        raise VademecumError("Another agent asked that question.", code="no-question")
    if not _take(file):
        raise VademecumError("That question was answered already.", code="no-question")
    return pending


def _take(file: Path) -> bool:
    """Take a call and return True; False if another process has taken it already."""
    taken = file.with_suffix(".taken")
    try:
        os.rename(file, taken)
        os.unlink(taken)
    except OSError:
        return False
    return True


def key_of(directory: Path) -> bytes:
    """Return the key that proves what a session of this user wrote; it is made when it is first needed."""
    file = directory / "session.key"
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(os.urandom(KEY_BYTES))
        key = read_own(file, cap=KEY_BYTES)
    except OSError as error:
        text = f"The key of the sessions in {directory} cannot be used ({error.strerror}): make it readable."
        raise VademecumError(text, code="config") from error
    if len(key) < KEY_BYTES:
        raise VademecumError(f"{file} is damaged: remove it.", code="config")
    return key


def _mac(key: bytes, run_id: str, question_id: str, data: bytes) -> str:
    return hmac.new(
        key, b"\0".join([run_id.encode(), question_id.encode(), data]), hashlib.sha256
    ).hexdigest()


class Answered:
    """Gives the answers that are known already; another question goes to ``then``.

    What was asked about must be what it was: ``check`` is called before anything is done, whether or not a
    question comes up again.
    """

    def __init__(self, pending: Pending, answer: Answer, then: Approver) -> None:
        self.answers = {**pending.answers, pending.fingerprint: answer}
        self._expected = pending.digest, pending.exact
        self._then = then

    def check(self, digest: str, exact: str) -> None:
        """Raise if what the call is about is not what it was."""
        if (digest, exact) != self._expected:
            raise VademecumError(
                "What was asked about has changed since: nothing was done, ask again.", code="changed"
            )

    def ask(self, question: Question) -> Answer:
        """Return the answer, or ask."""
        return self.answers.get(fingerprint(question)) or self._then.ask(question)


class CallRecord:
    """One call on the record: the run it belongs to from its first event to its end, and its questions."""

    def __init__(
        self,
        approver: Approver,
        held: Callable[[], AbstractContextManager[Run]] | None,
        guard: Guard | None = None,
    ) -> None:
        self._approver = approver
        self._held = held
        self._guard = guard
        self._stack = ExitStack()
        self._run: Run | None = None
        self.answers: dict[str, Answer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def run(self) -> Run:
        """The run, which is begun if nothing was written down yet, and stays open until the call is over."""
        if self._run is None:
            assert self._held is not None
            self._run = self._stack.enter_context(self._held())
        return self._run

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run, if there is one."""
        if self._held is not None:
            self.run.record.add(type_, **data)

    def guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do something with the leave of the guard, if there is one."""
        if self._guard is None:
            return do()
        return self._guard.act(kind, name, said, do, record=self.run.record)

    def check(self, digest: Callable[[], str], exact: Callable[[], str] = str) -> None:
        """Raise if this is a call that was put off and what it is about has changed since."""
        if isinstance(self._approver, Answered):
            self._approver.check(digest(), exact())

    def ask(self, question: Question) -> Answer:
        """Ask, and write down what was asked and what was answered; who cannot be asked has not said yes."""
        self.write(
            "approval_asked",
            id=question.id,
            wanted=question.wanted,
            reason=question.decision.reason,
            about=question.about,
        )
        try:
            answer = self._approver.ask(question)
        except Exception as error:
            if isinstance(error, Deferred | VademecumError):
                self._answered(question, "deferred" if isinstance(error, Deferred) else "interrupted")
                raise
            answer = Answer("reject", f"the question could not be put ({error})", seen=False, absent=True)
        except BaseException:
            self._answered(question, "interrupted")
            raise
        self._answered(question, answer.verdict, answer.message, answer.scope)
        self.answers[fingerprint(question)] = answer
        return answer

    def _answered(
        self, question: Question, verdict: str, message: str = "", scope: str | None = None
    ) -> None:
        scope = scope if verdict == "always" else None
        self.write("approval_answered", id=question.id, verdict=verdict, scope=scope, message=message)
