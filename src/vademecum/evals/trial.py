"""One unit in its room: the agent runs, and what it leaves is handed to everything that checks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from vademecum.agent.agent import Agent
from vademecum.agent.loop import Outcome
from vademecum.config import SandboxName
from vademecum.context import Context
from vademecum.errors import ConfigError
from vademecum.evals.checks import Check, Left
from vademecum.evals.compliance import check_compliance
from vademecum.evals.isolation import Room
from vademecum.evals.judging import judge_statements
from vademecum.evals.mock import MockModel, Steady
from vademecum.evals.output import check_output
from vademecum.evals.plan import Unit
from vademecum.evals.results import OUTPUTS, RUNS, Result, Verdict
from vademecum.evals.selection import check_skills, loaded_skills
from vademecum.evals.stopping import late
from vademecum.evals.trajectory import Verdict as Held
from vademecum.evals.turns import GivesWay, Turn, WaitedFor
from vademecum.evals.watching import Watcher
from vademecum.evals.workshop import Stock
from vademecum.models.base import Model
from vademecum.models.by_rules import Offline
from vademecum.models.on_tape import Recorded
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.engine import Policy, allowing
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.choose import choose_sandbox

MAX_ANSWER_CHARS = 20_000
MAX_KEPT_FILES = 20
MAX_KEPT_BYTES = 1024 * 1024
MAX_SAID_EVENTS = 20
# For the checks of one run that are programs; a judge has as long as the run had.
CHECK_SECONDS = 150.0

# The verdict, what went wrong, and the checks.
Judged = tuple[Verdict, str, list[Check]]

_DURATION = re.compile(r"after \d+\.\d\d s")


class Trial:
    """One unit in its room."""

    def __init__(self, unit: Unit, room: Room, stock: Stock, turn: Turn) -> None:
        self._unit = unit
        self._turn = turn
        self._room = room
        self._stock = stock
        env = {**stock.workshop.env, "HOME": str(room.home)}
        self._context = Context(room.project, room.home, env)

    def result(self) -> Result:
        """Run the agent, and judge what came of it."""
        unit, stop = self._unit, self._turn.stop
        limit = stop.seconds
        watcher = Watcher(unit.case, stop)
        outcome = self._run(watcher)
        if outcome.status == "interrupted" and stop.reason == "cancelled":
            raise KeyboardInterrupt
        files = self._kept()
        if stop.ended or outcome.status == "interrupted":
            verdict, error, checks = _too_late(limit)
        else:
            stop.begin_anew(CHECK_SECONDS + unit.configuration.seconds)
            verdict, error, checks = self._judged(outcome, watcher)
        stats = outcome.stats
        started = watcher.events[0].data if watcher.events else {}
        return Result(
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
            listener=self._turn.heard(watcher),
            sandbox=self._sandbox,
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
            return MockModel(mock, sleep=self._turn.sleep)
        model = self._stock.model("offline" if name == "case" else name, self._unit.configuration.tape)
        if isinstance(model, Offline):  # it computes, here and now
            return model
        return WaitedFor(Steady(model, self._steady) if isinstance(model, Recorded) else model, self._turn)

    def _sandbox(self, wanted: SandboxName = "auto") -> Sandbox:
        return GivesWay(choose_sandbox(wanted), self._turn)

    def _steady(self, text: str) -> str:
        """A prompt without what is different each time: where the run lies, and how long a script took."""
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
                return "unusable", outcome.answer, []
        checks = watcher.limits()
        checks += [
            Check(held.constraint, held.holds, _said(held), held.events, elsewhere=held.elsewhere)
            for held in _decided(watcher)
        ]
        if not cut_short or watcher.reason == "loaded":
            checks += check_skills(expected, loaded_skills(watcher.events))
        if not cut_short:
            checks += self._output(outcome, watcher)
        streamed = self._stock.masked(watcher.streamed)
        checks += check_compliance(watcher.events, streamed=streamed, children=watcher.children)
        return _verdict(checks), "", checks

    def _output(self, outcome: Outcome, watcher: Watcher) -> list[Check]:
        case = self._unit.case
        expected = case.expected
        left = Left(
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
            *check_output(expected.output, left, sandbox=self._sandbox),
        ]
        judge = self._unit.configuration.judge
        asked = self._stock.model(judge) if judge and expected.output.judge else None
        model = None if asked is None else WaitedFor(asked, self._turn)
        return found + judge_statements(
            expected.output.judge, outcome.answer, request=case.input, judge=model
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


def _too_late(limit: float) -> Judged:
    return "timeout", late(limit), []


def _never_worked(outcome: Outcome) -> bool:
    """Whether a run came to nothing because what the model said could not be used."""
    return outcome.status == "degraded" and outcome.stop_reason == "bad_replies"


def _decided(watcher: Watcher) -> list[Held]:
    """All constraints of a whole run; of one that was cut short, those that are decided."""
    if watcher.reason in {"violation", "limit"}:
        first = watcher.trajectory.violation
        return [] if first is None else [first]
    return watcher.trajectory.verdicts()


def _status(wanted: tuple[str, ...], outcome: Outcome) -> list[Check]:
    if not wanted:
        return []
    fits = outcome.status in wanted
    name = f"status {' or '.join(wanted)}"
    return [Check(name, "pass") if fits else Check(name, "fail", f"it is {outcome.status}")]


def _verdict(checks: list[Check]) -> Verdict:
    if any(check.holds == "fail" for check in checks):
        return "fail"
    return "unjudged" if any(check.holds == "skipped" for check in checks) else "pass"


def _said(held: Held) -> str:
    events = [*map(str, held.events), *held.elsewhere]
    more = f" and {len(events) - MAX_SAID_EVENTS} more" if len(events) > MAX_SAID_EVENTS else ""
    return f"events {', '.join(events[:MAX_SAID_EVENTS])}{more}" if events else ""
