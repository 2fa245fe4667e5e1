"""Asking the model for one reply within a budget: retries, continuations, and the answer as it streams."""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

from msgspec import structs

from vademecum.agent import protocol
from vademecum.agent.transcript import Transcript, mended
from vademecum.errors import ModelFailed, ModelOverflow, ModelUnavailable, ToolsUnsupported
from vademecum.models.base import Model, Reply
from vademecum.runs.record import Record
from vademecum.session.session import Session

# The limits: the reason of a run that one ended, which is also its option, its field, and what it is.
LIMITS = {
    "max_turns": ("turns", "Maximum number of model calls"),
    "max_tool_calls": ("tool_calls", "Maximum number of tool calls"),
    "max_script_runs": ("script_runs", "Maximum number of script runs"),
    "max_context": ("context_tokens", "Maximum number of tokens in one request to the model"),
}
ATTEMPTS = 3  # with a model that cannot be reached
MAX_WAIT_SECONDS = 30.0
MAX_CONTINUATIONS = 4
MAX_ANSWER_CHARS = 1_000_000

_GO_ON = "The reply was cut at its length limit: go on exactly where it stopped, without repeating anything."
_GROWTH = 1.06  # the text is searched anew when it is so much longer, so that the work stays linear
_ANSWER = re.compile(r'"type"\s*:\s*"final_answer"\s*,\s*"payload"\s*:\s*\{\s*"text"\s*:\s*"')
# An answer does not end with blanks, and a character does not end with its first half.
_UNFINISHED = re.compile("(?:\\s|[\ud800-\udbff])+$")
# Up to here a JSON text is whole: no quotation mark ends it, no escape is cut.
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most of each that a run may use; ``context_tokens`` is the size of one request to the model.

    >>> Budget(turns=4)
    Budget(turns=4, tool_calls=30, script_runs=10, context_tokens=100000)
    """

    turns: int = 12
    tool_calls: int = 30
    script_runs: int = 10
    context_tokens: int = 100_000

    def share(self, spent: Spent) -> Budget:
        """Return half of what is left, for a child; nothing if nothing is left."""
        return replace(
            self,
            turns=(self.turns - spent.turns) // 2,
            tool_calls=(self.tool_calls - spent.tool_calls + 1) // 2,
            script_runs=(self.script_runs - spent.script_runs + 1) // 2,
        )

    def __str__(self) -> str:
        """Return the limits as the first message has them."""
        return f"{self.turns} turns, {self.tool_calls} tool calls, {self.script_runs} script runs"


@dataclass(slots=True)
class Spent:
    """The numbers that a run has used so far."""

    turns: int = 0
    tool_calls: int = 0
    script_runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, other: Spent) -> None:
        """Count what a child used."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(frozen=True, slots=True)
class Settings:
    """Patience with the same mistake again and again, and with a model that is away."""

    same_failures: int = 3
    pause: float = 1.0  # seconds before the second attempt; twice as long before each later one


class GaveUp(Exception):
    """The run cannot go on; the text is the reason that its outcome has."""


@dataclass(slots=True)
class ModelCalls:
    """The calls of the model in one run, each counted and on the record; the loop does what they ask for."""

    model: Model
    session: Session
    record: Record
    said: Transcript
    budget: Budget
    settings: Settings
    spent: Spent = field(default_factory=Spent)

    def whole(self, watched: Watched) -> Reply:
        """Ask for a reply; a plain answer that was cut is continued where it stopped."""
        text = ""
        for continued in range(MAX_CONTINUATIONS + 1):
            if self.spent.turns >= self.budget.turns:
                raise GaveUp("max_turns")
            if self.said.is_long:
                self._shorten()
            if self.said.tokens > self.said.limit:
                raise GaveUp("max_context")
            self.spent.turns += 1
            reply = self._replied(watched)
            text += reply.text
            is_lost = bool(reply.calls) or self.said.wire == "json" or len(text) > MAX_ANSWER_CHARS
            if not reply.cut or is_lost or continued == MAX_CONTINUATIONS:
                break
            self.said.said(reply)
            self.said.told(_GO_ON)
        return structs.replace(reply, text=text, cut=reply.cut and is_lost)

    def _shorten(self) -> bool:
        done = self.said.compact({skill.skill_id for skill in self.session.active})
        if done is not None:
            self.record.add("compacted", **done)
        return done is not None

    def _replied(self, watched: Watched) -> Reply:
        """Ask, again after a pause if the model is away, and once more if it could not read so much.

        A model that turns out not to know native tool calls is asked for JSON text.
        """
        said = self.said
        failed, is_shortened = 0, False
        while True:
            schema = protocol.schema() if said.wire == "json" else {}
            self.record.add("model_asked", turn=self.spent.turns, **said.measured())
            started = time.monotonic()
            try:
                reply = self.model.reply(tuple(said.messages), schema=schema, on_text=watched)
            except ToolsUnsupported as error:
                said.speak("json")
                self._failed(error, watched)
            except ModelOverflow as error:
                self._failed(error, watched)
                said.limit = min(said.limit, int(said.tokens * 0.75))
                if is_shortened or not self._shorten():
                    raise
                is_shortened = True
            except ModelUnavailable as error:
                self._failed(error, watched, error.wait)
                failed += 1
                if failed == ATTEMPTS or (error.wait or 0) > MAX_WAIT_SECONDS:
                    raise
                time.sleep(self.settings.pause * 2.0 ** (failed - 1) if error.wait is None else error.wait)
            else:
                self._count(reply, time.monotonic() - started)
                return structs.replace(reply, text=mended(reply.text))

    def _failed(self, error: ModelFailed, watched: Watched, wait: float | None = None) -> None:
        self.record.add("model_failed", problem=str(error), code=error.code, wait=wait)
        watched.restart(is_plain=self.said.wire == "tools")

    def _count(self, reply: Reply, seconds: float) -> None:
        usage, text = reply.usage, reply.text
        self.spent.input_tokens += usage.input_tokens
        self.spent.output_tokens += usage.output_tokens
        self.spent.cached_tokens += usage.cached_tokens
        called = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
        kept: dict[str, object] = {"text": text}
        if not self.session.place.config.runs.keep_model_text:
            called = [{"name": call.name} for call in reply.calls]
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            kept = {"sha256": digest, "characters": len(text)}
        self.record.add(
            "model_replied",
            **kept,
            **({"calls": called} if called else {}),
            **({"cut": True} if reply.cut else {}),
            seconds=seconds,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )


class Watched:
    """Shows the answer in a reply while it grows. Nothing is done because of what is seen here.

    If ``is_plain``, the text is the answer itself; otherwise the answer is in a JSON object.
    """

    def __init__(
        self, on_piece: Callable[[str], None], on_withdrawn: Callable[[], None], *, is_plain: bool = False
    ) -> None:
        self._on_piece = on_piece
        self._on_withdrawn = on_withdrawn
        self.shown = ""
        self.restart(is_plain=is_plain)

    def restart(self, *, is_plain: bool) -> None:
        """Take back what was shown, if anything: another reply comes."""
        self.finish(None)
        self._is_plain = is_plain
        self._reply = io.StringIO()
        self._next = 1
        self._waiting: str | None = "" if is_plain else None  # of the answer, once that began

    def __call__(self, piece: str) -> None:
        """Take the next piece."""
        if self._waiting is None:
            self._reply.write(piece)
            if self._reply.tell() < self._next:
                return
            self._next = int(self._reply.tell() * _GROWTH) + 1
            reply = self._reply.getvalue()
            found = _ANSWER.search(reply)
            if found is None:
                return
            self._waiting, piece = "", reply[found.end() :]
        text = self._waiting + piece
        if self._is_plain:
            text = text if self.shown else text.lstrip()
            shown = _UNFINISHED.sub("", text)
            self._waiting = text[len(shown) :]
        else:
            shown, self._waiting = _decoded(text)
        if shown:
            shown = mended(shown)
            self.shown += shown
            self._on_piece(shown)

    def finish(self, answer: str | None) -> None:
        """Show what is missing of the answer, now that it is known; without one, take back what was shown."""
        if self.shown and (answer is None or not answer.startswith(self.shown)):
            self._on_withdrawn()
            self.shown = ""
        if answer is not None and answer != self.shown:
            self._on_piece(answer[len(self.shown) :])
            self.shown = answer


def _decoded(raw: str) -> tuple[str, str]:
    """Return as much of a JSON text as is whole, and the rest, which waits for the next piece."""
    whole = _WHOLE.match(raw)
    end = whole.end() if whole else 0
    try:
        return json.loads(f'"{raw[:end]}"', strict=False), '"' if raw[end : end + 1] == '"' else raw[end:]
    except ValueError:
        return "", raw
