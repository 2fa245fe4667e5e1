"""One call of a tool: ask the gate about everything it needs, do it within limits, write it down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.policy.base import Decision, Effect, Origin, Request, Rule
from vademecum.policy.bounds import bounded, needs_approval
from vademecum.policy.engine import APPROVAL, FIXED, RUN
from vademecum.policy.gate import Decided, Gate, Passage, refusal
from vademecum.runs.record import OBSERVATIONS
from vademecum.session.place import Place
from vademecum.session.recording import CHANGED, CallRecord, Run, record_of
from vademecum.session.view import SkillFiles, file_names, files_seen
from vademecum.skill.assets import no_script, script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.inputs import Inode, hidden_below, listed_below
from vademecum.tools.outputs import PREFIX, Outputs
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.sandbox.base import Sandbox

# A permission, what it is wanted for, and what a model calls that.
Finer = tuple[str, tuple[str, ...], str]
# What a rule denies of these looks to a model like what does not exist.
_HIDING = frozenset({"read", "skill", "resource", "script"})
CLOSED_TO_AGENTS = "no rule, flag or answer allows it"
# What stays closed after a model itself unloaded the skill that excludes it.
_LASTING = frozenset(
    {"write_file", "edit_file", "save_output", "delete_file", "run_command", "network_request"}
)
_WRITING = frozenset({"edit_file", "save_output"})


@dataclass(frozen=True, slots=True)
class RunContext:
    """Everything that the calls of one run share."""

    gate: Gate
    place: Place
    sandbox: Callable[[], Sandbox]
    skills: SkillFiles
    agent: str
    # The skills whose `allowed-tools` bound every direct tool, and those that the model itself unloaded.
    active: tuple[Skill, ...] = ()
    unloaded: tuple[Skill, ...] = ()
    # The records of this conversation, whose observations it may read again, and what its scripts made.
    own: tuple[Path, ...] = ()
    outputs: Outputs = field(default_factory=Outputs)


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
    wanted: Callable[[], Sequence[Finer]] = list
    found: list[Finer] = field(default_factory=list)
    run: Run = field(init=False)

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return calls.NAMES[type(self.call)]

    def perform(self, work: Callable[[], Observation]) -> Observation:
        """Do the work of the call and write it down, whatever comes of it."""
        self.run = self.asked_of.run
        self.number = next(self.run.numbers)
        with self._recorded() as done:
            try:
                observation = work()
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

    def locate(self, path: str) -> Located:
        """Return where a path from outside leads: in the project, or to an output of this conversation."""
        if path.startswith(PREFIX):
            return self.around.outputs.locate(path)
        return self.around.place.workspace.locate(path)

    def decide(self, wanted: Callable[[], Sequence[Finer]], *, fixed: Sequence[Finer] = ()) -> None:
        """Find out what the rules say of the tool itself and of what it is used on.

        What is ``wanted`` is looked at again after a person was asked; what is ``fixed`` cannot change.
        """
        self.wanted, self.found, self.asked = wanted, list(wanted()), []
        self.decide_also([*self._of_tool(), *fixed, *self.found])

    def decide_also(self, wanted: Sequence[Finer]) -> None:
        """Add what cannot change any more to what was decided before.

        What the rules deny to be read or run is hidden from a model: it gets the error of something missing.
        """
        policy, agent = self.around.gate.policy, self.around.agent
        name = None if self.skill is None else self.skill.name
        requests = [Request(each, names, self.origin, agent, name) for each, names, _ in wanted]
        decided = [(request, policy.decide(request)) for request in requests]
        self.asked = [*self.asked, *decided]
        for (request, decision), (_, _, shown) in zip(decided, wanted, strict=True):
            hides = decision.effect is Effect.DENY and request.permission in _HIDING
            if hides and self.origin != "user":
                self.refused, self.hidden = decision, True
                raise self._not_there(request.permission, shown)

    def _of_tool(self) -> list[Finer]:
        """Return what the tool itself needs; a rule that denies writing denies every tool that writes."""
        tools = [self.tool]
        if self.tool in _WRITING or (isinstance(self.call, calls.RunCommand) and self.call.writes):
            denied = self.effect_of("tool", ("write_file",))
            tools += ["write_file"] if denied.effect is Effect.DENY else []
        return [("tool", (tool,), "") for tool in tools]

    def refuse_denied(self, used_on: tuple[str, ...] = ()) -> None:
        """Raise if something that was decided is denied, before anything is read or copied for it.

        If ``used_on`` says what the tool is used on, the bounds of active skills count too.
        """
        denied = [(request, decision) for request, decision in self.asked if decision.effect is Effect.DENY]
        if used_on:
            tool, _ = self.asked[0]
            denied += [(tool, bound) for bound in self._bounds(used_on) if bound.effect is Effect.DENY]
        for request, decision in denied:
            self.refused = decision
            raise refusal(request, decision)

    def _not_there(self, permission: str, shown: str) -> VademecumError:
        if isinstance(self.call, calls.RunScript) and not shown and self.skill is not None:
            if permission == "skill":
                return SkillNotFound(f"No skill is called {self.call.skill!r}.")
            return no_script(self.skill, self.call.relative_path, self.sees)
        return ToolRefused(f"There is no {shown!r} here.", code="missing")

    def effect_of(self, permission: str, resources: tuple[str, ...], skill: str | None = None) -> Decision:
        """Return what the rules say of one request of this caller."""
        return self.around.gate.policy.decide(
            Request(permission, resources, self.origin, self.around.agent, skill)
        )

    def denied_files(self, skill: Skill) -> list[str]:
        """Return the files of a skill that a rule denies, which its scripts do not get either."""
        files, _ = listed_below(skill.location)
        policy, agent = self.around.gate.policy, self.around.agent
        if not policy.could_restrict("resource", agent, "\n".join(f"{skill.name}/{file}" for file in files)):
            return []
        return [
            file
            for file in files
            if self.effect_of("resource", file_names(skill, file), skill.name).effect is Effect.DENY
        ]

    def sees(self, relative: str) -> bool:
        """Return whether the caller may know of a file of the skill."""
        assert self.skill is not None
        sees = files_seen(self.around.gate.policy, self.skill, agent=self.around.agent, origin=self.origin)
        return sees(relative)

    def require(
        self,
        finer: Callable[[], Sequence[Finer]],
        *,
        about: Callable[[], str] = str,
        exact: Callable[[], str] = str,
        within: tuple[str, ...] = (),
    ) -> None:
        """Ask for the tool itself and for what it is used on, with everything that bounds it."""
        self.decide(finer)
        used_on = within or tuple(resource for _, resources, _ in self.found for resource in resources)
        self.settle(used_on, about=about, exact=exact)

    def settle(
        self,
        used_on: tuple[str, ...],
        *,
        about: Callable[[], str],
        exact: Callable[[], str],
        digest: str | None = None,
    ) -> None:
        """Go on only if the rules, the bounds and, if it is asked, a person let all that was decided pass.

        An answer holds for what ``exact`` returns and for ``digest``, which is by default that of the skill.
        """
        if digest is None:
            digest = "" if self.skill is None else skill_digest(self.skill)
        held = digest
        worst, also = self._worst([decision for _, decision in self.asked], used_on)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        self.asked_of.check(lambda: held, exact)
        secrets = self.around.place.secrets
        self.passage = self.around.gate.settle(
            self.asked,
            approver=self.asked_of,
            digest=lambda: held,
            about=lambda: secrets.mask_values(about()),
            exact=exact,
            also=also,
        )
        # While a person was asked, a path may have become a link to something else.
        if self.passage.by != "rule" and list(self.wanted()) != self.found:
            raise ToolRefused(CHANGED, code="changed")

    def foresee(self, finer: Sequence[Finer]) -> Decision:
        """Return what would be decided about a call that needs this, without doing or asking anything."""
        self.decide(lambda: finer)
        used_on = tuple(resource for _, resources, _ in finer for resource in resources)
        return self._worst([decision for _, decision in self.asked], used_on)[0]

    def _worst(self, decided: list[Decision], used_on: tuple[str, ...]) -> tuple[Decision, list[Decision]]:
        """Return the strictest decision about the call, and those that did not come from the rules."""
        also = [*self._bounds(used_on), *self._risk(used_on), *self._origin_risk()]
        also += [self.closed] if self.closed else []
        # Of equal ones, that of the risk says best what would allow it.
        return max((*also, *decided), key=lambda decision: decision.effect), also

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
            bounded(tool, names, skill=skill.name, allowed_tools=skill.controls.allowed_tools, effect=effect)
            for skill, effect in excluding
            for tool, names in self._bounded_uses(used_on)
        ]
        return [decision for decision in found if decision is not None]

    def _bounded_uses(self, used_on: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what lists of tools are asked about: the tool, and what a command changes and reaches."""
        if not isinstance(self.call, calls.RunCommand):
            yield self.tool, used_on
            return
        yield self.tool, used_on[:1]
        if self.call.writes:
            yield "write_file", tuple(self.call.writes)
        if self.call.network:
            yield "network_request", tuple(self.call.network)

    def _risk(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return the approval that a risky tool needs, unless this run was started with it."""
        needed = needs_approval(self.tool, careful=self.around.place.config.execution.require_approval_for)
        if needed is None:
            return []
        wanted = Request(APPROVAL, tuple(f"{self.tool} {each}" for each in used_on), agent=self.around.agent)
        decision = self.around.gate.policy.decide(wanted)
        return [] if decision.effect is Effect.ALLOW and decision.layer == RUN else [needed]

    def _origin_risk(self) -> list[Decision]:
        """Return the approval that a script of a server needs, whatever the rules allow."""
        if self.skill is None or not self.skill.source.startswith("mcp:"):
            return []
        if not isinstance(self.call, calls.RunScript):
            return []
        says = f"that comes from {self.skill.source} always needs approval"
        rule = Rule("script", says, Effect.ASK, "a script", 0, "approve it, or install the skill")
        resource = f"{self.skill.name}/{script_name(self.skill, self.call.relative_path)}"
        return [Decision(Effect.ASK, rule, "script", resource)]

    def reads(self, located: Located) -> list[Finer]:
        """Return what reading a file needs; what this conversation saw or made already needs nothing."""
        if located.name.startswith(PREFIX):
            return []
        real = Path(os.path.realpath(located.path))
        if any(real.is_relative_to(os.path.realpath(own / OBSERVATIONS)) for own in self.around.own):
            return []
        names = self.around.place.workspace.names(located)
        return [("read", names, located.name), *self._of_skill(real, located.name)]

    def writes(self, located: Located, permission: str = "write") -> list[Finer]:
        """Return what changing or deleting a file needs."""
        real = os.path.realpath(located.path)
        for root in self.around.skills.roots:
            if real == root or real.startswith(f"{root}/") or str(located.path).startswith(f"{root}/"):
                rule = Rule(permission, "close the roots of skills", Effect.DENY, FIXED, 0, CLOSED_TO_AGENTS)
                self.closed = Decision(Effect.DENY, rule, permission, located.name)
        return [(permission, self.around.place.workspace.names(located), located.name)]

    def _of_skill(self, real: Path, shown: str) -> list[Finer]:
        """Return the rules to ask if a path is a file of a skill, by whatever name it is reached."""
        found: list[Finer] = []
        for skill, relative in self.around.skills.owners(real):
            found.append(("skill", (skill.name,), shown))
            if relative not in {".", skill.file}:
                kinds = ("resource", "script") if relative.startswith("scripts/") else ("resource",)
                wanted = (kind for kind in kinds if self._asks(kind, skill, relative))
                found += [(kind, (f"{skill.name}/{relative}",), shown) for kind in wanted]
        return found

    def _asks(self, kind: str, skill: Skill, relative: str) -> bool:
        """Return whether reading a file asks this: a script that is asked about to be run may be read."""
        if kind == "resource":
            return True
        return self.effect_of(kind, (f"{skill.name}/{relative}",), skill.name).effect is Effect.DENY

    def may_read(self, real: Path) -> bool:
        """Return whether a path may be read without asking; what may not is not mentioned."""
        return self._effect_of_reading(real) is Effect.ALLOW

    def may_list(self, real: Path) -> bool:
        """Return whether the caller may know of a path."""
        return self._effect_of_reading(real) is not Effect.DENY

    def _effect_of_reading(self, real: Path) -> Effect:
        names = self.around.place.workspace.rule_names(real)
        finer = [("read", names, ""), *self._of_skill(Path(os.path.realpath(real)), "")]
        return max(self.effect_of(permission, resources).effect for permission, resources, _ in finer)

    def knows(self, located: Located) -> bool:
        """Return whether the caller may know of what is there."""
        return located.name.startswith(PREFIX) or self.may_list(Path(os.path.realpath(located.path)))

    def hidden_in(self, located: Located) -> tuple[str, ...]:
        """Return what below a directory may not be read without asking, relative to it."""
        workspace, base = self.around.place.workspace, os.path.realpath(located.path)
        prefixes = [
            "" if name == "." else f"{name}/" for name in dict.fromkeys(workspace.rule_names(Path(base)))
        ]
        names, special = listed_below(base)
        gate, agent, skills = self.around.gate, self.around.agent, self.around.skills
        of_skills = skills.overlap(base)
        written = "\n".join(f"{prefix}{name}" for prefix in prefixes for name in names)
        restricted = gate.policy.could_restrict("read", agent, written) or skills.restricted(gate, agent)
        if not restricted and not of_skills:
            return tuple(special)
        linked = cache(skills.linked)

        def may_show(relative: str, inode: Inode | None) -> bool:
            resources = tuple(f"{prefix}{relative}" for prefix in prefixes)
            if self.effect_of("read", resources).effect is not Effect.ALLOW:
                return False
            return not (of_skills or (inode and inode in linked())) or self.may_read(Path(base, relative))

        return tuple(sorted({*special, *hidden_below(base, names, may_show)}))

    def is_closed(self, file: Path) -> bool:
        """Return whether a file may not be changed, whatever a person answers."""
        names = self.around.place.workspace.rule_names(file)
        in_skills = any(str(file).startswith(f"{root}/") for root in self.around.skills.roots)
        return in_skills or any(
            self.effect_of(each, names).effect is Effect.DENY for each in ("write", "delete")
        )

    @property
    def trash(self) -> Path:
        """Where the old content of files goes."""
        return self.run.record.place / "trash"

    @property
    def directory(self) -> Path:
        """Where what belongs to this call is kept."""
        return self.run.record.place / "calls" / f"{self.number:04}"

    @contextmanager
    def _recorded(self) -> Iterator[Callable[[Observation], None]]:
        """Write the call down, whatever happens."""
        started, clock = time.time(), time.monotonic()
        seen = [Observation(self.tool, "", code="interrupted")]
        try:
            yield seen.append
        finally:
            # The record says what really happened, also if the model was told of something missing.
            written = record_of(
                structs.replace(seen[-1], code="denied") if self.hidden else seen[-1],
                calls.said(self.call),
                number=self.number,
                agent=self.around.agent,
                skill=self.skill,
                started=started,
                seconds=time.monotonic() - clock,
                decision=self.passage.decision if self.passage is not None else self.refused,
                asked=self.asked,
                approved_by=None if self.passage is None else self.passage.by,
            )
            self.run.record.add_bounded("tool_called", **written)
