"""Approvals in a framework's own way: a call is put off, and done when the framework brings the answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from msgspec import structs

from vademecum.errors import Declined
from vademecum.integrations.toolkit import Toolkit
from vademecum.policy.approval import Answer, Question
from vademecum.session.base import Deferred, Result

DECLINED = "It was declined: do not try it again."


class _PutOff:
    """Puts every question off, under an id that follows from the call: any process can find it again."""

    def __init__(self, question_id: str) -> None:
        self._id = question_id

    def ask(self, question: Question) -> NoReturn:
        """Raise ``Deferred``."""
        raise Deferred(structs.replace(question, id=self._id))


def call_or_ask(
    kit: Toolkit,
    name: str,
    arguments: Mapping[str, Any] | str,
    call_id: str,
    *,
    cancelled: Callable[[], bool] = bool,
) -> Result | Question:
    """Call a tool. If a person must be asked and the toolkit has no approver, return the question."""
    if kit.has_approver:
        return kit.call(name, arguments, cancelled=cancelled)
    try:
        put_off = _PutOff(_question_id(name, arguments, call_id))
        return kit.call(name, arguments, approver=put_off, cancelled=cancelled)
    except Deferred as deferred:
        return deferred.question


def answered(  # noqa: PLR0913 - the call, and its answer
    kit: Toolkit,
    name: str,
    arguments: Mapping[str, Any] | str,
    call_id: str,
    *,
    approved: bool,
    message: str = "",
    cancelled: Callable[[], bool] = bool,
) -> Result | Question:
    """Do a call that was put off, now that a person answered; exactly that call, on the same content.

    A further question of the same call is returned, and so is the question of a call that was not put off.
    """
    question_id = _question_id(name, arguments, call_id)
    answer = Answer("once") if approved else Answer("reject", message)
    try:
        result = kit.session.resume(question_id, answer, approver=_PutOff(question_id), cancelled=cancelled)
    except Deferred as deferred:
        return deferred.question
    except Declined as declined:
        return Result(f"{DECLINED} {declined.told}".rstrip(), "declined", "error")
    if result.code != "no-question":
        return result
    if not approved:
        return Result(f"{DECLINED} {message}".rstrip(), "declined", "error")
    return call_or_ask(kit, name, arguments, call_id, cancelled=cancelled)


def shown(question: Question) -> dict[str, str]:
    """Return what a person should see of a question, as JSON."""
    return {"wanted": question.wanted, "reason": question.decision.reason, "about": question.about}


def _question_id(name: str, arguments: Mapping[str, Any] | str, call_id: str) -> str:
    given = arguments
    if isinstance(arguments, str):
        try:
            given = json.loads(arguments)
        except ValueError:
            given = arguments
    told = json.dumps([name, given, call_id], sort_keys=True, default=str)
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:32]
