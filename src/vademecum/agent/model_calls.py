"""Asking the model for one reply: retries, continuations, and making the conversation fit."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from vademecum.agent import protocol
from vademecum.agent.budget import Budget, Spent
from vademecum.agent.streaming import Watched
from vademecum.agent.transcript import Transcript
from vademecum.errors import ModelOverflow, ModelUnavailable, ToolsUnsupported
from vademecum.models import sections
from vademecum.models.base import Model, Reply
from vademecum.runs.record import Record
from vademecum.session.session import Session

MAX_WAIT_SECONDS = 30.0
MAX_CONTINUATIONS = 4
MAX_ANSWER_CHARS = 1_000_000

_GO_ON = "The reply was cut at its length limit: go on exactly where it stopped, without repeating anything."


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of patience: with replies that are wrong, with a model that is away, with the same mistake."""

    retries: int = 2
    attempts: int = 3
    same_failures: int = 3
    pause: float = 1.0  # seconds before the second attempt; twice as long before each later one
    keep_model_text: bool = True


@dataclass(slots=True)
class ModelCalls:
    """The calls of the model in one run, each counted and on the record."""

    _model: Model
    _session: Session
    _record: Record
    _said: Transcript
    _budget: Budget
    _settings: Settings
    _sleep: Callable[[float], None] = time.sleep
    spent: Spent = field(default_factory=Spent)

    def whole(self) -> tuple[Reply, Watched] | str:
        """Ask for a reply; a plain answer that was cut is continued where it stopped."""
        record = self._record
        watched = Watched(
            lambda type_: record.add("action_planned", action=type_),
            lambda text: record.passing("answer_piece", text=text),
            lambda: record.passing("answer_withdrawn"),
            is_plain=self._said.wire == "tools",
        )
        text = ""
        for continued in range(MAX_CONTINUATIONS + 1):
            if self.spent.turns >= self._budget.turns:
                return "max_turns"
            if not self._made_room():
                return "max_context"
            self.spent.turns += 1
            try:
                reply = self._replied(watched)
            except ToolsUnsupported as error:
                self._record.add("model_failed", problem=str(error), code=error.code, wait=None)
                self._said.speak("json")
                self.spent.turns -= 1
                return self.whole()
            text += reply.text
            is_lost = bool(reply.calls) or self._said.wire == "json" or len(text) > MAX_ANSWER_CHARS
            if not reply.cut or is_lost or continued == MAX_CONTINUATIONS:
                break
            self._said.said(reply)
            self._said.told(_GO_ON)
        return Reply(text, reply.usage, reply.calls, reply.cut and is_lost, reply.blocks), watched

    def _made_room(self) -> bool:
        """Shorten the conversation if it is too long; return whether it fits now."""
        if self._said.is_long:
            self._shorten()
        return self._said.tokens <= self._said.limit

    def _shorten(self) -> bool:
        done = self._said.compact({skill.skill_id for skill in self._session.active})
        if done is not None:
            self._record.add(
                "compacted",
                observations=done.observations,
                tokens_before=done.before,
                tokens_after=done.after,
                kept=list(done.kept),
            )
        return done is not None

    def _replied(self, watched: Watched) -> Reply:
        """Ask the model once; what it cannot read is shortened and sent once more."""
        try:
            return self._tried(watched)
        except ModelOverflow as error:
            watched.restart()
            self._record.add("model_failed", problem=str(error), code=error.code, wait=None)
            self._said.limit = min(self._said.limit, int(self._said.tokens * 0.75))
            if not self._shorten():
                raise
            return self._tried(watched)

    def _tried(self, watched: Watched) -> Reply:
        """Ask, and ask again after a pause if the model is away for a moment."""
        said = self._said
        schema = protocol.schema() if said.wire == "json" else {}
        for attempt in range(1, self._settings.attempts + 1):
            self._record.add(
                "model_asked",
                turn=self.spent.turns,
                prompt_sha256=said.digest,
                characters=said.characters,
                tokens=said.tokens,
            )
            started = time.monotonic()
            try:
                reply = self._model.reply(tuple(said.messages), schema=schema, on_text=watched)
            except ModelUnavailable as error:
                watched.restart()
                self._record.add("model_failed", problem=str(error), code=error.code, wait=error.wait)
                if attempt == self._settings.attempts or (error.wait or 0) > MAX_WAIT_SECONDS:
                    raise
                self._sleep(
                    error.wait if error.wait is not None else self._settings.pause * 2.0 ** (attempt - 1)
                )
                continue
            self._count(reply, time.monotonic() - started)
            return structs.replace(reply, text=sections.mended(reply.text))
        raise AssertionError  # the last attempt returned or raised

    def _count(self, reply: Reply, seconds: float) -> None:
        usage = reply.usage
        self.spent.input_tokens += usage.input_tokens
        self.spent.output_tokens += usage.output_tokens
        self.spent.cached_tokens += usage.cached_tokens
        called = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
        self._record.add(
            "model_replied",
            **self._text_of(reply, called),
            **({"cut": True} if reply.cut else {}),
            seconds=seconds,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )

    def _text_of(self, reply: Reply, called: list[dict[str, str]]) -> dict[str, Any]:
        if self._settings.keep_model_text:
            return {"text": reply.text, **({"calls": called} if called else {})}
        return {
            "sha256": hashlib.sha256(reply.text.encode("utf-8", "replace")).hexdigest(),
            "characters": len(reply.text),
            **({"calls": [{"name": each["name"]} for each in called]} if called else {}),
        }
