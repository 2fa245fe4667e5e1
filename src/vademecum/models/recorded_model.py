"""Record the replies of any model once, and replay them any number of times."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from vademecum.errors import FileRefused, ModelReplyWrong
from vademecum.files import read_capped
from vademecum.masking import Secrets
from vademecum.models.base import Message, Model, OnText, Reply, Wire, wire_of
from vademecum.runs.record import masked

MAX_TAPE_BYTES = 256 * 1024 * 1024

# A recording must be valid on later days.
_DATE = re.compile(r"^date: \d{4}-\d\d-\d\d$", re.MULTILINE)
_ANEW = (
    "delete the file and record it with the model itself, by `vade eval run --model KIND:NAME --record TAPE` "
    "or `models.recorded(tape, model)`."
)


class _Taped(msgspec.Struct):
    """One line of a recording: the request, without secrets, and the reply."""

    key: str
    sent: list[Message]
    reply: Reply


class Recorded:
    """Wraps a model; asks it only for replies that are not recorded, and records them."""

    def __init__(self, tape: Path, inner: Model | None = None, *, secrets: Secrets | None = None) -> None:
        self.name = f"recorded:{inner.name if inner else tape.name}"
        self._tape = tape
        self._inner = inner
        self._secrets = secrets or Secrets(os.environ)
        try:
            found = msgspec.json.Decoder(_Taped).decode_lines(read_capped(tape, cap=MAX_TAPE_BYTES))
        except FileNotFoundError:
            found = []
        except (OSError, FileRefused, msgspec.DecodeError) as error:
            raise ModelReplyWrong(f"The tape {tape} cannot be read ({error}): {_ANEW}") from error
        self._known = {taped.key: taped for taped in found}
        sent = [message for taped in found for message in taped.sent]
        native = any(message.tools for message in sent)
        self.wire: Wire = wire_of(inner) if inner is not None else "tools" if native else "json"
        ranked = any("\nranked first by search: " in message.content for message in sent)
        self.needs_ranking = ranked if inner is None else getattr(inner, "needs_ranking", False)

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Return the recorded reply, or ask the model and record its reply."""
        texts = [_DATE.sub("date: any", masked(message.content, self._secrets)) for message in messages]
        sent = [structs.replace(m, content=text) for m, text in zip(messages, texts, strict=True)]
        key = hashlib.sha256(msgspec.json.encode([sent, schema], order="sorted")).hexdigest()
        found = self._known.get(key)
        if found is not None:
            if on_text is not None:
                on_text(found.reply.text)
            return found.reply
        if self._inner is None:
            to_this = " to this" if self._known else ""
            raise ModelReplyWrong(f"The tape {self._tape} has no reply{to_this}: {_ANEW}")
        reply = self._inner.reply(messages, schema=schema, on_text=on_text)
        calls = tuple(
            structs.replace(call, arguments=masked(call.arguments, self._secrets)) for call in reply.calls
        )
        text = masked(reply.text, self._secrets)
        taped = self._known[key] = _Taped(key, sent, structs.replace(reply, text=text, calls=calls))
        self._tape.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._tape, flags, 0o600), "ab") as tape:
            tape.write(msgspec.json.encode(taped) + b"\n")
        return reply
