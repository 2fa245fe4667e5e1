"""Keep a call whose question was put off until it is answered, also by another process."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vademecum.errors import FileRefused, VademecumError
from vademecum.files import read_own, write_atomic
from vademecum.policy.approval import Answer, Question
from vademecum.policy.base import Origin
from vademecum.session.recording import CallRecord, fingerprint
from vademecum.tools import calls

if TYPE_CHECKING:
    from vademecum.session.session import Session

MAX_PENDING_BYTES = 64 * 1024 * 1024
PENDING = "deferred"
KEY_BYTES = 32

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


def keep(asked: CallRecord, question: Question, call: calls.Call, for_skill: str | None) -> None:
    """Keep a call below the record of its run, readable by its owner only."""
    session = asked.session
    pending = Pending(
        calls.NAMES[type(call)],
        calls.said(call),
        session.agent,
        asked.origin,
        fingerprint(question),
        question.digest,
        question.exact,
        question.wanted,
        for_skill,
        tuple(skill.location for skill in session.active),
        {fingerprint(earlier): given for earlier, given in asked.answers},
    )
    data, run = msgspec.json.encode(pending), asked.run.record.place
    signed = _Signed(_mac(_key_of(session), run.name, question.id, data), msgspec.Raw(data))
    write_atomic(run / PENDING / f"{question.id}.json", msgspec.json.encode(signed), mode=0o600)


def claimed(session: Session, runs: Path, question_id: str) -> Pending:
    """Return the call that waits for this answer; one that we did not write is none.

    Each call can be claimed once.
    """
    key = _key_of(session)
    found = runs.glob(f"*/{PENDING}/{question_id}.json") if _ID.fullmatch(question_id) else iter(())
    for file in sorted(found, reverse=True):  # the latest run first
        with contextlib.suppress(OSError, FileRefused, msgspec.MsgspecError, RecursionError):
            signed = msgspec.json.decode(read_own(file, cap=MAX_PENDING_BYTES), type=_Signed)
            data = bytes(signed.pending)
            if hmac.compare_digest(signed.mac, _mac(key, file.parent.parent.name, question_id, data)):
                break
    else:
        raise VademecumError(f"No call waits for an answer to {question_id[:40]!r}.", code="no-question")
    pending = msgspec.json.decode(data, type=Pending)
    if pending.agent != session.agent:
        raise VademecumError("Another agent asked that question.", code="no-question")
    try:
        os.unlink(file)
    except OSError as error:
        raise VademecumError("That question was answered already.", code="no-question") from error
    return pending


def _key_of(session: Session) -> bytes:
    """Return the key that proves what a session of this user wrote; it is made when it is first needed."""
    directory = session.place.grants.parent
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
    return hmac.digest(key, b"\0".join([run_id.encode(), question_id.encode(), data]), "sha256").hex()
