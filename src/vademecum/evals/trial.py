"""Run one unit: the agent in a directory of its own, then every check."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from vademecum.agent.agent import Agent
from vademecum.agent.loop import Outcome
from vademecum.context import Context
from vademecum.errors import (
    ConfigError,
    ModelFailed,
    ModelRefused,
    ModelReplyWrong,
    ModelUnavailable,
    VademecumError,
)
from vademecum.evals.cases import Mock
from vademecum.evals.checks.answers import check_output, judge_statements
from vademecum.evals.checks.programs import RunArtifacts
from vademecum.evals.checks.trajectory import ConstraintVerdict
from vademecum.evals.checks.watching import Watcher, check_compliance, check_skills, loaded_skills
from vademecum.evals.isolation import RunDirectory, room_for
from vademecum.evals.results import OUTPUTS, RUNS, CaseResult, CheckResult, Verdict
from vademecum.evals.units import Configuration, Unit
from vademecum.masking import Secrets
from vademecum.models.base import Message, Model, OnText, Reply, needs_ranking, wire_of
from vademecum.models.choose import choose_model
from vademecum.models.recorded_model import Recorded
from vademecum.models.scripted_model import Scripted, Turn
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.engine import Policy, allowing, default_rules
from vademecum.registry.index import SkillIndex
from vademecum.sandbox.available import choose_sandbox
from vademecum.session.view import View

MAX_ANSWER_CHARS = 20_000
MAX_KEPT_FILES = 20
MAX_KEPT_BYTES = 1024 * 1024
MAX_SAID_EVENTS = 20
# For the checks of one run that are programs; a judge has as long as the run had.
CHECK_SECONDS = 150.0
CHECKING: Literal["checking"] = "checking"

# The verdict, what went wrong, and the checks.
Judged = tuple[Verdict, str, list[CheckResult]]

_DURATION = re.compile(r"after \d+\.\d\d s")


def perform(unit: Unit, stock: UnitResources, place: Path, *, on_checks: Callable[[], None]) -> CaseResult:
    """Run a unit once, in a room below ``place``. Whatever goes wrong is the result, except an interruption.

    ``on_checks`` is called when the run is over and its checks begin.
    """
    started = time.monotonic()
    try:
        with room_for(unit.case, place, project=stock.workshop.project) as room:
            found = _Trial(unit, room, stock).result(on_checks)
    except VademecumError as error:
        found = without_run(unit, "error", error=str(error))
    except Exception as error:  # noqa: BLE001 - a fault of one unit must not end the others
        found = without_run(unit, "error", error=f"Unexpected {type(error).__name__}: {error}")
    return structs.replace(found, seconds=round(time.monotonic() - started, 4))


def without_run(
    unit: Unit, outcome: Literal["timeout", "error"], *, error: str = "", seconds: float = 0.0
) -> CaseResult:
    """Return the result of a unit of which nothing else is known."""
    said = error or _late(seconds)
    names = (unit.key, unit.case.id, unit.configuration.name, unit.repetition)
    return CaseResult(*names, outcome, error=said, seconds=seconds)


def _late(seconds: float) -> str:
    return f"It was not done after {seconds:g} s."


class _Trial:
    """One unit in its room."""

    def __init__(self, unit: Unit, room: RunDirectory, stock: UnitResources) -> None:
        self._unit = unit
        self._room = room
        self._stock = stock
        env = {**stock.workshop.env, "HOME": str(room.home)}
        self._context = Context(room.project, room.home, env)

    def result(self, on_checks: Callable[[], None]) -> CaseResult:
        """Run the agent, and judge what came of it."""
        unit = self._unit
        watcher = Watcher(unit.case)
        outcome = self._run(watcher)
        files = self._kept()
        judged: Judged = ("timeout", _late(unit.seconds), [])
        if outcome.status != "interrupted":
            on_checks()
            judged = self._judged(outcome, watcher)
        verdict, error, checks = judged
        stats = outcome.stats
        started = watcher.events[0].data if watcher.events else {}
        return CaseResult(
            unit.key,
            unit.case.id,
            unit.configuration.name,
            unit.repetition,
            verdict,
            tuple(checks),
            loaded_skills(watcher.events),
            tuple(started.get("ranked") or ()),
            outcome.status,
            outcome.stop_reason,
            self._stock.masked(outcome.answer)[:MAX_ANSWER_CHARS],
            error,
            outcome.run_id,
            **{
                key: int(stats[key])
                for key in ("turns", "tool_calls", "script_runs", "input_tokens", "output_tokens")
            },
            files=files,
        )

    def _run(self, watcher: Watcher) -> Outcome:
        unit, case = self._unit, self._unit.case
        index, policy, view = self._stock.parts(unit.configuration)
        own: dict[str, Any] = {"policy": policy, "view": view}
        if (self._room.project / ".agent").exists():  # the project brings rules of its own
            policy = Policy.load(self._context, run=allowing(unit.configuration.allow))
            own = {"policy": policy}
        agent = Agent(
            model=self._model(),
            index=index,
            approver=self._approver(),
            context=self._context,
            listener=watcher,
            runs=self._stock.workshop.out / RUNS,
            **own,
        )
        return agent.run(case.input, skills=case.setup.skills, before=case.setup.before)

    def _model(self) -> Model:
        name, mock = self._unit.configuration.model, self._unit.case.mock
        if name == "mock" and mock is None:
            raise ConfigError(
                f"The case {self._unit.case.id!r} has no mock: add mock.turns, or name a model."
            )
        if mock is not None and name in {"case", "mock"}:
            return MockModel(mock)
        model = self._stock.model("offline" if name == "case" else name, self._unit.configuration.tape)
        return NormalizedPrompts(model, self._steady) if isinstance(model, Recorded) else model

    def _steady(self, text: str) -> str:
        """Return a prompt without what differs each time: the run's path and a script's seconds."""
        place = str(self._room.project.parent)
        runs = re.escape(str(self._stock.workshop.out / RUNS))
        text = re.sub(rf"{runs}/[\w-]+", "/run", text.replace(place, "/room"))
        return _DURATION.sub("after 0.00 s", text)

    def _approver(self) -> Approver:
        match self._unit.case.setup.answer:
            case "no":
                return _SaysNo()
            case "nobody":
                return Nobody()
            case None:
                return Consent() if self._unit.configuration.yes else Nobody("vade eval run … --yes")

    def _judged(self, outcome: Outcome, watcher: Watcher) -> Judged:
        cut_short = bool(watcher.reason)
        expected = self._unit.case.expected
        if not cut_short and outcome.status not in expected.status:
            if outcome.status == "failed":
                return "error", outcome.answer, []
            if _never_worked(outcome):
                return "unusable", _bad_reply(watcher) or outcome.answer, []
        checks = watcher.limits()
        checks += [
            CheckResult(held.constraint, held.holds, _said(held), held.events, elsewhere=held.elsewhere)
            for held in _decided(watcher)
        ]
        if not cut_short or watcher.reason == "loaded":
            checks += check_skills(expected, loaded_skills(watcher.events))
        if not cut_short:
            checks += self._output(outcome, watcher)
        streamed = self._stock.masked(watcher.streamed)
        checks += check_compliance(watcher.events, streamed=streamed, children=watcher.children)
        return _verdict(checks), "", checks

    def _output(self, outcome: Outcome, watcher: Watcher) -> list[CheckResult]:
        case = self._unit.case
        expected = case.expected
        left = RunArtifacts(
            outcome.answer,
            outcome.status,
            loaded_skills(watcher.events),
            tuple(watcher.events),
            self._room.project,
            self._room.scratch,
            Path(case.place),
        )
        found = [
            *_status(expected.status, outcome),
            *check_output(expected.output, left, sandbox=choose_sandbox),
        ]
        judge = self._unit.configuration.judge
        asked = self._stock.model(judge) if judge and expected.output.judge else None
        return found + judge_statements(
            expected.output.judge, outcome.answer, request=case.input, judge=asked
        )

    def _kept(self) -> tuple[str, ...]:
        """Keep what the run left in its project, before checks work there and the room is gone."""
        changed = self._room.changed()[:MAX_KEPT_FILES]
        place = self._stock.workshop.out / OUTPUTS / self._unit.key[:16]
        for name in changed:
            source = self._room.project / name
            if source.is_file() and not source.is_symlink() and source.stat().st_size <= MAX_KEPT_BYTES:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place / name)
        return tuple(os.fsencode(name).decode("utf-8", "replace") for name in changed)


class _SaysNo:
    """The person of a case who says no to everything."""

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - whatever it is
        """Reject it."""
        return Answer("reject", "")


def _bad_reply(watcher: Watcher) -> str:
    """Return why the last reply of the model could not be used."""
    wrong = [event for event in watcher.events if event.type == "reply_wrong"]
    return f"The model's reply cannot be used: {wrong[-1].data.get('problem', '')}" if wrong else ""


def _never_worked(outcome: Outcome) -> bool:
    """Return whether a run failed because no reply of the model could be parsed."""
    return outcome.status == "degraded" and outcome.stop_reason == "bad_replies"


def _decided(watcher: Watcher) -> list[ConstraintVerdict]:
    """Return all constraints of a whole run; of one that was cut short, those that are decided."""
    if watcher.reason in {"violation", "limit"}:
        first = watcher.trajectory.violation
        return [] if first is None else [first]
    return watcher.trajectory.verdicts()


def _status(wanted: tuple[str, ...], outcome: Outcome) -> list[CheckResult]:
    if not wanted:
        return []
    fits = outcome.status in wanted
    name = f"status {' or '.join(wanted)}"
    return [CheckResult(name, "pass") if fits else CheckResult(name, "fail", f"it is {outcome.status}")]


def _verdict(checks: list[CheckResult]) -> Verdict:
    if any(check.holds == "fail" for check in checks):
        return "fail"
    return "unjudged" if any(check.holds == "skipped" for check in checks) else "pass"


def _said(held: ConstraintVerdict) -> str:
    events = [*map(str, held.events), *held.elsewhere]
    more = f" and {len(events) - MAX_SAID_EVENTS} more" if len(events) > MAX_SAID_EVENTS else ""
    return f"events {', '.join(events[:MAX_SAID_EVENTS])}{more}" if events else ""


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """The skills, the directory of the results, the project that is copied, and the environment."""

    index: SkillIndex
    out: Path
    project: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class UnitResources:
    """Make what the units of one process share: skills, rules and models, each once."""

    def __init__(self, workshop: EvalSettings, models: Mapping[str, Model] | None = None) -> None:
        self.workshop = workshop
        self._made: dict[str, Model] = dict(models or {})
        self._shared: dict[Configuration, tuple[SkillIndex, Policy, View]] = {}
        self._secrets = Secrets(workshop.env)

    def parts(self, configuration: Configuration) -> tuple[SkillIndex, Policy, View]:
        """Return the skills of a configuration, the default rules, and the view of both.

        Configuration near the results is ignored: the rules of a project come with its copy.
        """
        if configuration not in self._shared:
            index = restricted(self.workshop.index, configuration.skills)
            policy = Policy(default_rules(), run=allowing(configuration.allow))
            self._shared[configuration] = (index, policy, View(index, policy))
        return self._shared[configuration]

    def model(self, name: str, tape: str = "") -> Model:
        """Return a model by its name; with ``tape``, one whose replies are recorded there."""
        key = f"{name}\0{tape}" if tape else name
        if key not in self._made:
            made = self._made.get(name) or choose_model(name)
            self._made[key] = Recorded(Path(tape), made, mode="replay") if tape else made
        return self._made[key]

    def masked(self, text: str) -> str:
        """Return a text without secrets, as the record has it."""
        return self._secrets.mask(text)


def restricted(index: SkillIndex, names: tuple[str, ...] | None) -> SkillIndex:
    """Return the index with only these skills, and a hash of its own."""
    if names is None:
        return index
    wanted = set(names)
    fewer = index.restricted([skill for skill in index.skills if skill.name in wanted])
    digest = hashlib.sha256("\0".join([index.hash, *sorted(wanted)]).encode("utf-8", "replace")).hexdigest()
    report = structs.replace(fewer.report, hash=f"sha256:{digest}")
    return dataclasses.replace(fewer, report=report, options=dataclasses.replace(fewer.options, cache=None))


_ERRORS = {"unavailable": ModelUnavailable, "refused": ModelRefused, "wrong": ModelReplyWrong}


class Crash(Exception):
    """An unexpected failure of a mock model."""


class MockModel:
    """Reply what the case says. ``{"seconds": 2, "reply": …}`` waits first, ``{"error": …}`` fails.

    >>> model = MockModel(Mock(turns=[{"error": "refused", "message": "I will not."}]))
    >>> model.reply([], schema={})
    Traceback (most recent call last):
    ...
    vademecum.errors.ModelRefused: I will not.
    """

    name = "mock"

    def __init__(self, mock: Mock) -> None:
        self._turns = mock.turns
        self._scripted = Scripted([_scripted_turn(turn) for turn in mock.turns], piece=mock.piece)

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Return the next turn; after the last one, the last one again."""
        turn = self._turns[min(len(self._scripted.seen), len(self._turns) - 1)]
        if isinstance(turn, Mapping) and isinstance(turn.get("seconds"), int | float):
            time.sleep(float(turn["seconds"]))
        if isinstance(turn, Mapping) and turn.get("error") == "crash":
            raise Crash(str(turn.get("message", "the mock crashed")))
        return self._scripted.reply(messages, schema=schema, on_text=on_text)


def _scripted_turn(turn: Any) -> Turn:
    if not isinstance(turn, Mapping):
        return str(turn)
    if "error" in turn:
        kind = _ERRORS.get(str(turn["error"]), ModelReplyWrong)
        failure: ModelFailed = kind(str(turn.get("message", f"the mock is {turn['error']}")))
        return failure
    if "reply" in turn:
        return _scripted_turn(turn["reply"])
    return {key: value for key, value in turn.items() if key != "seconds"}


class NormalizedPrompts:
    """Ask a recorded model with prompts that contain no path and no duration of this very run.

    Otherwise a recorded reply would not be found again.
    """

    def __init__(self, inner: Model, replaced: Callable[[str], str]) -> None:
        self.name, self.wire, self.needs_ranking = inner.name, wire_of(inner), needs_ranking(inner)
        self._inner = inner
        self._replaced = replaced

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Return the reply to the prompt as it always is."""
        steady = [structs.replace(message, content=self._replaced(message.content)) for message in messages]
        return self._inner.reply(steady, schema=schema, on_text=on_text)
