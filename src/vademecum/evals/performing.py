"""A unit → its result: a place of its own, one run of the agent, everything checked."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event as Flag
from typing import Any

from msgspec import structs

from vademecum.agent.loop import Outcome
from vademecum.assembly.agent import Agent, allowing
from vademecum.config import SandboxName
from vademecum.context import Context
from vademecum.errors import ConfigError, VademecumError
from vademecum.evals.checks import Check, Left
from vademecum.evals.compliance import check_compliance
from vademecum.evals.isolation import Room, room_for
from vademecum.evals.judging import judge_statements
from vademecum.evals.mock import MockModel, Steady
from vademecum.evals.output import check_output
from vademecum.evals.plan import Unit
from vademecum.evals.results import OUTPUTS, RUNS, Result, Verdict
from vademecum.evals.selection import check_skills, loaded_skills
from vademecum.evals.turns import GivesWay, Turn, WaitedFor
from vademecum.evals.watching import Watcher
from vademecum.evals.workshop import Stock, Workshop
from vademecum.models.base import Model
from vademecum.models.by_rules import Offline
from vademecum.models.on_tape import Recorded
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.engine import Policy
from vademecum.tools.sandbox.base import Sandbox
from vademecum.tools.sandbox.choose import choose_sandbox

MAX_ANSWER_CHARS = 20_000
MAX_KEPT_FILES = 20
MAX_KEPT_BYTES = 1024 * 1024

_DURATION = re.compile(r"after \d+\.\d\d s")


class Cancelled(Exception):
    """The evaluation was interrupted before this unit was done: it has no result."""


class Performer:
    """Performs units, any number of them at once; ``models`` are known by name beside the usual ones."""

    def __init__(
        self, workshop: Workshop, *, models: Mapping[str, Model] | None = None, cancelled: Flag | None = None
    ) -> None:
        self.stock = Stock(workshop, models or {})
        self.cancelled = cancelled or Flag()
        self._turns = threading.Lock()

    def perform(self, unit: Unit) -> Result:
        """Run it once; whatever goes wrong is the result, except an interruption."""
        started = time.monotonic()
        turn = Turn(self._turns)
        turn.take()
        try:
            with room_for(unit.case, project=self.stock.workshop.project) as room:
                found = _Trial(unit, room, self, turn).result()
        except Cancelled:
            raise
        except VademecumError as error:
            found = _empty(unit, "error", str(error))
        except Exception as error:  # noqa: BLE001 - one unit's fault must not end the others
            found = _empty(unit, "error", f"Unexpected {type(error).__name__}: {error}")
        finally:
            turn.give()
        return structs.replace(found, seconds=round(time.monotonic() - started, 4))


class _Trial:
    """One unit in its room."""

    def __init__(self, unit: Unit, room: Room, performer: Performer, turn: Turn) -> None:
        self._unit = unit
        self._turn = turn
        self._room = room
        self._stock = performer.stock
        self._cancelled = performer.cancelled
        env = {**self._stock.workshop.env, "HOME": str(room.home)}
        self._context = Context(room.project, room.home, env)

    def result(self) -> Result:
        """Run the agent, and judge what came of it."""
        unit = self._unit
        limit = unit.case.constraints.max_seconds or unit.configuration.seconds
        watcher = Watcher(unit.case, deadline=time.monotonic() + limit, cancelled=self._cancelled)
        outcome = self._run(watcher)
        if watcher.reason == "cancelled":
            raise Cancelled
        verdict, error, checks = self._judged(outcome, watcher, limit)
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
            files=self._kept(),
        )

    def _run(self, watcher: Watcher) -> Outcome:
        unit, case = self._unit, self._unit.case
        index, policy, library = self._stock.parts(unit.configuration)
        own: dict[str, Any] = {"policy": policy, "library": library}
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

    def _judged(self, outcome: Outcome, watcher: Watcher, limit: float) -> tuple[Verdict, str, list[Check]]:
        if watcher.reason == "time":
            return "timeout", f"It was not done after {limit:g} s.", []
        cut_short = bool(watcher.reason)
        expected = self._unit.case.expected
        if outcome.status == "failed" and not cut_short and "failed" not in expected.status:
            return "error", outcome.answer, []
        checks = watcher.limits()
        checks += [Check(v.constraint, v.holds, _said(v.events), v.events) for v in self._verdicts(watcher)]
        if not cut_short or watcher.reason == "loaded":
            checks += check_skills(expected, loaded_skills(watcher.events))
        if not cut_short:
            checks += self._output(outcome, watcher)
        streamed = self._stock.masked(watcher.streamed)
        checks += check_compliance(watcher.events, streamed=streamed)
        return _verdict(checks), "", checks

    def _verdicts(self, watcher: Watcher) -> list[Any]:
        """All constraints of a whole run; of one that was cut short, those that are decided."""
        found = watcher.trajectory.verdicts()
        if watcher.reason in {"violation", "limit"}:
            first = watcher.trajectory.violation
            return [] if first is None else [first]
        return found

    def _output(self, outcome: Outcome, watcher: Watcher) -> list[Check]:
        case = self._unit.case
        expected = case.expected
        found = []
        if expected.status:
            fits = outcome.status in expected.status
            wanted = " or ".join(expected.status)
            found.append(
                Check(
                    f"status {wanted}", "pass" if fits else "fail", "" if fits else f"it is {outcome.status}"
                )
            )
        left = Left(
            outcome.answer,
            outcome.status,
            loaded_skills(watcher.events),
            tuple(watcher.events),
            self._room.project,
            self._room.scratch,
            Path(case.place),
        )
        found += check_output(expected.output, left, sandbox=self._sandbox)
        judge = self._unit.configuration.judge
        asked = self._stock.model(judge) if judge and expected.output.judge else None
        model = None if asked is None else WaitedFor(asked, self._turn)
        return found + judge_statements(
            expected.output.judge, outcome.answer, request=case.input, judge=model
        )

    def _kept(self) -> tuple[str, ...]:
        """Keep what the run left in its project, before the room is gone."""
        changed = self._room.changed()[:MAX_KEPT_FILES]
        place = self._stock.workshop.out / OUTPUTS / self._unit.key[:16]
        for name in changed:
            source = self._room.project / name
            if source.is_file() and not source.is_symlink() and source.stat().st_size <= MAX_KEPT_BYTES:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place / name)
        return tuple(changed)


class _SaysNo:
    """The person of a case who says no to everything."""

    def ask(self, question: Question) -> Answer:  # noqa: ARG002 - whatever it is
        """Reject it."""
        return Answer("reject", "")


def _verdict(checks: list[Check]) -> Verdict:
    if any(check.holds == "fail" for check in checks):
        return "fail"
    return "unjudged" if any(check.holds == "skipped" for check in checks) else "pass"


def _said(events: tuple[int, ...]) -> str:
    return f"events {', '.join(map(str, events))}" if events else ""


def _empty(unit: Unit, outcome: Verdict, error: str) -> Result:
    return Result(unit.key, unit.case.id, unit.configuration.name, unit.repetition, outcome, error=error)


def timed_out(unit: Unit, seconds: float) -> Result:
    """The result of a unit that does not come back."""
    said = f"It was not done after {seconds:g} s, and did not stop when it was told to."
    return structs.replace(_empty(unit, "timeout", said), seconds=seconds)
