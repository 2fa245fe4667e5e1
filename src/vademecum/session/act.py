"""One call of a tool: ask the gate about everything it needs, do it within limits, write it down."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from vademecum.errors import Declined, Denied, VademecumError
from vademecum.policy.approval import Approver
from vademecum.policy.base import Decision, Effect, Origin, Request
from vademecum.policy.bounds import bounded, needs_approval, risk_of
from vademecum.policy.engine import RUN
from vademecum.policy.gate import Decided, Gate, Passage, said
from vademecum.policy.grants import ApprovedTexts
from vademecum.runs.record import Record
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.interpreters import search_path
from vademecum.session.place import Place
from vademecum.session.view import files_seen
from vademecum.skill.assets import script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls, reading, script, writing
from vademecum.tools.calls import Observation
from vademecum.tools.snapshot import Snapshots

if TYPE_CHECKING:
    from vademecum.tools.network import Hop

# A permission, and what it is wanted for.
Finer = tuple[str, tuple[str, ...]]

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")


class Run:
    """One run of a conversation: its record, the numbers of its calls, and the copies of skills it made."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.numbers = itertools.count(1)
        self.snapshots = Snapshots(record.place / "skills")
        self.going_on = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the calls of one run work with."""

    run: Run
    gate: Gate
    place: Place
    sandbox: Callable[[], Sandbox]
    skill_at: Callable[[Path], Skill | None]
    agent: str
    # The skills whose `allowed-tools` bound every direct tool.
    active: tuple[Skill, ...] = ()


@dataclass(slots=True)
class Act:
    """One call of a tool, from the first question to its entry in the record.

    A refusal by a rule is an observation that a model can act on. A person's no is raised: the caller must
    not go on as if it had not been said.
    """

    around: RunContext
    call: calls.ToolCall
    approver: Approver
    skill: Skill | None = None
    origin: Origin = "model"
    cancelled: Callable[[], bool] = bool
    number: int = 0
    passage: Passage | None = None
    refused: Decision | None = None
    asked: list[Decided] = field(default_factory=list)

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return calls.NAMES[type(self.call)]

    def perform(self) -> Observation:
        """Do it, and write it down, whatever comes of it."""
        self.number = next(self.around.run.numbers)
        with self._recorded() as done:
            try:
                observation = self._perform()
            except Declined as error:
                done(Observation(self.tool, str(error), code=error.code))
                raise
            except VademecumError as error:
                observation = Observation(self.tool, str(error), code=error.code)
            except (OSError, ValueError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or error
                observation = Observation(
                    self.tool, f"{self.tool} failed ({reason}): try another way.", code="failed"
                )
            done(observation)
        return observation

    def _perform(self) -> Observation:
        workspace = self.around.place.workspace
        match self.call:
            case calls.ReadFile(path=path):
                self._require(self._reads(path))
                return reading.read_file(self.call, workspace)
            case calls.ListDir(path=path):
                self._require(self._reads(path))
                return reading.list_dir(self.call, workspace, self._may_read)
            case calls.Grep(path=path):
                self._require(self._reads(path))
                return reading.grep(self.call, workspace, self._may_read)
            case calls.WriteFile(path=path):
                about = partial(writing.planned_write, self.call, workspace)
                self._require(self._writes(path), about=about, exact=self._content(path, self.call.content))
                return writing.write_file(self.call, workspace)
            case calls.DeleteFile(path=path):
                about = partial("delete {}".format, path)
                self._require(self._writes(path, "delete"), about=about, exact=self._content(path))
                return writing.delete_file(self.call, workspace, self.around.run.record.place / "trash")
            case calls.NetworkRequest():
                return self._request(self.call)
            case calls.RunScript():
                return self._run_script(self.call)
            case _:
                assert_never(self.call)

    def _run_script(self, call: calls.RunScript) -> Observation:
        """Copy what it would run with, ask for exactly that, and run it."""
        assert self.skill is not None
        resource = (f"{self.skill.name}/{script_name(self.skill, call.relative_path)}",)
        workspace = self.around.place.workspace
        inputs = [(path, workspace.locate(path)) for path in call.files]
        requests: list[Finer] = [("skill", (self.skill.name,)), ("script", resource)]
        requests += [finer for _, located in inputs for finer in self._reads(located.name)]
        requests += [("script-network", resource)] if call.network else []
        self._decide(requests)
        self._refuse_early()
        with script.inputs_kept(self._directory / "inputs"):
            copies = script.copy_inputs(inputs, self._directory / "inputs")
            snapshot = self.around.run.snapshots.take(self.skill)
            path = search_path(self.around.place.context.env.get("PATH", ""))
            sees = files_seen(self.around.gate, self.skill, agent=self.around.agent, origin=self.origin)
            plan = script.plan_script(call, self.skill, snapshot, copies, path=path, sees=sees)
            return self._run_planned(plan)

    def _run_planned(self, plan: script.Plan) -> Observation:
        execution = self.around.place.config.execution
        limits = script.limits_of(execution)
        approved = ApprovedTexts(self.around.place.grants)

        def about() -> str:
            last = approved.last(plan.resource)
            return script.about_script(plan, approved=last, sandbox=self.around.sandbox().name, limits=limits)

        self._settle((plan.relative,), about=about, exact=plan.exact, digest=plan.snapshot.digest)
        if self.passage is not None and self.passage.seen:
            approved.keep(plan.resource, plan.text, plan.files)
        env = self.around.place.context.env
        return script.run_script(
            plan,
            self.around.sandbox(),
            self._directory,
            limits=limits,
            environment={name: env[name] for name in execution.environment if name in env},
            cancelled=self.cancelled,
        )

    def _decide(self, finer: Sequence[Finer]) -> None:
        """Find out what the rules say of the tool itself and of what it is used on."""
        name = None if self.skill is None else self.skill.name
        wanted = (("tool", (self.tool,)), *finer)
        requests = [Request(each, names, self.origin, self.around.agent, name) for each, names in wanted]
        self.asked = [(request, self.around.gate.decide(request)) for request in requests]

    def _refuse_early(self) -> None:
        """Refuse what a rule denies before anything is copied or a name of it is told."""
        for request, decision in self.asked:
            if decision.effect is Effect.DENY:
                self.refused = decision
                raise Denied(f"{said(request, decision)}.")

    def _require(
        self,
        finer: Sequence[Finer],
        *,
        about: Callable[[], str] = str,
        exact: Callable[[], str] = str,
        within: tuple[str, ...] = (),
    ) -> None:
        """Ask for the tool itself and for what it is used on, with everything that bounds it."""
        self._decide(finer)
        used_on = within or tuple(resource for _, resources in finer for resource in resources)
        digest = "" if self.skill is None else skill_digest(self.skill)
        self._settle(used_on, about=about, exact=exact, digest=digest)

    def _settle(
        self,
        used_on: tuple[str, ...],
        *,
        about: Callable[[], str],
        exact: Callable[[], str],
        digest: str,
    ) -> None:
        decided = [decision for _, decision in self.asked]
        also = [*self._bounds(used_on), *self._risk(decided[0])]
        worst = max((*decided, *also), key=lambda decision: decision.effect)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        self.passage = self.around.gate.settle(
            self.asked, approver=self.approver, digest=lambda: digest, about=about, exact=exact, also=also
        )

    def _bounds(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return what ``allowed-tools`` excludes: a script's own list, or for other tools all active ones."""
        is_script = isinstance(self.call, calls.RunScript)
        skills = (self.skill,) if is_script else self.around.active
        found = [
            bounded(self.tool, used_on, skill=skill.name, allowed_tools=skill.controls.allowed_tools)
            for skill in skills
            if skill is not None
        ]
        return [decision for decision in found if decision is not None]

    def _risk(self, decision: Decision) -> list[Decision]:
        """The approval that a risky tool needs, unless this very run was started with it."""
        if decision.effect is Effect.ALLOW and decision.layer == RUN:
            return []
        needed = needs_approval(self.tool, careful=self.around.place.config.execution.require_approval_for)
        return [] if needed is None else [needed]

    def _request(self, call: calls.NetworkRequest) -> Observation:
        from vademecum.tools.network import about_request, network_request  # noqa: PLC0415 - for this tool alone

        def permit(permission: str, hop: Hop) -> None:
            about = partial(about_request, call, hop) if permission == "network" else str
            self._require([(permission, hop.resources)], about=about, exact=about, within=(hop.host,))

        return network_request(call, permit=permit, keep=self._directory / "answer")

    def _reads(self, path: str) -> list[Finer]:
        workspace = self.around.place.workspace
        located = workspace.locate(path)
        found: list[Finer] = [("read", workspace.names(located))]
        return found + self._skill_read(Path(os.path.realpath(located.path)))

    def _writes(self, path: str, permission: str = "write") -> list[Finer]:
        workspace = self.around.place.workspace
        return [(permission, workspace.names(workspace.locate(path)))]

    def _content(self, path: str, new: str = "") -> Callable[[], str]:
        """What an answer about changing a file depends on: what is in it now, and what would be."""
        return lambda: f"{writing.content_digest(path, self.around.place.workspace)} {new}"

    def _skill_read(self, real: Path) -> list[Finer]:
        """A file of a skill is the skill's, whichever tool reads it."""
        skill = self.around.skill_at(real)
        return [] if skill is None else [("skill", (skill.name,))]

    def _may_read(self, real: Path) -> bool:
        """Return whether a path may be read without asking; what may not is not mentioned."""
        names = self.around.place.workspace.rule_names(real)
        finer = [("read", names), *self._skill_read(Path(os.path.realpath(real)))]
        return all(
            self.around.gate.decide(Request(permission, resources, self.origin, self.around.agent)).effect
            is Effect.ALLOW
            for permission, resources in finer
        )

    @property
    def _directory(self) -> Path:
        return self.around.run.record.place / "calls" / f"{self.number:04}"

    @contextmanager
    def _recorded(self) -> Iterator[Callable[[Observation], None]]:
        """Write the call down, whatever happens."""
        started, clock = time.time(), time.monotonic()
        seen = [Observation(self.tool, "", code="interrupted")]
        try:
            yield seen.append
        finally:
            entry = Entry(
                number=self.number,
                agent=self.around.agent,
                skill=self.skill,
                started=started,
                seconds=time.monotonic() - clock,
                decision=self.passage.decision if self.passage is not None else self.refused,
                asked=self.asked,
                approved_by=None if self.passage is None else self.passage.by,
            )
            written = record_of(entry, calls.said(self.call), seen[-1])
            self.around.run.record.add_bounded("tool_called", **written)


@dataclass(frozen=True, slots=True)
class Entry:
    """Who called, when, and what the rules said."""

    number: int
    agent: str
    skill: Skill | None
    started: float
    seconds: float = 0.0
    decision: Decision | None = None
    asked: Sequence[Decided] = ()
    approved_by: str | None = None


def record_of(entry: Entry, parameters: Mapping[str, Any], seen: Observation) -> dict[str, Any]:
    """Return the fields of the event for one call."""
    facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
    asked = [
        {
            "permission": request.permission,
            "resources": list(request.resources),
            "effect": decision.effect.name.lower(),
        }
        for request, decision in entry.asked
    ]
    return {
        "call": entry.number,
        "tool": seen.tool,
        "risk": risk_of(seen.tool).name.lower(),
        "agent": entry.agent,
        "skill": None if entry.skill is None else entry.skill.name,
        "skill_id": None if entry.skill is None else entry.skill.skill_id,
        "parameters": dict(parameters),
        "started": entry.started,
        "seconds": entry.seconds,
        "decision": None if entry.decision is None else entry.decision.to_json(),
        "asked": asked,
        "approved_by": entry.approved_by,
        "ok": seen.ok,
        "code": seen.code,
        "result": {**facts, "text": seen.text, "files": list(seen.files)},
        "hashes": {key: seen.facts[key] for key in _HASHES if key in seen.facts},
    }
