"""Parts that the adapters share: the error for a missing package, and approvals in a framework's own way."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from msgspec import structs

from vademecum.errors import Declined
from vademecum.integrations.toolkit import Toolkit
from vademecum.policy.approval import Answer, Question
from vademecum.session.base import Deferred, Result


def missing(extra: str, error: ImportError) -> ImportError:
    """Return an error that names the command that installs what is missing.

    >>> print(missing("x", ImportError(name="x")))
    x is not installed: pip install 'vademecum[x]', or pip install '.[x]' in a checkout.
    """
    how = f"pip install 'vademecum[{extra}]', or pip install '.[{extra}]' in a checkout"
    return ImportError(f"{error.name} is not installed: {how}.", name=error.name)


class _PutOff:
    """Puts every question off, under an id that follows from the call: any process can find it again."""

    def __init__(self, question_id: str) -> None:
        self._id = question_id

    def ask(self, question: Question) -> NoReturn:
        """Raise ``Deferred``."""
        raise Deferred(structs.replace(question, id=self._id))


def call_or_ask(  # noqa: PLR0913 - the call, and its answer
    kit: Toolkit,
    name: str,
    arguments: Mapping[str, Any] | str,
    call_id: str,
    answer: Answer | None = None,
    *,
    cancelled: Callable[[], bool] = bool,
) -> Result | Question:
    """Call a tool. If a person must be asked and the toolkit has no approver, return the question.

    With the ``answer`` to it, do exactly that call if its content is unchanged. A further question of the
    same call is returned, and so is the question of a call that was not put off.
    """
    question_id = _question_id(name, arguments, call_id)
    put_off = _PutOff(question_id)
    try:
        if answer is not None:
            result = kit.session.resume(question_id, answer, approver=put_off, cancelled=cancelled)
            if result.code != "no-question":
                return result
            if answer.verdict == "reject":
                return _declined(answer.message)
        approver = None if kit.has_approver else put_off
        return kit.call(name, arguments, approver=approver, cancelled=cancelled)
    except Deferred as deferred:
        return deferred.question
    except Declined as declined:
        if answer is None:
            raise  # by the toolkit's approver, which ends the run
        return _declined(declined.told)


def told(result: Result) -> str:
    """Return the text for the model of a framework whose tools cannot fail."""
    return result.text if result.ok else f"Error: {result.text}"


def yes_or_no(said: object) -> Answer:
    """Return the answer that a framework brings: yes only for ``True``; a text is a reason for a no."""
    return Answer("once") if said is True else Answer("reject", said if isinstance(said, str) else "")


def shown(question: Question) -> dict[str, str]:
    """Return what a person should see of a question, as JSON."""
    return {"wanted": question.wanted, "reason": question.decision.reason, "about": question.about}


def _declined(reason: str) -> Result:
    return Result(f"It was declined: do not try it again. {reason}".rstrip(), "declined", "error")


def _question_id(name: str, arguments: Mapping[str, Any] | str, call_id: str) -> str:
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    asked = json.dumps([name, arguments, call_id], sort_keys=True, default=str)
    return hashlib.sha256(asked.encode("utf-8", "replace")).hexdigest()[:32]
