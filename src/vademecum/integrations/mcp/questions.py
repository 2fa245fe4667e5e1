"""Ask for approvals through the client, with a form for its user, in both ways of the protocol.

Clients of the handshake versions are asked while the call waits. Since 2026-07-28 the server replies to a
call with the question, and the client repeats the call with the answer. The rules then ask again, so that an
answer counts only for the same act on the same content.
"""

from __future__ import annotations

import hashlib
import json

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from vademecum.policy.approval import Answer, Question
from vademecum.session.base import Deferred
from vademecum.skill.text import escaped_lines, visible

MAX_SHOWN_CHARS = 6000
PATIENCE_SECONDS = 600.0

_ANSWERS = {
    "allow once": Answer("once"),
    "allow in this session": Answer("always", scope="run"),
    "always allow in this project": Answer("always", scope="project"),
}
_DECLINE = "decline"
_ENDED = {"decline": "declined", "cancel": "closed"}
FORM: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "May it run?",
            "enum": [_DECLINE, *_ANSWERS],
            "default": _DECLINE,
        },
        "reason": {"type": "string", "title": "What to tell the model, if you decline"},
    },
    "required": ["answer"],
}


class Unanswered(Deferred):
    """Raised for a question that the client must ask its user before it repeats the call."""

    kept = False

    def __init__(self, question: Question, key: str) -> None:
        super().__init__(question)
        self.key = key

    def result(self) -> types.InputRequiredResult:
        """Return the reply that asks the client for an answer."""
        params = types.ElicitRequestFormParams(message=_words(self.question), requested_schema=FORM)
        return types.InputRequiredResult(input_requests={self.key: types.ElicitRequest(params=params)})


class WaitingApprover:
    """Ask through the connection while the call waits; anything but a clear approval is a refusal."""

    def __init__(self, session: ServerSession, request_id: types.RequestId | None) -> None:
        self._session = session
        self._request_id = request_id

    def ask(self, question: Question) -> Answer:
        """Send the question to the client from the thread of the call, and wait ``PATIENCE_SECONDS``."""
        try:
            return _answer(anyio.from_thread.run(self._form, question))
        except MCPError as error:
            said = f"the client could not ask ({error.message[:200]})"
        except ValidationError:
            said = "the client did not answer with a form"
        except TimeoutError:
            said = f"nobody answered within {PATIENCE_SECONDS:.0f} seconds"
        return Answer("reject", said, seen=False, absent=True)

    async def _form(self, question: Question) -> types.ElicitResult:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await self._session.elicit_form(_words(question), FORM, self._request_id)


class RepeatedCallApprover:
    """Use the answers that came with a call; send any other question back to the client."""

    def __init__(self, params: types.CallToolRequestParams) -> None:
        self._called = json.dumps([params.name, params.arguments], sort_keys=True)
        self._answers = params.input_responses or {}

    def ask(self, question: Question) -> Answer:
        """Return the answer that came with the call; raise ``Unanswered`` if there is none."""
        # The key is the same for the same act of the same call on the same content.
        told = "\0".join([question.fingerprint, self._called])
        key = f"approval-{hashlib.sha256(told.encode('utf-8', 'replace')).hexdigest()}"
        found = self._answers.get(key)
        if isinstance(found, types.ElicitResult):
            return _answer(found)
        raise Unanswered(question, key)


def _answer(result: types.ElicitResult) -> Answer:
    content = result.content or {}
    if result.action == "accept" and (found := _ANSWERS.get(str(content.get("answer")))) is not None:
        return found
    reason = content.get("reason")
    said = "the answer was no" if result.action == "accept" else f"the form was {_ENDED[result.action]}"
    return Answer("reject", str(reason)[:1000] if reason else said)


def _words(question: Question) -> str:
    """Return the question as text, without characters that could disguise it."""
    about = escaped_lines(question.about)
    if len(about) > MAX_SHOWN_CHARS:
        about = f"{about[:MAX_SHOWN_CHARS]}\n… (the rest is not shown)"
    head = f"{visible(question.wanted)}\nasked because of {visible(question.decision.reason)}"
    return f"{head}\n\n{about}"
