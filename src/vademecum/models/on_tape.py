"""Any model, with its replies kept: recorded once, replayed as often as wanted."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from vademecum.errors import FileRefused, ModelReplyWrong
from vademecum.files import read_capped
from vademecum.masking import Secrets
from vademecum.models.base import Message, Model, OnText, Reply

Mode = Literal["record", "replay", "strict"]

MAX_TAPE_BYTES = 256 * 1024 * 1024
MAX_DIFFERENCE_LINES = 20


class _Taped(msgspec.Struct):
    """One line of a tape: what was sent, without secrets, and what came back."""

    key: str
    sent: list[Message]
    reply: Reply


class Recorded:
    """Wraps a model. ``record`` asks it and keeps the reply; ``replay`` asks for what is not on the tape;
    ``strict`` never asks, and says what differs.
    """

    def __init__(
        self, tape: Path, inner: Model | None = None, *, mode: Mode = "replay", secrets: Secrets | None = None
    ) -> None:
        self.name = f"recorded:{inner.name if inner else tape.name}"
        self._tape = tape
        self._inner = inner
        self._mode = mode
        self._secrets = secrets or Secrets(os.environ)
        self._known: dict[str, _Taped] = {} if mode == "record" else _read(tape)

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """The kept reply, or the model's, which is kept then."""
        sent = [Message(m.role, self._secrets.mask(m.content)) for m in messages]
        key = _key(sent, schema)
        found = self._known.get(key)
        if found is not None:
            if on_text is not None:
                on_text(found.reply.text)
            return found.reply
        if self._mode == "strict" or self._inner is None:
            raise ModelReplyWrong(self._missing(sent))
        reply = self._inner.reply(messages, schema=schema, on_text=on_text)
        kept = Reply(self._secrets.mask(reply.text), reply.usage)
        self._keep(_Taped(key, sent, kept))
        return reply

    def _keep(self, taped: _Taped) -> None:
        self._known[taped.key] = taped
        self._tape.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(taped) + b"\n")
        finally:
            os.close(descriptor)

    def _missing(self, sent: list[Message]) -> str:
        """What was asked for is not on the tape: the nearest that is, and what differs."""
        wanted = _text(sent)
        texts = {key: _text(taped.sent) for key, taped in self._known.items()}
        if not texts:
            return f"The tape {self._tape} holds no reply: record it first."
        nearest = max(texts.values(), key=lambda text: _likeness(text, wanted))
        lines = difflib.unified_diff(
            nearest.splitlines(), wanted.splitlines(), "on the tape", "asked now", n=0
        )
        shown = "\n".join(list(lines)[:MAX_DIFFERENCE_LINES])
        return f"The tape {self._tape} has no reply to this; the nearest differs so:\n{shown}"


def _read(tape: Path) -> dict[str, _Taped]:
    try:
        lines = read_capped(tape, cap=MAX_TAPE_BYTES).splitlines()
        found = [msgspec.json.decode(line, type=_Taped) for line in lines]
    except FileNotFoundError:
        return {}
    except (OSError, FileRefused, msgspec.DecodeError) as error:
        raise ModelReplyWrong(f"The tape {tape} cannot be read ({error}): record it anew.") from error
    return {taped.key: taped for taped in found}


def _key(sent: list[Message], schema: Mapping[str, Any]) -> str:
    text = json.dumps([[(m.role, m.content) for m in sent], schema], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _text(sent: list[Message]) -> str:
    return "\n".join(f"{m.role}: {m.content}" for m in sent)


def _likeness(one: str, other: str) -> float:
    """How many lines two texts share; exact enough to find the nearest, and fast."""
    lines, others = set(one.splitlines()), set(other.splitlines())
    return len(lines & others) / (len(lines | others) or 1)
