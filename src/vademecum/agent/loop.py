"""The agent loop: ask the model, act, observe, and repeat until there is an answer or a limit is reached."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import structs

from vademecum.agent import protocol
from vademecum.agent.plan import LIMITS, Budget, Plan, Spent, updated
from vademecum.agent.transcript import COMPACT_AT, Transcript, untrusted
from vademecum.errors import (
    Declined,
    ModelFailed,
    ModelOverflow,
    ModelUnavailable,
    SkillNotFound,
    ToolsUnsupported,
    VademecumError,
)
from vademecum.models.base import Model, Reply, ToolCall
from vademecum.runs.record import Record
from vademecum.session.base import Deferred, Result
from vademecum.session.session import Session
from vademecum.skill.text import visible
from vademecum.tools import calls
from vademecum.tools.exchange import Output

Status = Literal["done", "degraded", "refused", "declined", "failed", "interrupted"]

SAME_FAILURES = 3  # in a row, then the run ends
ATTEMPTS = 3  # to reach a model
PAUSE_SECONDS = 1.0  # before the second attempt; twice as long before each later one
MAX_WAIT_SECONDS = 30.0
MAX_CONTINUATIONS = 4
MAX_ANSWER_CHARS = 1_000_000

MAX_ABOUT_CHARS = 300
MAX_FAULT_CHARS = 500
MAX_WRONG_CHARS = 4000
MAX_BODIES_A_TURN = 2
WRONG_REPLIES = 3  # in a row, then the run ends
LOW = 2  # with this many turns left, the model is told

_GO_ON = "The reply was cut at its length limit: go on exactly where it stopped, without repeating anything."
_REFUSALS = frozenset({"denied", "declined", "refused"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    ``status`` is ``done`` if the model gave a complete answer; ``run_id`` identifies the record. ``advice``
    tells a person what would allow a refused call. ``outputs`` are the files that scripts and commands made.

    >>> Outcome("20260101-120000-abc1234", "done", "They are the same.", "final_answer").to_json()["status"]
    'done'
    """

    run_id: str
    status: Status
    answer: str
    stop_reason: str
    stats: dict[str, Any] = field(default_factory=dict)
    advice: str = ""
    outputs: tuple[Output, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome in the form that ``vade run`` prints."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "answer": self.answer,
            "stop_reason": self.stop_reason,
            "outputs": [output.to_json() for output in self.outputs],
            "stats": self.stats,
        }


class _GaveUp(Exception):
    """The run cannot continue; the text is the reason in its outcome."""


@dataclass(slots=True)
class Loop:
    """One run of one agent: its model calls and their actions."""

    model: Model
    session: Session
    record: Record
    said: Transcript
    budget: Budget
    spent: Spent = field(default_factory=Spent)
    skills: set[str] = field(default_factory=set)
    _started: float = field(default_factory=time.monotonic)
    _failures: list[str] = field(default_factory=list)
    _fault: str = ""
    _last: Result = Result("")
    _outputs: list[Output] = field(default_factory=list)

    def run(
        self, request: str, *, about: str = "", named: Sequence[str] = (), loaded: Sequence[str] = ()
    ) -> Outcome:
        """Run until an answer, a limit, a refusal or an interruption, then close the record.

        The skills ``named`` are loaded first; ``loaded`` are instructions already loaded.
        """
        try:
            self.said.ask(request, about=about, skills=[*loaded, *map(self._named, named)])
            while True:
                if ended := self._perform(self._decide()):
                    return ended
        except _GaveUp as reason:
            return self._give_up(str(reason))
        except Deferred as deferred:
            question = deferred.question
            return self._end("refused", f"{question.wanted} waits for an answer ({question.id}).", "deferred")
        except KeyboardInterrupt:
            return self._end("interrupted", self._account("The run was interrupted."), "interrupted")
        except VademecumError as error:
            head = "The model failed: " if isinstance(error, ModelFailed) else ""
            status: Status = "declined" if isinstance(error, Declined) else "failed"
            return self._end(status, self._account(f"{head}{error}"), error.code)
        except Exception as error:  # noqa: BLE001 - the record must say how the run ended
            words = f"Unexpected {type(error).__name__}: {error}"
            return self._end("failed", self._account(words), "unexpected")

    def _named(self, name: str) -> str:
        """Load a skill that the person named, and return its instructions."""
        skill = self.session.view.index.get(name)
        if not skill.controls.user_invocable:
            raise SkillNotFound(f"The skill {skill.name!r} is not meant to be called by people.")
        loaded = self.session.call(calls.UseSkill(name), origin="user")
        if loaded.code and loaded.kind == "error":
            raise VademecumError(loaded.text, code=loaded.code)
        return self._observe("select_skills", self._kept(loaded), skill.name)

    # Doing

    def _perform(self, decision: protocol.Turn) -> Outcome | None:
        """Carry out the actions of one reply in order; stop after a refusal."""
        self._replan(decision)
        refused, bodies = False, 0
        for action in decision.actions:
            self.record.add("action", action=action.type, payload=action.payload, turn=self.spent.turns)
            if isinstance(action.call, protocol.FinalAnswer) and not refused:
                return self._finish(action.call)
            bodies += isinstance(action.call, protocol.SelectSkills)
            limit = self._limit(action.type)
            if refused:
                result = Result("Not done, because a call before it was refused.", "not-done")
            elif limit is not None:
                words = limit.removeprefix("max_").replace("_", " ")
                result = Result(f"Not done: all {words} are used up. Answer with what you have.", limit)
            elif bodies > MAX_BODIES_A_TURN:
                result = Result(f"Only {MAX_BODIES_A_TURN} skills a turn are loaded: ask again.", "not-done")
            else:
                result = self._do(action)
                self.spent.script_runs += action.type == "run_script" and bool(result.files)
            refused = refused or result.code in _REFUSALS
            self.said.result(self._observe(action.type, result, action.about), action.id)
        left = self.budget.turns - self.spent.turns
        if left == 1:
            self.said.result("This is the last turn: answer now, with what you have.")
        elif left <= LOW + 1 < self.budget.turns:
            self.said.result(f"{left} turns are left: finish, and answer.")
        self.said.send_results()
        return None

    def _limit(self, kind: str) -> str | None:
        """Return the limit that an action of this kind would exceed, if any."""
        if kind in {"run_script", "call_tool"} and self.spent.tool_calls >= self.budget.tool_calls:
            return "max_tool_calls"
        if kind == "run_script" and self.spent.script_runs >= self.budget.script_runs:
            return "max_script_runs"
        return None

    def _do(self, action: protocol.Action) -> Result:
        """Carry out one action; tell the model of errors, but raise a person's refusal."""
        self.spent.tool_calls += action.type in {"run_script", "call_tool"}
        try:
            match action.call:
                case protocol.SelectSkills(skills=skills):
                    return self._select(skills)
                case protocol.CallTool(tool=tool, arguments=arguments, skill=skill, source=source):
                    named = f"{source}:{skill}" if skill and source else skill or None
                    known = protocol.CALLED_AS_TOOLS
                    return self.session.call_named(tool, arguments, offered=known, for_skill=named)
                case ToolCall(name=name, arguments=written):
                    return self.session.call_named(name, written)
                case call:
                    return self.session.call(call)
        except Declined as error:
            if not error.told:
                raise
            # The person gave a reason: the model gets it and can continue with something else.
            return Result(str(error), error.code, "error")

    def _select(self, wanted: Sequence[calls.UseSkill]) -> Result:
        """Load skills, coordinating ones first, up to a limit for each turn."""
        try:
            found = [(self.session.find(use.name, use.source), use) for use in wanted]
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        found.sort(key=lambda each: each[0].meta.metadata.get("kind") != "coordinator")
        results = [self._kept(self.session.call(use)) for _, use in found[:MAX_BODIES_A_TURN]]
        lines = [untrusted(each.text, kind=each.kind) if each.kind else each.text for each in results]
        if later := [skill.name for skill, _ in found[MAX_BODIES_A_TURN:]]:
            lines.append(
                f"Only {MAX_BODIES_A_TURN} skills a turn are loaded; ask again for: {', '.join(later)}."
            )
        code = next((result.code for result in results if result.code), "")
        outputs = tuple(output for result in results for output in result.outputs)
        advice = next((result.advice for result in results if result.advice), "")
        return Result("\n".join(lines), code, advice=advice, outputs=outputs)

    def _kept(self, result: Result) -> Result:
        """Keep the instructions of a skill, and frame them."""
        if result.kind != "skill" or result.skill is None:
            return result
        self.skills.add(result.skill.name)
        return Result(self.said.keep(result.skill, result.text))

    def _replan(self, decision: protocol.Turn) -> None:
        """Change the plan; tell the model of a change that does not fit, and continue."""
        problem = decision.plan_problem
        if decision.plan_update is not None and not problem:
            try:
                self.said.plan = updated(self.said.plan or Plan(), decision.plan_update)
                self.record.add("plan", plan=msgspec.to_builtins(self.said.plan))
            except VademecumError as error:
                problem = str(error)
        text = self._observe("plan_update", Result(problem, "plan")) if problem else "ok"
        for call_id in decision.plan_calls or [""] * bool(problem):
            self.said.result(text, call_id)

    def _observe(self, kind: str, result: Result, about: str = "") -> str:
        """Record the result of an action, and return it in the form for the model."""
        self._outputs += result.outputs
        shown = f" {visible(about)[:MAX_ABOUT_CHARS]}" if about else ""
        line = f"[{len(self.said.observed) + 1}] {kind}{shown}: {result.code or 'ok'}"
        kept = self.record.keep(result.text) if result.text else ""
        path = os.path.relpath(self.record.place / kept, self.session.place.context.cwd) if kept else ""
        seen = self.said.observe(line, result.text, result.kind, path)
        self.record.add("observation", line=line, code=result.code, kept=kept, characters=len(result.text))
        if kind != "plan_update":
            self._last = result
            failure = f"{about} {result.code} {result.text}"
            self._failures = [*self._failures, failure] if result.code else []
            if result.code:
                self._fault = f"{kind}{shown}: {result.text}"
        return seen

    # Deciding

    def _decide(self) -> protocol.Turn:
        """Ask the model; send an invalid reply back with its problems.

        Each call counts as a turn. The run ends after too many failures in a row.
        """
        failures = self._failures[-SAME_FAILURES:]
        if len(failures) == SAME_FAILURES and len(set(failures)) == 1:
            code = self._last.code
            raise _GaveUp(code if code.startswith("max_") else "repeated_failure")
        for attempt in range(1, WRONG_REPLIES + 1):
            watched = protocol.Watched(self.record.passing, is_plain=self.said.wire == "tools")
            reply = self._whole(watched)
            try:
                decision = protocol.decision_in(reply, self.said.wire)
            except protocol.ReplyWrong as error:
                self.record.add("reply_wrong", problem=str(error), attempt=attempt)
                self._fault = str(error)
                watched.finish(None)
                began = ", ".join(call.name for call in reply.calls)
                text = reply.text[:MAX_WRONG_CHARS] or f"(a call that could not be used: {began})"
                self.said.said(Reply(text, reply.usage))
                again = "Answer again with one JSON object that is right."
                self.said.told(f"{error} {again if self.said.wire == 'json' else 'Try again.'}")
                continue
            last = decision.actions[-1].call if len(decision.actions) == 1 else None
            watched.finish(last.text if isinstance(last, protocol.FinalAnswer) else None)
            self.said.said(reply)
            return decision
        raise _GaveUp("bad_replies")

    def _whole(self, watched: protocol.Watched) -> Reply:
        """Ask for a reply; have a plain answer that was cut continued."""
        text = ""
        for continued in range(MAX_CONTINUATIONS + 1):
            if self.spent.turns >= self.budget.turns:
                raise _GaveUp("max_turns")
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

    def _replied(self, watched: protocol.Watched) -> Reply:
        """Ask; retry after a pause if the model is unavailable, and once if the conversation is too long.

        If the model does not support native tool calls, ask for JSON text.
        """
        said = self.said
        if said.tokens > said.limit * COMPACT_AT:
            self._shorten()
        if said.tokens > said.limit:
            raise _GaveUp("max_context")
        self.spent.turns += 1
        failed, is_shortened = 0, False
        while True:
            schema = protocol.schema() if said.wire == "json" else {}
            self.record.add("model_asked", turn=self.spent.turns, **said.measured())
            started = time.monotonic()
            try:
                reply = self.model.reply(tuple(said.messages), schema=schema, on_text=watched)
            except ToolsUnsupported as error:
                if said.wire == "json":
                    raise
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
                time.sleep(PAUSE_SECONDS * 2.0 ** (failed - 1) if error.wait is None else error.wait)
            else:
                self._count(reply, time.monotonic() - started)
                return reply

    def _failed(self, error: ModelFailed, watched: protocol.Watched, wait: float | None = None) -> None:
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
            calls=called,
            cut=reply.cut,
            seconds=seconds,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )

    # Ending

    def _finish(self, answer: protocol.FinalAnswer) -> Outcome:
        if answer.complete:
            return self._end("done", answer.text, "final_answer")
        if self._last.code in _REFUSALS:
            return self._end("refused", answer.text, "refused")
        return self._end("degraded", answer.text, "incomplete")

    def _give_up(self, reason: str) -> Outcome:
        """Return an outcome with what was done, which says that the task is not finished."""
        head = f"The run stopped before it was finished ({reason.replace('_', ' ')})."
        if reason in LIMITS:
            name, _ = LIMITS[reason]
            most = getattr(self.budget, name)
            head += f" Its limit is {most:,}: give --{reason.replace('_', '-')}, or set budget.{name}."
        if reason == "max_context":
            head += f" The next request would have about {self.said.tokens:,} tokens."
        return self._end("degraded", self._account(head), reason)

    def _account(self, head: str) -> str:
        """Return a summary: what ended the run, what was done, its outputs, and the last fault."""
        lines = [head]
        if self.said.observed:
            lines += ["What was done:", *(line for line, _ in self.said.observed[-10:])]
        if self._outputs:
            lines.append(f"Outputs: {', '.join(output.reference for output in self._outputs)}")
        if self._fault:
            lines.append(f"The last fault: {visible(self._fault)[:MAX_FAULT_CHARS]}")
        return "\n".join(lines)

    def _end(self, status: Status, answer: str, reason: str) -> Outcome:
        self.said.answered(answer, reason)
        seconds = round(time.monotonic() - self._started, 3)
        stats: dict[str, Any] = {**asdict(self.spent), "seconds": seconds, "skills": sorted(self.skills)}
        advice = "" if status == "done" else self._last.advice
        run_id, outputs = self.record.run_id, tuple(self._outputs)
        outcome = Outcome(run_id, status, answer, reason, stats, advice, outputs)
        try:
            self.session.finish({**outcome.to_json(), "request": self.said.request})
        except (OSError, VademecumError) as error:
            # If the record fails, the answer must not be lost too.
            stats["record"] = f"incomplete: {error}"
            self.record.close()
        return outcome
