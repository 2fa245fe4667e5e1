"""The loop: ask the model once, do one thing, observe, go on, until there is an answer or nothing is left."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vademecum.agent import prompt, protocol
from vademecum.agent.plan import Plan, updated
from vademecum.agent.streaming import Watched
from vademecum.errors import Declined, ModelFailed, ModelUnavailable, SkillNotFound, VademecumError
from vademecum.models import sections
from vademecum.models.base import Message, Model, Reply
from vademecum.runs.record import Record
from vademecum.session.base import Deferred, Result, TextKind
from vademecum.session.session import Session
from vademecum.skill.text import visible
from vademecum.tools import calls

Status = Literal["done", "degraded", "refused", "declined", "failed", "interrupted"]

MAX_WAIT_SECONDS = 30.0
MAX_ABOUT_CHARS = 300
MAX_BODIES_A_TURN = 2


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

    ``status`` is ``done`` if there is an answer that the model stands by; ``run_id`` finds the record.
    ``advice`` says to a person what would allow what was refused.

    >>> Outcome("20260101-120000-abc1234", "done", "They are the same.", "final_answer").to_json()["status"]
    'done'
    """

    run_id: str
    status: Status
    answer: str
    stop_reason: str
    stats: dict[str, Any] = field(default_factory=dict)
    advice: str = ""

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
        session: Session,
        record: Record,
        state: prompt.State,
        *,
        settings: Settings = Settings(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._session = session
        self._record = record
        self._state = state
        self._settings = settings
        self._sleep = sleep
        self._started = time.monotonic()
        self._failures: list[str] = []
        self._advice = ""

    def run(self, active: Sequence[str] = (), named: Sequence[str] = ()) -> Outcome:
        """Go on until there is an answer, a limit, a no or an interruption; the record is closed then."""
        try:
            return self._run(active, named)
        except Declined as error:
            return self._end("declined", str(error), "declined")
        except Deferred as deferred:
            question = deferred.question
            return self._end("refused", f"{question.wanted} waits for an answer ({question.id}).", "deferred")
        except ModelFailed as error:
            return self._end("failed", f"The model failed: {error}", error.code)
        except KeyboardInterrupt:
            return self._end("interrupted", "The run was interrupted.", "interrupted")
        except VademecumError as error:
            return self._end("failed", str(error), error.code)
        except Exception as error:  # noqa: BLE001 - whatever it is, the record says how the run ended
            return self._end("failed", f"Unexpected {type(error).__name__}: {error}", "unexpected")

    def _run(self, active: Sequence[str], named: Sequence[str]) -> Outcome:
        state = self._state
        for name in dict.fromkeys([*active, *named]):
            skill = self._session.index.get(name)
            if name in named and not skill.controls.user_invocable:
                raise SkillNotFound(f"The skill {skill.name!r} is not meant to be called by people.")
            loaded = self._kept(self._session.call(calls.UseSkill(skill.skill_id), origin="user"))
            if loaded.code and loaded.kind == "error":
                raise VademecumError(loaded.text, code=loaded.code)
            self._observe("select_skills", loaded)
        while True:
            reason = state.spent.exhausted(state.budget) or self._stuck()
            if reason is not None:
                return self._give_up(reason)
            turn = self._decide()
            if isinstance(turn, str):
                return self._give_up(turn)
            if isinstance(turn.action, protocol.FinalAnswer):
                return self._finish(turn.action)
            reason = state.spent.refuses(state.budget, turn.type)
            if reason is not None:
                return self._give_up(reason)
            self._observe(turn.type, self._do(turn), turn.about)

    def _do(self, turn: protocol.Turn) -> Result:
        """Do one action through the session; what goes wrong is said to the model, except a person's no."""
        state = self._state
        try:
            match turn.action:
                case protocol.SelectSkills(skills=skills):
                    return self._select(skills)
                case protocol.CallTool(tool=tool, arguments=arguments, skill=skill, source=source):
                    state.spent.tool_calls += 1
                    named = f"{source}:{skill}" if skill and source else skill or None
                    return self._session.call_named(tool, arguments, for_skill=named)
                case calls.RunScript():
                    state.spent.tool_calls += 1
                    state.spent.script_runs += 1
            return self._session.call(turn.action)
        except Declined as error:
            if not error.told:
                raise
            # The person said why: the model may hear it and go on with something else.
            return Result(str(error), error.code, "error")

    def _select(self, wanted: Sequence[calls.UseSkill]) -> Result:
        """Load skills, those that coordinate before those they coordinate, and not too many in one turn."""
        try:
            found = [self._session.find(use.name, use.source) for use in wanted]
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        tasks = {skill.skill_id: use.task for skill, use in zip(found, wanted, strict=True)}
        found.sort(key=lambda skill: skill.meta.metadata.get("kind") != "coordinator")
        results = [
            self._kept(self._session.call(calls.UseSkill(skill.skill_id, task=tasks[skill.skill_id])))
            for skill in found[:MAX_BODIES_A_TURN]
        ]
        lines = [result.text for result in results]
        if later := [skill.name for skill in found[MAX_BODIES_A_TURN:]]:
            lines.append(
                f"Only {MAX_BODIES_A_TURN} skills a turn are loaded; ask again for: {', '.join(later)}."
            )
        code = next((result.code for result in results if result.code), "")
        kinds: list[TextKind] = [result.kind for result in results if result.kind]
        return Result("\n".join(lines), code, kinds[0] if kinds else "")

    def _kept(self, result: Result) -> Result:
        """Put the instructions of a skill where they stay, and say so instead of repeating them."""
        if result.kind != "skill" or result.skill is None:
            return result
        self._state.keep(result.skill, result.text)
        return Result(f"{result.skill.name} is loaded; its instructions are among the loaded skills.")

    def _decide(self) -> protocol.Turn | str:
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
                turn = protocol.parse_turn(reply.text)
            except protocol.ReplyWrong as error:
                self._record.add("reply_wrong", problem=str(error), attempt=attempt + 1)
                watched.finish(None)
                correction = f"{error} Answer again with one JSON object that is right."
                messages = [
                    *messages[:2],
                    Message("assistant", reply.text[:4000]),
                    Message("user", correction),
                ]
                continue
            watched.finish(turn.action.text if isinstance(turn.action, protocol.FinalAnswer) else None)
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
                reply = self._model.reply(messages, schema=protocol.schema(), on_text=watched)
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

    def _accept(self, turn: protocol.Turn) -> None:
        """Write the action down, and change the plan; a change that does not fit is said to the model."""
        self._record.add("action", action=turn.type, payload=turn.payload, turn=self._state.spent.turns)
        if turn.plan_update is None:
            return
        state = self._state
        try:
            state.plan = updated(state.plan or Plan(), turn.plan_update)
        except VademecumError as error:
            self._observe("plan_update", Result(str(error), error.code))
            return
        self._record.add("plan", plan=state.plan.to_json())

    def _observe(self, kind: str, result: Result, about: str = "") -> None:
        """Turn what came of an action into what the model sees next."""
        state = self._state
        number = len(state.observed) + 1
        shown = f" {visible(about)[:MAX_ABOUT_CHARS]}" if about else ""
        line = f"[{number}] {kind}{shown}: {result.code or 'ok'}"
        kept = self._record.keep(result.text) if result.text else ""
        text = prompt.shortened(result.text, kept)
        framed = prompt.untrusted(text, kind=result.kind) if result.kind and text else sections.safe(text)
        state.observed.append(prompt.Observed(line, framed, kept))
        self._record.add("observation", line=line, code=result.code, kept=kept, characters=len(result.text))
        if kind != "plan_update":
            self._advice = result.advice
            self._failures = [*self._failures, f"{about} {result.code} {result.text}"] if result.code else []

    def _stuck(self) -> str | None:
        last = self._failures[-self._settings.same_failures :]
        same = len(last) == self._settings.same_failures and len(set(last)) == 1
        return "repeated_failure" if same else None

    def _finish(self, answer: protocol.FinalAnswer) -> Outcome:
        text = answer.text
        if answer.complete:
            return self._end("done", text, "final_answer")
        last = self._state.observed[-1].line if self._state.observed else ""
        if last.endswith((": denied", ": declined", ": refused")):
            return self._end("refused", text, "refused")
        return self._end("degraded", text, "incomplete")

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
        stats["skills"] = sorted(self._state.loaded_names)
        advice = self._advice if status == "refused" else ""
        outcome = Outcome(self._record.run_id, status, answer, reason, stats, advice)
        try:
            self._session.finish({**outcome.to_json(), "request": self._state.request})
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
