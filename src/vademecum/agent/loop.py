"""The loop: ask the model once, do one thing, observe, go on, until there is an answer or nothing is left."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vademecum.agent import actions, prompt
from vademecum.agent.doing import Doer, Done
from vademecum.agent.plan import Plan, updated
from vademecum.agent.streaming import Watched
from vademecum.errors import Declined, ModelFailed, ModelUnavailable, VademecumError
from vademecum.models import sections
from vademecum.models.base import Message, Model, Reply
from vademecum.runs.record import Record
from vademecum.skill.text import visible

Status = Literal["done", "degraded", "refused", "declined", "failed", "interrupted"]

MAX_WAIT_SECONDS = 30.0
MAX_ABOUT_CHARS = 300


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient a run is: with replies that are wrong, with a model that is away, with the same mistake."""

    retries: int = 2
    attempts: int = 3
    same_failures: int = 3
    keep_model_text: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    ``status`` is ``done`` where there is an answer that the model stands by; ``run_id`` finds the record.

    >>> Outcome("20260101-120000-abc1234", "done", "They are the same.", "final_answer").to_json()["status"]
    'done'
    """

    run_id: str
    status: Status
    answer: str
    stop_reason: str
    stats: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The outcome as ``vade run`` prints it."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "answer": self.answer,
            "stop_reason": self.stop_reason,
            "stats": self.stats,
        }


class Loop:
    """One run of one agent."""

    def __init__(  # noqa: PLR0913 - the parts of a run
        self,
        model: Model,
        doer: Doer,
        record: Record,
        state: prompt.State,
        *,
        settings: Settings = Settings(),  # noqa: B008 - it never changes
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._doer = doer
        self._record = record
        self._state = state
        self._settings = settings
        self._sleep = sleep
        self._started = time.monotonic()
        self._failures: list[str] = []

    def run(self, named: Sequence[str] = ()) -> Outcome:
        """Go on until there is an answer, a limit, a no or an interruption; the record is closed then."""
        try:
            return self._run(named)
        except Declined as error:
            return self._end("declined", str(error), "declined")
        except ModelFailed as error:
            return self._end("failed", f"The model failed: {error}", error.code)
        except KeyboardInterrupt:
            return self._end("interrupted", "The run was interrupted.", "interrupted")
        except VademecumError as error:
            return self._end("failed", str(error), error.code)
        except Exception as error:  # noqa: BLE001 - whatever it is, the record says how the run ended
            return self._end("failed", f"Unexpected {type(error).__name__}: {error}", "unexpected")

    def _run(self, named: Sequence[str]) -> Outcome:
        state = self._state
        for name in named:
            self._observe("select_skills", self._doer.load_for_user(name, state))
        while True:
            reason = state.spent.exhausted(state.budget) or self._stuck()
            if reason is not None:
                return self._give_up(reason)
            turn = self._decide()
            if isinstance(turn, str):
                return self._give_up(turn)
            if isinstance(turn.payload, actions.FinalAnswer):
                return self._finish(turn.payload)
            reason = state.spent.refuses(state.budget, turn.type)
            if reason is not None:
                return self._give_up(reason)
            self._observe(turn.type, self._doer.do(turn, state))

    def _decide(self) -> actions.Turn | str:
        """Ask the model; a reply that is wrong is sent back with what is wrong with it.

        Each call counts as a turn. Gives the reason when there is no action to go on with.
        """
        state = self._state
        for seen in state.compact():
            self._record.add("compacted", line=seen.line, kept=seen.kept)
        messages = state.messages()
        if sum(len(message.content) for message in messages) > state.budget.context_chars:
            return "max_context"
        for attempt in range(self._settings.retries + 1):
            if attempt and state.spent.exhausted(state.budget):
                return "max_turns"
            state.spent.turns += 1
            reply, watched = self._ask(messages)
            try:
                turn = actions.parse_turn(reply.text)
            except actions.ReplyWrong as error:
                self._record.add("reply_wrong", problem=str(error), attempt=attempt + 1)
                watched.finish(None)
                correction = f"{error} Answer again with one JSON object that is right."
                messages = [
                    *messages[:2],
                    Message("assistant", reply.text[:4000]),
                    Message("user", correction),
                ]
                continue
            watched.finish(turn.payload.text if isinstance(turn.payload, actions.FinalAnswer) else None)
            self._accept(turn)
            return turn
        return "bad_replies"

    def _ask(self, messages: list[Message]) -> tuple[Reply, Watched]:
        """One call of the model, again after a pause where it is away for a moment."""
        sent = hashlib.sha256("\0".join(m.content for m in messages).encode("utf-8", "replace")).hexdigest()
        size = sum(len(message.content) for message in messages)
        for attempt in range(1, self._settings.attempts + 1):
            self._record.add("model_asked", turn=self._state.spent.turns, prompt_sha256=sent, characters=size)
            started = time.monotonic()
            watched = Watched(self._planned, self._piece, self._withdrawn)
            try:
                reply = self._model.reply(messages, schema=actions.schema(), on_text=watched)
            except ModelUnavailable as error:
                watched.finish(None)
                self._record.add("model_failed", problem=str(error), code=error.code, wait=error.wait)
                if attempt == self._settings.attempts or (error.wait or 0) > MAX_WAIT_SECONDS:
                    raise
                self._sleep(error.wait if error.wait is not None else 2.0 ** (attempt - 1))
                continue
            spent = self._state.spent
            spent.input_tokens += reply.usage.input_tokens
            spent.output_tokens += reply.usage.output_tokens
            self._record.add(
                "model_replied",
                **self._text_of(reply),
                seconds=time.monotonic() - started,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
            )
            return reply, watched
        raise AssertionError  # the last attempt returned or raised

    def _text_of(self, reply: Reply) -> dict[str, Any]:
        if self._settings.keep_model_text:
            return {"text": reply.text}
        return {
            "sha256": hashlib.sha256(reply.text.encode("utf-8", "replace")).hexdigest(),
            "characters": len(reply.text),
        }

    def _accept(self, turn: actions.Turn) -> None:
        """Write the action down, and change the plan; a change that does not fit is said to the model."""
        payload = turn.payload.model_dump(mode="json", exclude_defaults=True)
        self._record.add("action", action=turn.type, payload=payload, turn=self._state.spent.turns)
        if turn.plan_update is None:
            return
        state = self._state
        try:
            state.plan = updated(state.plan or Plan(), turn.plan_update)
        except VademecumError as error:
            self._observe("plan_update", Done(str(error), code=error.code))
            return
        self._record.add("plan", plan=state.plan.model_dump(mode="json"))

    def _observe(self, kind: str, done: Done) -> None:
        """Turn what came of an action into what the model sees next."""
        state = self._state
        number = len(state.observed) + 1
        about = f" {visible(done.about)[:MAX_ABOUT_CHARS]}" if done.about else ""
        line = f"[{number}] {kind}{about}: {done.code or 'ok'}"
        kept = self._record.keep(done.text) if done.text else ""
        text = prompt.shortened(done.text, kept)
        shown = prompt.untrusted(text, kind=done.kind) if done.kind and text else sections.safe(text)
        state.observed.append(prompt.Observed(line, shown, kept))
        self._record.add("observation", line=line, code=done.code, kept=kept, characters=len(done.text))
        if kind == "plan_update":
            return
        self._failures = [*self._failures, done.identity] if done.code else []

    def _stuck(self) -> str | None:
        last = self._failures[-self._settings.same_failures :]
        same = len(last) == self._settings.same_failures and len(set(last)) == 1
        return "repeated_failure" if same else None

    def _finish(self, answer: actions.FinalAnswer) -> Outcome:
        text = answer.text
        last = self._state.observed[-1].line if self._state.observed else ""
        if last.endswith((": denied", ": declined", ": refused")):
            return self._end("refused", text, "refused")
        if not answer.complete:
            return self._end("degraded", text, "incomplete")
        return self._end("done", text, "final_answer")

    def _give_up(self, reason: str) -> Outcome:
        """An answer that says plainly that it is not the one that was asked for."""
        lines = [f"The run stopped before it was finished ({reason.replace('_', ' ')})."]
        if self._state.observed:
            lines += ["What was done:", *(seen.line for seen in self._state.observed[-10:])]
        return self._end("degraded", "\n".join(lines), reason)

    def _end(self, status: Status, answer: str, reason: str) -> Outcome:
        stats: dict[str, Any] = {
            **self._state.spent.to_json(),
            "seconds": round(time.monotonic() - self._started, 3),
        }
        stats["skills"] = sorted(self._state.loaded)
        outcome = Outcome(self._record.run_id, status, answer, reason, stats)
        try:
            self._record.add("run_finished", status=status, stop_reason=reason, answer=answer, stats=stats)
            self._record.finish({**outcome.to_json(), "request": self._state.request}, answer)
        except (OSError, VademecumError) as error:
            # The answer must not be lost because its record is.
            stats["record"] = f"incomplete: {error}"
            self._record.close()
        return outcome

    def _planned(self, type_: str) -> None:
        self._record.add("action_planned", action=type_)

    def _withdrawn(self) -> None:
        self._record.passing("answer_withdrawn")

    def _piece(self, text: str) -> None:
        self._record.passing("answer_piece", text=text)
