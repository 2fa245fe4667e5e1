"""The tools of one run, behind the gate, each call on the record."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, assert_never

from msgspec import structs

from vademecum.config import ExecutionSettings
from vademecum.errors import Declined, Denied, VademecumError
from vademecum.masking import Secrets
from vademecum.policy.base import Decision, Effect, Origin, Request
from vademecum.policy.bounds import bounded
from vademecum.policy.engine import RUN
from vademecum.policy.gate import Gate, Passage, said
from vademecum.policy.risk import needs_approval, risk_of
from vademecum.policy.trust import ApprovedTexts
from vademecum.skill.assets import script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls, network, reading, script, writing
from vademecum.tools.base import AuditRecord, Observation, Observer
from vademecum.tools.interpreters import search_path
from vademecum.tools.sandbox.base import Sandbox
from vademecum.tools.snapshot import Snapshots
from vademecum.tools.workspace import Located, Workspace

MAX_RECORDED_CHARS = 2000
MAX_MASKED_CHARS = 50_000
MAX_RECORDED_ITEMS = 100

# A permission, and what it is wanted for.
Finer = tuple[str, tuple[str, ...]]

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What tools are given by whoever makes them: where they may act, where they keep things, who is told."""

    workspace: Workspace
    record: Path
    skill: Callable[[str], Skill]
    sandbox: Callable[[], Sandbox]
    execution: ExecutionSettings = ExecutionSettings()
    env: Mapping[str, str] = field(default_factory=dict)
    skill_at: Callable[[Path], Skill | None] = lambda path: None  # noqa: ARG005
    approved: ApprovedTexts | None = None
    observer: Observer | None = None
    agent: str = "default"
    origin: Origin = "model"
    clock: Callable[[], float] = time.time
    # Of this record: other tools that write into the same one go on with the same numbers and copies.
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    snapshots: Snapshots | None = None


@dataclass(slots=True)
class _Entry:
    """What is known of a call while it goes on."""

    number: int
    call: calls.Call
    skill: Skill | None
    cancelled: Callable[[], bool] = bool
    target: Skill | None = None
    passage: Passage | None = None
    refused: Decision | None = None
    asked: list[tuple[Request, Decision]] = field(default_factory=list)


class Tools:
    """Runs calls: each asks the gate, does its work within limits, and leaves a record.

    A refusal by a rule is an observation that a model can act on. A person's no is raised: nobody may go on
    as if it had not been said.
    """

    def __init__(self, gate: Gate, surroundings: Surroundings) -> None:
        self._gate = gate
        self._around = surroundings
        self._workspace = surroundings.workspace
        self._snapshots = surroundings.snapshots or Snapshots(surroundings.record / "skills")
        self._numbers = surroundings.numbers
        self._secrets = Secrets(surroundings.env)

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox of this run, found out when the first script wants one."""
        return self._around.sandbox()

    def call(self, tool: object, arguments: Any, *, skill: Skill | None = None) -> Observation:
        """Run one tool by its name, on behalf of a skill or of nobody in particular."""
        try:
            parsed = calls.parse_call(tool, arguments)
        except VademecumError as error:
            observation = Observation(str(tool)[:80], str(error), code=error.code)
            self._tell(self._wrong_call(arguments, observation, skill))
            return observation
        return self.run(parsed, skill=skill)

    def run(
        self, call: calls.Call, *, skill: Skill | None = None, cancelled: Callable[[], bool] = bool
    ) -> Observation:
        """Run one call that was checked already; a script ends when ``cancelled`` says so."""
        entry = _Entry(next(self._numbers), call, skill, cancelled)
        with self._recorded(entry) as done:
            try:
                observation = self._run(entry)
            except Declined as error:
                done(Observation(calls.NAMES[type(call)], str(error), code=error.code))
                raise
            except VademecumError as error:
                observation = Observation(calls.NAMES[type(call)], str(error), code=error.code)
            except (OSError, ValueError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or error
                text = f"{calls.NAMES[type(call)]} failed ({reason}): try another way."
                observation = Observation(calls.NAMES[type(call)], text, code="failed")
            done(observation)
        return observation

    def _run(self, entry: _Entry) -> Observation:
        match entry.call:
            case calls.ReadFile(path=path):
                self._require(entry, self._reads(path))
                return reading.read_file(entry.call, self._workspace)
            case calls.ListDir(path=path):
                self._require(entry, self._reads(path))
                return reading.list_dir(entry.call, self._workspace, self._may_read)
            case calls.Grep(path=path):
                self._require(entry, self._reads(path))
                return reading.grep(entry.call, self._workspace, self._may_read)
            case calls.WriteFile(path=path):
                about = partial(writing.planned_write, entry.call, self._workspace)
                self._require(entry, self._writes(path), about=about)
                return writing.write_file(entry.call, self._workspace)
            case calls.DeleteFile(path=path):
                self._require(entry, self._writes(path, "delete"), about=lambda: f"delete {path}")
                return writing.delete_file(entry.call, self._workspace, self._around.record / "trash")
            case calls.NetworkRequest():
                keep = self._place(entry) / "answer"
                return network.network_request(entry.call, permit=partial(self._permit, entry), keep=keep)
            case calls.RunScript():
                return self._run_script(entry, entry.call)
            case _:
                assert_never(entry.call)

    def _run_script(self, entry: _Entry, call: calls.RunScript) -> Observation:
        skill = entry.target = self._around.skill(call.skill)
        relative = script_name(skill, call.script)
        inputs = tuple(self._workspace.locate(path) for path in call.files)
        requests: list[Finer] = [("skill", (skill.name,)), ("script", (f"{skill.name}/{relative}",))]
        requests += [finer for located in inputs for finer in self._reads(located.name)]
        requests += [("script-network", (f"{skill.name}/{relative}",))] if call.network else []
        self._refuse_early(entry, requests)
        place = self._place(entry)
        named = tuple(zip(call.files, inputs, strict=True))
        with script.inputs_kept(place / "inputs"):
            return self._run_planned(entry, call, skill, requests, named, place)

    def _run_planned(  # noqa: PLR0913, PLR0917 - what is known of it so far
        self,
        entry: _Entry,
        call: calls.RunScript,
        skill: Skill,
        requests: list[Finer],
        named: tuple[tuple[str, Located], ...],
        place: Path,
    ) -> Observation:
        """Copy what it would run with, ask for that, and run it."""
        copies = script.copy_inputs(named, place / "inputs")
        snapshot = self._snapshots.take(skill)
        path = search_path(self._around.env.get("PATH", ""))
        plan = script.plan_script(call, skill, snapshot, copies, path=path)
        limits = script.limits_of(self._around.execution)
        approved = self._around.approved

        def about() -> str:
            last = approved.last(plan.resource) if approved is not None else None
            return script.about_script(plan, approved=last, sandbox=self.sandbox.name, limits=limits)

        self._require(entry, requests, about=about, digest=snapshot.digest, within=(plan.relative,))
        if approved is not None and entry.passage is not None and entry.passage.seen:
            approved.keep(plan.resource, plan.text, plan.files)
        names = self._around.execution.environment
        env = {name: self._around.env[name] for name in names if name in self._around.env}
        return script.run_script(
            plan, self.sandbox, place, limits=limits, environment=env, cancelled=entry.cancelled
        )

    def _refuse_early(self, entry: _Entry, finer: Sequence[Finer]) -> None:
        """What a rule denies is not even looked at: nothing is copied, and no name of it is told."""
        for request in self._requests(entry, finer):
            decision = self._gate.decide(request)
            entry.asked.append((request, decision))
            if decision.effect is Effect.DENY:
                entry.refused = decision
                raise Denied(f"{said(request, decision)}.")

    def _requests(self, entry: _Entry, finer: Sequence[Finer]) -> list[Request]:
        tool = calls.NAMES[type(entry.call)]
        skill = entry.target or entry.skill
        name = None if skill is None else skill.name
        return [
            Request(permission, resources, self._around.origin, self._around.agent, name)
            for permission, resources in (("tool", (tool,)), *finer)
        ]

    def _require(
        self,
        entry: _Entry,
        finer: Sequence[Finer],
        *,
        about: Callable[[], str] = str,
        digest: str = "",
        within: tuple[str, ...] = (),
    ) -> None:
        """Ask for the tool itself and for what it is used on, with everything that bounds it."""
        tool = calls.NAMES[type(entry.call)]
        requests = self._requests(entry, finer)
        also = [needs_approval(tool, careful=self._around.execution.require_approval_for)]
        if self._said_in_this_run(requests[0]):
            also = []
        used_on = within or tuple(resource for _, resources in finer for resource in resources)
        for skill in filter(None, (entry.skill, entry.target)):  # whoever calls, and whose script it is
            allowed = skill.controls.allowed_tools
            also.append(bounded(tool, used_on, skill=skill.name, allowed_tools=allowed))
        decisions = [decision for decision in also if decision is not None]
        entry.asked = [(request, self._gate.decide(request)) for request in requests]
        found = [decision for _, decision in entry.asked]
        worst = max((*found, *decisions), key=lambda decision: decision.effect)
        entry.refused = worst if worst.effect is not Effect.ALLOW else None
        if not digest and entry.skill is not None:
            digest = skill_digest(entry.skill)
        entry.passage = self._gate.require(*requests, digest=lambda: digest, about=about, also=decisions)

    def _said_in_this_run(self, request: Request) -> bool:
        """Whether this very run was started with an approval of the tool."""
        decision = self._gate.decide(request)
        return decision.effect is Effect.ALLOW and decision.layer == RUN

    def _permit(self, entry: _Entry, permission: str, hop: network.Hop) -> None:
        about = partial(network.about_request, entry.call, hop) if permission == "network" else str
        self._require(entry, [(permission, hop.resources)], about=about, within=(hop.host,))

    def _reads(self, path: str) -> list[Finer]:
        located = self._workspace.locate(path)
        found: list[Finer] = [("read", self._workspace.names(located))]
        return found + self._skill_read(Path(os.path.realpath(located.path)))

    def _writes(self, path: str, permission: str = "write") -> list[Finer]:
        return [(permission, self._workspace.names(self._workspace.locate(path)))]

    def _skill_read(self, real: Path) -> list[Finer]:
        """A file of a skill is the skill's, whichever tool reads it."""
        skill = self._around.skill_at(real)
        return [] if skill is None else [("skill", (skill.name,))]

    def _may_read(self, real: Path) -> bool:
        """Whether a path may be read without asking; of what may not, nothing is said."""
        agent, origin = self._around.agent, self._around.origin
        names = self._workspace.rule_names(real)
        finer = [("read", names), *self._skill_read(Path(os.path.realpath(real)))]
        return all(
            self._gate.decide(Request(permission, resources, origin, agent)).effect is Effect.ALLOW
            for permission, resources in finer
        )

    def _place(self, entry: _Entry) -> Path:
        return self._around.record / "calls" / f"{entry.number:04}"

    @contextmanager
    def _recorded(self, entry: _Entry) -> Iterator[Callable[[Observation], None]]:
        """Tell the observer, whatever happens."""
        started, clock = self._around.clock(), time.monotonic()
        seen = [Observation(calls.NAMES[type(entry.call)], "", code="interrupted")]
        try:
            yield seen.append
        finally:
            seconds = time.monotonic() - clock
            self._tell(self._record(entry, seen[-1], started, seconds))

    def _tell(self, record: AuditRecord) -> None:
        if self._around.observer is not None:
            self._around.observer(record)

    def _wrong_call(self, arguments: Any, seen: Observation, skill: Skill | None) -> AuditRecord:
        return AuditRecord(
            call=next(self._numbers),
            tool=seen.tool,
            risk=risk_of(seen.tool).name.lower(),
            agent=self._around.agent,
            skill=None if skill is None else skill.name,
            parameters={"wrong": self._secrets.mask(repr(arguments)[:MAX_MASKED_CHARS])[:MAX_RECORDED_CHARS]},
            started=self._around.clock(),
            seconds=0.0,
            decision=None,
            asked=[],
            approved_by=None,
            ok=False,
            code=seen.code,
            result={"text": self._secrets.mask(seen.text)},
            hashes={},
        )

    def _record(self, entry: _Entry, seen: Observation, started: float, seconds: float) -> AuditRecord:
        decision = entry.passage.decision if entry.passage is not None else entry.refused
        facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
        skill = entry.target or entry.skill
        return AuditRecord(
            call=entry.number,
            tool=seen.tool,
            risk=risk_of(seen.tool).name.lower(),
            agent=self._around.agent,
            skill=None if skill is None else skill.name,
            parameters=self._written(structs.asdict(entry.call)),
            started=started,
            seconds=seconds,
            decision=None if decision is None else self._written(decision.to_json()),
            asked=[
                {
                    "permission": request.permission,
                    "resources": self._secrets.mask_all(list(request.resources[:MAX_RECORDED_ITEMS])),
                    "effect": one.effect.name.lower(),
                }
                for request, one in entry.asked
            ],
            approved_by=None if entry.passage is None else entry.passage.by,
            ok=seen.ok,
            code=seen.code,
            result=self._written({**facts, "text": seen.text, "files": list(seen.files)}),
            hashes={key: seen.facts[key] for key in _HASHES if key in seen.facts},
        )

    def _written(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values as they are kept: first without secrets, then not too long."""
        masked: dict[str, Any] = self._secrets.mask_all(_cut(values, MAX_MASKED_CHARS))
        found: dict[str, Any] = _cut(masked, MAX_RECORDED_CHARS)
        return found


def _cut(value: Any, most: int) -> Any:
    match value:
        case str():
            return value if len(value) <= most else f"{value[:most]}…"
        case dict():
            return {key: _cut(item, most) for key, item in value.items()}
        case list() | tuple():
            kept = [_cut(item, most) for item in value[:MAX_RECORDED_ITEMS]]
            return kept if len(value) <= MAX_RECORDED_ITEMS else [*kept, f"… {len(value):,} in all"]
    return value
