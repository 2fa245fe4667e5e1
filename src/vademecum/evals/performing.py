"""A unit → its result: a place of its own, one run of the agent, everything checked."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import Any

from msgspec import structs

from vademecum.agent.loop import Outcome
from vademecum.assembly import Agent, Library, allowing
from vademecum.context import Context
from vademecum.errors import ConfigError, VademecumError
from vademecum.evals.checks import Check, Left
from vademecum.evals.compliance import check_compliance
from vademecum.evals.isolation import Room, room_for
from vademecum.evals.judging import judge_statements
from vademecum.evals.mock import MockModel, Steady
from vademecum.evals.output import check_output
from vademecum.evals.plan import Configuration, Unit
from vademecum.evals.results import OUTPUTS, RUNS, Result, Verdict
from vademecum.evals.selection import check_skills, loaded_skills
from vademecum.evals.watching import Watcher
from vademecum.masking import Secrets
from vademecum.models.base import Model
from vademecum.models.choose import choose_model
from vademecum.models.on_tape import Recorded
from vademecum.policy.approval import Answer, Approver, Consent, Nobody, Question
from vademecum.policy.engine import Policy
from vademecum.registry.index import SkillIndex
from vademecum.tools.sandbox.choose import choose_sandbox

MAX_ANSWER_CHARS = 20_000
MAX_KEPT_FILES = 20
MAX_KEPT_BYTES = 1024 * 1024

_DURATION = re.compile(r"after \d+\.\d\d s")


class Cancelled(Exception):
    """The evaluation was interrupted before this unit was done: it has no result."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What units are performed with: the skills, where results go, what is copied, and the environment."""

    index: SkillIndex
    out: Path
    project: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Performer:
    """Performs units, any number of them at once; ``models`` are known by name beside the usual ones."""

    def __init__(
        self, workshop: Workshop, *, models: Mapping[str, Model] | None = None, cancelled: Flag | None = None
    ) -> None:
        self._workshop = workshop
        self._models: dict[str, Model] = dict(models or {})
        self._shared: dict[Configuration, tuple[SkillIndex, Policy, Library]] = {}
        self._lock = threading.Lock()
        self._secrets = Secrets(workshop.env)
        self.cancelled = cancelled or Flag()

    def perform(self, unit: Unit) -> Result:
        """Run it once; whatever goes wrong is the result, except an interruption."""
        started = time.monotonic()
        try:
            with room_for(unit.case, project=self._workshop.project) as room:
                found = _Trial(unit, room, self).result()
        except Cancelled:
            raise
        except VademecumError as error:
            found = _empty(unit, "error", str(error))
        except Exception as error:  # noqa: BLE001 - one unit's fault must not end the others
            found = _empty(unit, "error", f"Unexpected {type(error).__name__}: {error}")
        return structs.replace(found, seconds=round(time.monotonic() - started, 4))

    def parts(self, configuration: Configuration) -> tuple[SkillIndex, Policy, Library]:
        """The skills of a configuration, the rules where nobody wrote any, and search: made once."""
        with self._lock:
            if configuration not in self._shared:
                index = restricted(self._workshop.index, configuration.skills)
                nowhere = Context(self._workshop.out, Path("/nonexistent"), self._workshop.env)
                policy = Policy.load(nowhere, run=allowing(configuration.allow))
                self._shared[configuration] = (index, policy, Library.of(index, policy))
            return self._shared[configuration]

    def model(self, name: str, tape: str = "") -> Model:
        """A model by its name, made once."""
        with self._lock:
            key = f"{name}\0{tape}" if tape else name
            if key not in self._models:
                made = self._models.get(name) or choose_model(name)
                self._models[key] = Recorded(Path(tape), made, mode="replay") if tape else made
            return self._models[key]

    @property
    def workshop(self) -> Workshop:
        """What it works with."""
        return self._workshop

    def masked(self, text: str) -> str:
        """A text as the record has it."""
        return self._secrets.mask(text)


def restricted(index: SkillIndex, names: tuple[str, ...] | None) -> SkillIndex:
    """The index with only these skills; a library of its own, with a hash of its own, kept nowhere."""
    if names is None:
        return index
    wanted = set(names)
    fewer = index.restricted([skill for skill in index.skills if skill.name in wanted])
    digest = hashlib.sha256("\0".join([index.hash, *sorted(wanted)]).encode("utf-8", "replace")).hexdigest()
    report = structs.replace(fewer.report, hash=f"sha256:{digest}")
    return dataclasses.replace(fewer, report=report, options=dataclasses.replace(fewer.options, cache=None))


class _Trial:
    """One unit in its room."""

    def __init__(self, unit: Unit, room: Room, performer: Performer) -> None:
        self._unit = unit
        self._room = room
        self._performer = performer
        workshop = performer.workshop
        self._context = Context(room.project, room.home, {**workshop.env, "HOME": str(room.home)})

    def result(self) -> Result:
        """Run the agent, and judge what came of it."""
        unit = self._unit
        limit = unit.case.constraints.max_seconds or unit.configuration.seconds
        watcher = Watcher(unit.case, deadline=time.monotonic() + limit, cancelled=self._performer.cancelled)
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
            self._performer.masked(outcome.answer)[:MAX_ANSWER_CHARS],
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
        index, policy, library = self._performer.parts(unit.configuration)
        own: dict[str, Any] = {"policy": policy, "library": library}
        if (self._room.project / ".agent").exists():  # the project brings rules of its own
            policy = Policy.load(self._context, run=allowing(unit.configuration.allow))
            own = {"policy": policy}
        agent = Agent(
            model=self._model(),
            index=index,
            approver=self._approver(),
            context=self._context,
            listener=watcher,
            runs=self._performer.workshop.out / RUNS,
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
        model = self._performer.model("offline" if name == "case" else name, self._unit.configuration.tape)
        return Steady(model, self._steady) if isinstance(model, Recorded) else model

    def _steady(self, text: str) -> str:
        """A prompt without what is different each time: where the run lies, and how long a script took."""
        place = str(self._room.project.parent)
        runs = re.escape(str(self._performer.workshop.out / RUNS))
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
        streamed = self._performer.masked(watcher.streamed)
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
        found += check_output(expected.output, left, sandbox=partial(choose_sandbox, "auto"))
        judge = self._unit.configuration.judge
        model = self._performer.model(judge) if judge and expected.output.judge else None
        return found + judge_statements(
            expected.output.judge, outcome.answer, request=case.input, judge=model
        )

    def _kept(self) -> tuple[str, ...]:
        """Keep what the run left in its project, before the room is gone."""
        changed = self._room.changed()[:MAX_KEPT_FILES]
        place = self._performer.workshop.out / OUTPUTS / self._unit.key[:16]
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
