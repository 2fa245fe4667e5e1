"""The loop: ask the model, do what it says, observe, and go on until there is an answer or a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from vademecum.agent import native, protocol
from vademecum.agent.budget import LIMITS, Budget
from vademecum.agent.model_calls import ModelCalls, Settings
from vademecum.agent.plan import Plan, updated
from vademecum.agent.transcript import Observed, Transcript, shortened, untrusted
from vademecum.errors import Declined, ModelFailed, SkillNotFound, VademecumError
from vademecum.models import sections
from vademecum.models.base import Model, Reply
from vademecum.runs.record import Record
from vademecum.session.base import Deferred, Result
from vademecum.session.session import Session
from vademecum.skill.text import visible
from vademecum.tools import calls
from vademecum.tools.outputs import Output

Status = Literal["done", "degraded", "refused", "declined", "failed", "interrupted"]

MAX_ABOUT_CHARS = 300
MAX_FAULT_CHARS = 500
MAX_WRONG_CHARS = 4000
MAX_BODIES_A_TURN = 2

_REFUSALS = frozenset({"denied", "declined", "refused"})
_CUT = (
    "The reply was cut at its length limit, so nothing of it was done. Do it in smaller steps: write a long "
    "file in parts (write_file, then edit_file), or answer more briefly."
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    ``status`` is ``done`` if there is an answer that the model stands by; ``run_id`` finds the record.
    ``advice`` says to a person what would allow what was refused. ``outputs`` are the files that scripts and
    commands made.

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
        """Return the outcome as ``vade run`` prints it."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "answer": self.answer,
            "stop_reason": self.stop_reason,
            "outputs": [output.to_json() for output in self.outputs],
            "stats": self.stats,
        }


class Loop:
    """One run of one agent."""

    def __init__(  # noqa: PLR0913 - the parts of a run
        self,
        model: Model,
        session: Session,
        record: Record,
        transcript: Transcript,
        budget: Budget,
        *,
        settings: Settings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._record = record
        self._said = transcript
        self._budget = budget
        self._settings = settings
        self._calls = ModelCalls(model, session, record, transcript, budget, settings, sleep)
        self._started = time.monotonic()
        self._failures: list[str] = []
        self._faults: list[str] = []
        self._last_code = ""
        self._advice = ""
        self._outputs: list[Output] = []
        self.skills: set[str] = set()
        self.spent = self._calls.spent

    def run(
        self, request: str, *, about: str = "", named: Sequence[str] = (), loaded: Sequence[str] = ()
    ) -> Outcome:
        """Go on until there is an answer, a limit, a no or an interruption; the record is closed then.

        The skills ``named`` are loaded first; ``loaded`` are instructions that are loaded already.
        """
        try:
            self._said.ask(request, about=about, skills=[*loaded, *map(self._named, named)])
            return self._run()
        except Declined as error:
            return self._end("declined", self._account(str(error)), "declined")
        except Deferred as deferred:
            question = deferred.question
            return self._end("refused", f"{question.wanted} waits for an answer ({question.id}).", "deferred")
        except ModelFailed as error:
            return self._end("failed", self._account(f"The model failed: {error}"), error.code)
        except KeyboardInterrupt:
            return self._end("interrupted", self._account("The run was interrupted."), "interrupted")
        except VademecumError as error:
            return self._end("failed", self._account(str(error)), error.code)
        except Exception as error:  # noqa: BLE001 - whatever it is, the record says how the run ended
            words = f"Unexpected {type(error).__name__}: {error}"
            return self._end("failed", self._account(words), "unexpected")

    def _named(self, name: str) -> str:
        """Load a skill that the person named, and return its instructions."""
        skill = self._session.index.get(name)
        if not skill.controls.user_invocable:
            raise SkillNotFound(f"The skill {skill.name!r} is not meant to be called by people.")
        loaded = self._session.call(calls.UseSkill(name), origin="user")
        if loaded.code and loaded.kind == "error":
            raise VademecumError(loaded.text, code=loaded.code)
        return self._observe("select_skills", self._kept(loaded), skill.name)

    def _run(self) -> Outcome:
        while True:
            stuck = self._stuck()
            if stuck is not None:
                return self._give_up(stuck)
            decision = self._decide()
            if isinstance(decision, str):
                return self._give_up(decision)
            ended = self._perform(decision, [] if self._said.wire == "json" else None)
            if ended is not None:
                return ended

    # Doing

    def _perform(self, decision: protocol.Turn, told: list[str] | None) -> Outcome | None:
        """Do the actions of one reply in order; after a refusal the rest are not done.

        ``told`` collects the results if they go back in one message; else each answers its own call.
        """

        def tell(text: str, call_id: str) -> None:
            if told is None:
                self._said.told(text, call_id)
            else:
                told.append(text)

        self._replan(decision, tell)
        refused, bodies = False, 0
        for action in decision.actions:
            self._record.add("action", action=action.type, payload=action.payload, turn=self.spent.turns)
            if isinstance(action.call, protocol.FinalAnswer) and not refused:
                return self._finish(action.call)
            bodies += isinstance(action.call, protocol.SelectSkills)
            limit = self.spent.refuses(self._budget, action.type)
            if refused:
                result = Result("Not done, because a call before it was refused.", "not-done")
            elif limit is not None:
                words = limit.removeprefix("max_").replace("_", " ")
                result = Result(f"Not done: all {words} are used up. Answer with what you have.", limit)
            elif bodies > MAX_BODIES_A_TURN:
                result = Result(f"Only {MAX_BODIES_A_TURN} skills a turn are loaded: ask again.", "not-done")
            else:
                result = self._do(action)
            refused = refused or result.code in _REFUSALS
            tell(self._observe(action.type, result, action.about), action.id)
        warning = self.spent.warning(self._budget)
        if told is not None:
            self._said.told("\n".join(["=== observations ===", *told, *filter(None, [warning])]))
        elif warning:
            self._said.told(warning)
        return None

    def _do(self, action: protocol.Action) -> Result:
        """Do one action through the session; what goes wrong is said to the model, except a person's no."""
        try:
            match action.call:
                case protocol.SelectSkills(skills=skills):
                    return self._select(skills)
                case protocol.CallTool(tool=tool, arguments=arguments, skill=skill, source=source):
                    self.spent.tool_calls += 1
                    named = f"{source}:{skill}" if skill and source else skill or None
                    return self._session.call_named(tool, arguments, for_skill=named)
                case protocol.BadCall(name=name, arguments=arguments):
                    self.spent.tool_calls += 1
                    return self._session.call_named(name, arguments)
                case calls.RunScript():
                    self.spent.tool_calls += 1
                    self.spent.script_runs += 1
            return self._session.call(action.call)
        except Declined as error:
            if not error.told:
                raise
            # The person said why: the model may hear it and go on with something else.
            return Result(str(error), error.code, "error")

    def _select(self, wanted: Sequence[calls.UseSkill]) -> Result:
        """Load skills, those that coordinate before those they coordinate, and not too many in one turn."""
        try:
            found = [(self._session.find(use.name, use.source), use) for use in wanted]
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        found.sort(key=lambda each: each[0].meta.metadata.get("kind") != "coordinator")
        results = [self._kept(self._session.call(use)) for _, use in found[:MAX_BODIES_A_TURN]]
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
        """Remember the instructions of a skill, and frame them."""
        if result.kind != "skill" or result.skill is None:
            return result
        self.skills.add(result.skill.name)
        return Result(self._said.keep(result.skill, result.text))

    def _replan(self, decision: protocol.Turn, tell: Callable[[str, str], None]) -> None:
        """Change the plan; a change that does not fit is said to the model, and costs nothing else."""
        problem, code = decision.plan_problem, "plan"
        if decision.plan_update is not None and not problem:
            try:
                self._said.plan = updated(self._said.plan or Plan(), decision.plan_update)
                self._record.add("plan", plan=msgspec.to_builtins(self._said.plan))
            except VademecumError as error:
                problem, code = str(error), error.code
        text = self._observe("plan_update", Result(problem, code)) if problem else "ok"
        for call_id in decision.plan_calls:
            tell(text, call_id)
        if problem and not decision.plan_calls:
            tell(text, "")

    def _observe(self, kind: str, result: Result, about: str = "") -> str:
        """Write down what came of an action, and return it as the model sees it."""
        self._outputs += result.outputs
        number = len(self._said.observed) + 1
        shown = f" {visible(about)[:MAX_ABOUT_CHARS]}" if about else ""
        line = f"[{number}] {kind}{shown}: {result.code or 'ok'}"
        kept = self._record.keep(result.text) if result.text else ""
        path = os.path.relpath(self._record.place / kept, self._session.place.context.cwd) if kept else ""
        framed = sections.safe(result.text)
        if result.kind and result.text:
            framed = untrusted(shortened(result.text, path), kind=result.kind)
        self._said.observed.append(Observed(line, path))
        self._record.add("observation", line=line, code=result.code, kept=kept, characters=len(result.text))
        if kind != "plan_update":
            self._last_code, self._advice = result.code, result.advice
            failure = f"{about} {result.code} {result.text}"
            self._failures = [*self._failures, failure] if result.code else []
            if result.code:
                self._faults.append(f"{kind}{shown}: {result.text}")
        return f"{line}\n{framed}" if framed else line

    # Deciding

    def _decide(self) -> protocol.Turn | str:
        """Ask the model; a reply that is wrong is sent back with what is wrong with it.

        Each call counts as a turn. Returns the reason if there is nothing to go on with.
        """
        for attempt in range(self._settings.retries + 1):
            asked = self._calls.whole()
            if isinstance(asked, str):
                return asked
            reply, watched = asked
            try:
                decision = self._understood(reply)
            except protocol.ReplyWrong as error:
                self._record.add("reply_wrong", problem=str(error), attempt=attempt + 1)
                self._faults.append(str(error))
                watched.finish(None)
                began = ", ".join(call.name for call in reply.calls)
                text = reply.text[:MAX_WRONG_CHARS] or f"(a call that could not be used: {began})"
                self._said.said(Reply(text, reply.usage))
                again = "Answer again with one JSON object that is right."
                self._said.told(f"{error} {again if self._said.wire == 'json' else 'Try again.'}")
                continue
            last = decision.actions[-1].call if len(decision.actions) == 1 else None
            watched.finish(last.text if isinstance(last, protocol.FinalAnswer) else None)
            self._said.said(reply)
            return decision
        return "bad_replies"

    def _understood(self, reply: Reply) -> protocol.Turn:
        if reply.cut:
            raise protocol.ReplyWrong(_CUT)
        if self._said.wire == "json":
            return protocol.parse_turn(reply.text)
        if not reply.calls and not reply.text.strip():
            raise protocol.ReplyWrong("The reply is empty: call a tool, or answer.")
        return native.decision_in(reply)

    def _stuck(self) -> str | None:
        last = self._failures[-self._settings.same_failures :]
        same = len(last) == self._settings.same_failures and len(set(last)) == 1
        if same and self._last_code.startswith("max_"):
            return self._last_code
        return "repeated_failure" if same else None

    # Ending

    def _finish(self, answer: protocol.FinalAnswer) -> Outcome:
        if answer.complete:
            return self._end("done", answer.text, "final_answer")
        if self._last_code in _REFUSALS:
            return self._end("refused", answer.text, "refused")
        return self._end("degraded", answer.text, "incomplete")

    def _give_up(self, reason: str) -> Outcome:
        """Answer with what was done, and say plainly that it is not what was asked for."""
        head = f"The run stopped before it was finished ({reason.replace('_', ' ')})."
        if reason in LIMITS:
            field, _ = LIMITS[reason]
            most = getattr(self._budget, field)
            head += f" Its limit is {most:,}: give --{reason.replace('_', '-')}, or set budget.{field}."
        if reason == "max_context":
            head += f" The next request would have about {self._said.tokens:,} tokens."
        return self._end("degraded", self._account(head), reason)

    def _account(self, head: str) -> str:
        """Return what ended the run, what was done, where the outputs are, and the last fault."""
        lines = [head]
        if self._said.observed:
            lines += ["What was done:", *(seen.line for seen in self._said.observed[-10:])]
        if self._outputs:
            lines.append(f"Outputs: {', '.join(output.reference for output in self._outputs)}")
        if self._faults:
            lines.append(f"The last fault: {visible(self._faults[-1])[:MAX_FAULT_CHARS]}")
        return "\n".join(lines)

    def _end(self, status: Status, answer: str, reason: str) -> Outcome:
        self._said.answered(answer, reason)
        stats: dict[str, Any] = {
            **{name: getattr(self.spent, name) for name in self.spent.__slots__},
            "seconds": round(time.monotonic() - self._started, 3),
        }
        stats["skills"] = sorted(self.skills)
        advice = self._advice if status == "refused" else ""
        outputs = tuple(self._outputs)
        outcome = Outcome(self._record.run_id, status, answer, reason, stats, advice, outputs)
        try:
            self._session.finish({**outcome.to_json(), "request": self._said.request})
        except (OSError, VademecumError) as error:
            # The answer must not be lost because its record is.
            stats["record"] = f"incomplete: {error}"
            self._record.close()
        return outcome
