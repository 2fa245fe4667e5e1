"""Run one unit: the agent in a separate directory, then every check."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from vademecum.agent.agent import Agent
from vademecum.agent.loop import Outcome
from vademecum.context import Context
from vademecum.errors import ConfigError, ModelRefused, ModelReplyWrong, ModelUnavailable, VademecumError
from vademecum.evals.cases import Mock
from vademecum.evals.checks.answers import check_output, judge_statements
from vademecum.evals.checks.trajectory import CheckResult
from vademecum.evals.checks.watching import Watcher, check_skills, check_status, loaded_skills
from vademecum.evals.isolation import room_for
from vademecum.evals.results import LATE, RUNS, CaseResult, Verdict, without_run
from vademecum.evals.units import Configuration, EvalSettings, Unit, other_index
from vademecum.masking import Secrets
from vademecum.models import choose_model
from vademecum.models.base import Message, Model, OnText, Reply, wire_of
from vademecum.models.recorded_model import Recorded
from vademecum.models.scripted_model import Scripted, Turn
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.engine import Policy, allowing, default_rules
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Event, masked
from vademecum.session.view import View

MAX_ANSWER_CHARS = 20_000

_COSTS = ("turns", "tool_calls", "script_runs", "input_tokens", "output_tokens")


class Trials:
    """Run units in one process, which share skills, rules and models."""

    def __init__(self, workshop: EvalSettings) -> None:
        self._workshop = workshop
        self._secrets = Secrets(workshop.env)
        self._runs = workshop.out / RUNS
        self._models = dict(workshop.models)
        self._parts: dict[Configuration, tuple[SkillIndex, Policy, View]] = {}

    def perform(self, unit: Unit, place: Path, *, on_checks: Callable[[], None]) -> CaseResult:
        """Run a unit once, in a room below ``place``.

        Errors become the result; only an interruption is raised. ``on_checks`` is called when the run is
        over and its checks begin.
        """
        started = time.monotonic()
        own, env = self._workshop.project, self._workshop.env
        try:
            with room_for(unit.case, place, project=own, env=env) as context:
                found = self._performed(unit, context, on_checks)
        except Exception as error:  # noqa: BLE001 - a fault of one unit must not end the others
            kind = "" if isinstance(error, VademecumError) else f"Unexpected {type(error).__name__}: "
            found = without_run(unit, "error", error=f"{kind}{error}")
        return structs.replace(found, seconds=round(time.monotonic() - started, 4))

    def _performed(self, unit: Unit, context: Context, on_checks: Callable[[], None]) -> CaseResult:
        """Run the agent, and check its outcome."""
        watcher = Watcher(unit.case)
        outcome = self._run(unit, context, watcher)
        verdict, error = _unworkable(unit, outcome, watcher)
        checks: list[CheckResult] = []
        if not error:
            on_checks()
            checks = self._checks(unit, context, outcome, watcher)
            wrong = {check.holds for check in checks}
            verdict = "fail" if "fail" in wrong else "unjudged" if "skipped" in wrong else "pass"
        started = watcher.events[0].data if watcher.events else {}
        costs: dict[str, Any] = {key: int(outcome.stats[key]) for key in _COSTS}
        return CaseResult(
            *unit.names,
            verdict,
            checks=tuple(checks),
            skills=loaded_skills(watcher.events),
            ranked=tuple(started.get("ranked") or ()),
            status=outcome.status,
            stop_reason=outcome.stop_reason,
            answer=masked(outcome.answer, self._secrets)[:MAX_ANSWER_CHARS],
            error=error,
            run=outcome.run_id,
            **costs,
        )

    def _run(self, unit: Unit, context: Context, watcher: Watcher) -> Outcome:
        case = unit.case
        index, policy, view = self._shared(unit.configuration)
        asked = Consent() if unit.configuration.yes else Nobody("vade eval run … --yes")
        answering: dict[str | None, Approver] = {"no": _RefuseAll(), "nobody": Nobody()}
        own = (context.cwd / ".agent").exists()  # the project has its own rules
        agent = Agent(
            model=self._model_of(unit, context),
            index=index,
            policy=Policy.load(context, run=allowing(unit.configuration.allow)) if own else policy,
            view=None if own else view,
            approver=answering.get(case.setup.answer, asked),
            context=context,
            listener=watcher,
            runs=self._runs,
        )
        return agent.run(case.input, skills=case.setup.skills, before=case.setup.before)

    def _shared(self, configuration: Configuration) -> tuple[SkillIndex, Policy, View]:
        """Return the skills of a configuration, the default rules, and the view of both.

        Configuration near the results is ignored: the rules of a project come with its copy.
        """
        if configuration not in self._parts:
            index, names = self._workshop.index, configuration.skills
            if names is not None:
                wanted = set(names)
                kept = [skill for skill in index.skills if skill.name in wanted]
                index = other_index(index, kept, (), *sorted(names))
            policy = Policy(default_rules(), run=allowing(configuration.allow))
            self._parts[configuration] = (index, policy, View(index, policy))
        return self._parts[configuration]

    def _model_of(self, unit: Unit, context: Context) -> Model:
        name, mock = unit.configuration.model, unit.case.mock
        if name == "mock" and mock is None:
            raise ConfigError(f"The case {unit.case.id!r} has no mock: add mock.turns, or name a model.")
        if mock is not None and name in {"case", "mock"}:
            return MockModel(mock)
        model = self._model("offline" if name == "case" else name, unit.configuration.tape)
        is_taped = isinstance(model, Recorded)
        return NormalizedPrompts(model, context.cwd.parent, self._runs) if is_taped else model

    def _model(self, name: str, tape: str = "") -> Model:
        """Return a model by its name; with ``tape``, one whose replies are recorded there."""
        key = f"{name}\0{tape}" if tape else name
        if key not in self._models:
            made = self._models.get(name) or choose_model(name)
            self._models[key] = Recorded(Path(tape), made) if tape else made
        return self._models[key]

    def _checks(self, unit: Unit, context: Context, outcome: Outcome, watcher: Watcher) -> list[CheckResult]:
        """Check all expectations of the case; for a stopped run, only those that are decided."""
        expected, answer = unit.case.expected, outcome.answer
        checks = watcher.checks()
        if watcher.reason != "violation":
            checks += check_skills(expected, loaded_skills(watcher.events))
        if watcher.reason:
            return checks
        checks += check_status(expected, outcome.status)
        checks += check_output(expected.output, answer, [context.cwd, *reversed(_made(watcher.events))])
        name, statements = unit.configuration.judge, expected.output.judge
        judge = self._model(name) if name and statements else None
        return checks + judge_statements(statements, answer, request=unit.case.input, judge=judge)


class _RefuseAll:
    """Refuse every question."""

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - the same for all
        """Refuse it."""
        return Answer("reject", "")


def _unworkable(unit: Unit, outcome: Outcome, watcher: Watcher) -> tuple[Verdict, str]:
    """Return the verdict and the reason if a run timed out, failed, or had no usable reply."""
    if outcome.status == "interrupted":
        return "timeout", LATE.format(unit.seconds)
    if not watcher.reason and outcome.status not in unit.case.expected.status:
        if outcome.status == "failed":
            return "error", outcome.answer
        if outcome.status == "degraded" and outcome.stop_reason == "bad_replies":
            wrong = [event.data.get("problem", "") for event in watcher.events if event.type == "reply_wrong"]
            return "unusable", f"The model's reply cannot be used: {wrong[-1]}" if wrong else outcome.answer
    return "pass", ""


def _made(events: Iterable[Event]) -> list[Path]:
    """Return the directories that contain the outputs of scripts."""
    results = (event.data.get("result", {}) for event in events if event.type == "tool_called")
    made = (output for result in results for output in result.get("outputs", ()))
    places = (str(output["file"]).removesuffix(str(output["path"])) for output in made)
    return [Path(place) for place in dict.fromkeys(places)]


_ERRORS: dict[str, type[Exception]] = {
    "unavailable": ModelUnavailable,
    "refused": ModelRefused,
    "wrong": ModelReplyWrong,
    "crash": RuntimeError,
}


class MockModel(Scripted):
    """Reply with the turns of a case. ``{"seconds": 2, "reply": …}`` waits first, ``{"error": …}`` fails.

    >>> model = MockModel(Mock(turns=[{"error": "refused", "message": "I will not."}]))
    >>> model.reply([])
    Traceback (most recent call last):
    ...
    vademecum.errors.ModelRefused: I will not.
    """

    name = "mock"

    def __init__(self, mock: Mock) -> None:
        super().__init__([_scripted_turn(turn) for turn in mock.turns], piece=mock.piece)
        self._mock = mock.turns

    def reply(self, messages: Sequence[Message], *, on_text: OnText | None = None, **_: Any) -> Reply:
        """Return the next turn; after the last one, the last one again."""
        turn = self._mock[min(len(self.seen), len(self._mock) - 1)]
        if isinstance(turn, Mapping):
            time.sleep(turn.get("seconds", 0))
        return super().reply(messages, on_text=on_text)


def _scripted_turn(turn: Any) -> Turn:
    if not isinstance(turn, Mapping):
        return str(turn)
    if "error" in turn:
        kind = _ERRORS.get(str(turn["error"]), ModelReplyWrong)
        return kind(str(turn.get("message", f"the mock says {turn['error']!r}")))
    if "reply" in turn:
        return _scripted_turn(turn["reply"])
    return {key: value for key, value in turn.items() if key != "seconds"}


class NormalizedPrompts:
    """Ask a recorded model with prompts from which the paths and durations of this run are removed.

    Otherwise a recorded reply would not be found again.
    """

    def __init__(self, inner: Model, room: Path, runs: Path) -> None:
        self.name, self.wire = inner.name, wire_of(inner)
        self.needs_ranking = getattr(inner, "needs_ranking", False)
        self._inner = inner
        self._own = re.compile(rf"({re.escape(str(room))})|({re.escape(str(runs))}/[\w-]+)|after \d+\.\d\d s")

    def reply(self, messages: Sequence[Message], **more: Any) -> Reply:
        """Return the reply to the normalized prompt."""

        def always(found: re.Match[str]) -> str:
            return "/room" if found[1] else "/run" if found[2] else "after 0.00 s"

        texts = (self._own.sub(always, message.content) for message in messages)
        steady = [structs.replace(m, content=text) for m, text in zip(messages, texts, strict=True)]
        return self._inner.reply(steady, **more)
