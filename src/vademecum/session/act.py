"""One call of a tool: ask the gate about everything it needs, do it within limits, write it down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import structs

from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.policy.base import Decision, Effect, Origin, Request, Rule
from vademecum.policy.bounds import bounded, needs_approval, risk_of
from vademecum.policy.engine import APPROVAL, FIXED, RUN
from vademecum.policy.gate import Decided, Gate, Passage, refusal
from vademecum.policy.grants import ApprovedTexts
from vademecum.runs.record import OBSERVATIONS
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.interpreters import search_path
from vademecum.session.asking import CallRecord
from vademecum.session.base import Deferred
from vademecum.session.place import Place
from vademecum.session.recording import Run
from vademecum.session.view import SkillFiles, files_seen
from vademecum.skill.assets import no_script, script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls, reading, script, writing
from vademecum.tools.calls import Observation

if TYPE_CHECKING:
    from vademecum.tools.network import Hop

# A permission, what it is wanted for, and what a model calls that.
Finer = tuple[str, tuple[str, ...], str]
# What a rule denies of these looks to a model like what does not exist.
_HIDING = frozenset({"read", "skill", "resource", "script"})
CLOSED_TO_AGENTS = "no rule, flag or answer allows it"
# What stays closed after a model itself unloaded the skill that excludes it.
_LASTING = frozenset({"write_file", "delete_file", "network_request"})

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the calls of one run work with."""

    run: Run
    gate: Gate
    place: Place
    sandbox: Callable[[], Sandbox]
    skills: SkillFiles
    agent: str
    # The skills whose `allowed-tools` bound every direct tool, and those that the model itself unloaded.
    active: tuple[Skill, ...] = ()
    unloaded: tuple[Skill, ...] = ()
    # The records of this conversation, whose observations it may read again.
    own: tuple[Path, ...] = ()


@dataclass(slots=True)
class Act:
    """One call of a tool, from the first question to its entry in the record.

    A refusal by a rule is an observation that a model can act on. A person's no is raised: the caller must
    not go on as if it had not been said.
    """

    around: RunContext
    call: calls.ToolCall
    asked_of: CallRecord
    skill: Skill | None = None
    origin: Origin = "model"
    cancelled: Callable[[], bool] = bool
    number: int = 0
    passage: Passage | None = None
    refused: Decision | None = None
    hidden: bool = False
    closed: Decision | None = None
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
                observation = Observation(self.tool, str(error), code=error.code, advice=error.advice)
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
                self._require(self.reads(path))
                return reading.read_file(self.call, workspace)
            case calls.ListDir(path=path):
                self._require(self.reads(path))
                return reading.list_dir(self.call, workspace, self._may_list)
            case calls.Grep(path=path):
                self._require(self.reads(path))
                return reading.grep(self.call, workspace, self._may_read)
            case calls.WriteFile(path=path, content=content):
                about = partial(writing.planned_write, self.call, workspace)
                self._require(self.writes(path), about=about, exact=self._content(path, content))
                return writing.write_file(self.call, workspace, self._trash)
            case calls.DeleteFile(path=path):
                about = partial("delete {}".format, path)
                self._require(self.writes(path, "delete"), about=about, exact=self._content(path))
                return writing.delete_file(self.call, workspace, self._trash)
            case calls.NetworkRequest():
                return self._request(self.call)
            case calls.RunScript():
                return self._run_script(self.call)
            case _:
                assert_never(self.call)

    def inputs(self, call: calls.RunScript) -> list[str]:
        """Return the files that a script may read: those named for it, and those among its arguments.

        What a model may not know of is a plain word among the arguments.
        """
        workspace = self.around.place.workspace
        named = [word for word in call.args if workspace.is_file(word)]
        if self.origin != "user":
            named = [
                word for word in named if self._may_list(Path(os.path.realpath(workspace.locate(word).path)))
            ]
        return list(dict.fromkeys([*call.files, *named]))

    def _run_script(self, call: calls.RunScript) -> Observation:
        """Copy what it would run with, ask for exactly that, and run it."""
        assert self.skill is not None
        resource = (f"{self.skill.name}/{script_name(self.skill, call.relative_path)}",)
        workspace = self.around.place.workspace
        inputs = [(path, workspace.locate(path)) for path in call.files]
        requests: list[Finer] = [("skill", (self.skill.name,), ""), ("script", resource, "")]
        requests += [finer for _, located in inputs for finer in self.reads(located.name)]
        requests += [("script-network", resource, "")] if call.network else []
        self._decide(requests)
        for request, decision in self.asked:  # before anything is copied
            if decision.effect is Effect.DENY:
                self.refused = decision
                raise refusal(request, decision)
        with script.inputs_kept(self._directory / "inputs"):
            copies = script.copy_inputs(inputs, self._directory / "inputs")
            snapshot = self.around.run.snapshots.take(self.skill)
            path = search_path(self.around.place.context.env.get("PATH", ""))
            plan = script.plan_script(call, self.skill, snapshot, copies, path=path, sees=self._sees)
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
            mask=self.around.place.secrets.mask_file,
        )

    def _decide(self, finer: Sequence[Finer]) -> None:
        """Find out what the rules say of the tool itself and of what it is used on.

        What they deny to be read or run is hidden from a model: it gets the error of something missing.
        """
        name = None if self.skill is None else self.skill.name
        wanted = (("tool", (self.tool,), ""), *finer)
        requests = [Request(each, names, self.origin, self.around.agent, name) for each, names, _ in wanted]
        self.asked = [(request, self.around.gate.decide(request)) for request in requests]
        for (request, decision), (_, _, shown) in zip(self.asked, wanted, strict=True):
            hides = decision.effect is Effect.DENY and request.permission in _HIDING
            if hides and self.origin != "user":
                self.refused, self.hidden = decision, True
                raise self._not_there(request.permission, shown)

    def _not_there(self, permission: str, shown: str) -> VademecumError:
        if isinstance(self.call, calls.RunScript) and not shown and self.skill is not None:
            if permission == "skill":
                return SkillNotFound(f"No skill is called {self.call.skill!r}.")
            return no_script(self.skill, self.call.relative_path, self._sees)
        return ToolRefused(f"There is no {shown!r} here.", code="missing")

    def _sees(self, relative: str) -> bool:
        assert self.skill is not None
        sees = files_seen(self.around.gate, self.skill, agent=self.around.agent, origin=self.origin)
        return sees(relative)

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
        used_on = within or tuple(resource for _, resources, _ in finer for resource in resources)
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
        worst, also = self._worst([decision for _, decision in self.asked], used_on)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        self.asked_of.check(lambda: digest, exact)
        self.passage = self.around.gate.settle(
            self.asked, approver=self.asked_of, digest=lambda: digest, about=about, exact=exact, also=also
        )

    def foresee(self, finer: Sequence[Finer]) -> Decision:
        """Return what would be decided about a call that needs this, without doing or asking anything."""
        self._decide(finer)
        used_on = tuple(resource for _, resources, _ in finer for resource in resources)
        return self._worst([decision for _, decision in self.asked], used_on)[0]

    def _worst(self, decided: list[Decision], used_on: tuple[str, ...]) -> tuple[Decision, list[Decision]]:
        """The strictest decision about the call, and those that did not come from the rules."""
        also = [*self._bounds(used_on), *self._risk(used_on), *([self.closed] if self.closed else [])]
        return max((*decided, *also), key=lambda decision: decision.effect), also

    def _bounds(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return what ``allowed-tools`` excludes.

        A script must pass its own skill's list; if another active skill excludes it, that is asked. Any other
        tool must pass the lists of all active skills. What a skill excluded that the model itself unloaded is
        asked, as far as it changes or sends something.
        """
        excluding: list[tuple[Skill, Effect]] = [(skill, Effect.DENY) for skill in self.around.active]
        if isinstance(self.call, calls.RunScript) and self.skill is not None:
            own = self.skill.location
            excluding = [
                (skill, Effect.DENY if skill.location == own else Effect.ASK)
                for skill in {each.location: each for each in (*self.around.active, self.skill)}.values()
            ]
        if self.tool in _LASTING:
            excluding += [(skill, Effect.ASK) for skill in self.around.unloaded]
        found = [
            bounded(
                self.tool,
                used_on,
                skill=skill.name,
                allowed_tools=skill.controls.allowed_tools,
                effect=effect,
            )
            for skill, effect in excluding
        ]
        return [decision for decision in found if decision is not None]

    def _risk(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return the approval that a risky tool needs, unless this run was started with it."""
        needed = needs_approval(self.tool, careful=self.around.place.config.execution.require_approval_for)
        if needed is None:
            return []
        wanted = Request(APPROVAL, tuple(f"{self.tool} {each}" for each in used_on), agent=self.around.agent)
        decision = self.around.gate.decide(wanted)
        return [] if decision.effect is Effect.ALLOW and decision.layer == RUN else [needed]

    def _request(self, call: calls.NetworkRequest) -> Observation:
        from vademecum.tools.network import about_request, network_request  # noqa: PLC0415 - for this tool alone

        def exact() -> str:
            return repr(calls.said(call))

        def permit(permission: str, hop: Hop) -> None:
            about = partial(about_request, call, hop) if permission == "network" else str
            try:
                finer = [(permission, hop.resources, "")]
                self._require(finer, about=about, exact=exact, within=(hop.host,))
            except Deferred as deferred:
                if hop.url == call.url:
                    raise
                # Something was sent by now, so that this cannot be taken up later.
                text = (
                    f"It redirects to {hop.host!r}, which needs an approval of its own: request that address."
                )
                raise ToolRefused(text, code="redirects") from deferred

        return network_request(call, permit=permit, keep=self._directory / "answer")

    def reads(self, path: str) -> list[Finer]:
        """Return what reading a file needs."""
        workspace = self.around.place.workspace
        located = workspace.locate(path)
        real = Path(os.path.realpath(located.path))
        if any(real.is_relative_to(os.path.realpath(own / OBSERVATIONS)) for own in self.around.own):
            return []  # what this conversation saw already
        return [("read", workspace.names(located), located.name), *self._of_skill(real, located.name)]

    def writes(self, path: str, permission: str = "write") -> list[Finer]:
        """Return what changing or deleting a file needs."""
        workspace = self.around.place.workspace
        located = workspace.locate(path)
        real = os.path.realpath(located.path)
        for root in self.around.skills.roots:
            if real == root or real.startswith(f"{root}/") or str(located.path).startswith(f"{root}/"):
                rule = Rule(permission, "close the roots of skills", Effect.DENY, FIXED, 0, CLOSED_TO_AGENTS)
                self.closed = Decision(Effect.DENY, rule, permission, located.name)
        return [(permission, workspace.names(located), located.name)]

    def _content(self, path: str, new: str = "") -> Callable[[], str]:
        """What an answer about changing a file depends on: what is in it now, and what would be."""
        return lambda: f"{writing.content_digest(path, self.around.place.workspace)} {new}"

    def _of_skill(self, real: Path, shown: str) -> list[Finer]:
        """A file of a skill is the skill's, whichever tool reads it and by whatever name."""
        owner = self.around.skills.owner(real)
        if owner is None:
            return []
        skill, relative = owner
        found: list[Finer] = [("skill", (skill.name,), shown)]
        if relative not in {".", skill.file}:
            found.append(("resource", (f"{skill.name}/{relative}",), shown))
        return found

    def _may_read(self, real: Path) -> bool:
        """Return whether a path may be read without asking; what may not is not mentioned."""
        return self._effect_of_reading(real) is Effect.ALLOW

    def _may_list(self, real: Path) -> bool:
        return self._effect_of_reading(real) is not Effect.DENY

    def _effect_of_reading(self, real: Path) -> Effect:
        names = self.around.place.workspace.rule_names(real)
        finer = [("read", names, ""), *self._of_skill(Path(os.path.realpath(real)), "")]
        return max(
            self.around.gate.decide(Request(permission, resources, self.origin, self.around.agent)).effect
            for permission, resources, _ in finer
        )

    @property
    def _trash(self) -> Path:
        return self.around.run.record.place / "trash"

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
            # The record says what really happened, also if the model was told of something missing.
            last = structs.replace(seen[-1], code="denied") if self.hidden else seen[-1]
            written = record_of(entry, calls.said(self.call), last)
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
