"""One call of a tool: ask the gate about everything it needs, do it within limits, write it down."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import structs

from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.files import read_capped
from vademecum.policy.base import Decision, Effect, Origin, Request, Rule
from vademecum.policy.bounds import bounded, needs_approval
from vademecum.policy.engine import APPROVAL, FIXED, RUN
from vademecum.policy.gate import Decided, Gate, Passage, refusal
from vademecum.runs.record import OBSERVATIONS
from vademecum.sandbox.base import Sandbox
from vademecum.session.base import Deferred
from vademecum.session.place import Place
from vademecum.session.recording import CHANGED, CallRecord, record_of
from vademecum.session.view import SkillFiles, file_names, files_seen
from vademecum.skill.assets import no_script, script_name
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls, reading, writing
from vademecum.tools.calls import Observation
from vademecum.tools.inputs import Inode, hidden_below, listed_below
from vademecum.tools.outputs import PREFIX, Outputs
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.tools.hosts import Hop

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
MAX_SAVED_BYTES = 256 * 1024 * 1024


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
    wanted: list[tuple[Callable[[], Sequence[Finer]], list[Finer]]] = field(default_factory=list)

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return calls.NAMES[type(self.call)]

    def perform(self, work: Callable[[], Observation] | None = None) -> Observation:
        """Do it, or the ``work`` that starts a process, and write it down, whatever comes of it."""
        self.number = next(self.asked_of.run.numbers)
        with self._recorded() as done:
            try:
                observation = (work or self._perform)()
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
        match self.call:
            case calls.ReadFile(path=path):
                located = self.locate(path)
                self._require(partial(self.reads, located))
                return reading.read_file(self.call, located)
            case calls.ListDir(path=path):
                located = self.locate(path)
                self._require(partial(self.reads, located))
                return reading.list_dir(located, self.may_list)
            case calls.Grep(path=path):
                located = self.locate(path)
                self._require(partial(self.reads, located))
                return reading.grep(self.call, located, self._may_read)
            case calls.WriteFile(path=path, content=content):
                located = self.locate(path)
                self.decide(partial(self.writes, located))
                return self._replace(located, content.encode())
            case calls.EditFile(path=path):
                return self._edit(self.call, self.locate(path))
            case calls.SaveOutput():
                return self._save(self.call)
            case calls.DeleteFile(path=path):
                located = self.locate(path)
                about = partial("delete {}".format, path)
                self._require(
                    partial(self.writes, located, "delete"), about=about, exact=self._content(located)
                )
                return writing.delete_file(located, self.trash)
            case calls.NetworkRequest():
                return self._request(self.call)
            case calls.RunScript() | calls.RunCommand():
                raise AssertionError  # the session starts these itself
            case _:
                assert_never(self.call)

    def locate(self, path: str) -> Located:
        """Return where a path from outside leads: in the project, or to an output of this conversation."""
        if path.startswith(PREFIX):
            return self.around.outputs.locate(path)
        return self.around.place.workspace.locate(path)

    def _replace(self, located: Located, data: bytes) -> Observation:
        """Write a file whose requests are decided, after asking about exactly this content."""
        about = partial(writing.planned, located, data)
        exact = self._content(located, data)
        self.settle((located.rule,), about=about, exact=exact, digest=self._skill_digest())
        real = Path(os.path.realpath(located.path))
        seen = writing.replace_file(self.tool, located, data, self.trash)
        if self._may_read(real):
            return seen
        return structs.replace(seen, facts={k: v for k, v in seen.facts.items() if k != "diff"})

    def _edit(self, call: calls.EditFile, located: Located) -> Observation:
        """Replace a text in a file; if reading it is asked for, nothing is said of it before the answer."""
        self.decide(lambda: [*self.reads(located), *self.writes(located)])
        self.refuse_denied((located.rule,))
        readable = all(
            d.effect is Effect.ALLOW for r, d in self.asked if r.permission not in {"tool", "write"}
        )
        if readable:
            return self._replace(located, writing.edited(call, located))
        about = partial(writing.difference, call.old, call.new, located.name)
        exact = self._content(located, f"{call.old}\0{call.new}".encode())
        self.settle((located.rule,), about=about, exact=exact, digest=self._skill_digest())
        return writing.replace_file(self.tool, located, writing.edited(call, located), self.trash)

    def _save(self, call: calls.SaveOutput) -> Observation:
        """Copy an output into the project, but not over a file that changed since its run began."""
        output = self.around.outputs.find(call.output)
        if output.secret:
            raise ToolRefused(f"{call.output!r} contains a secret, so it is not copied.", code="secret")
        located = self.around.place.workspace.locate(call.path or output.name)
        self.decide(partial(self.writes, located))
        self.refuse_denied()
        data = read_capped(output.file, cap=MAX_SAVED_BYTES)
        if self.around.outputs.overwrites_newer(output, located.path, writing.content_digest(located)):
            raise ToolRefused(
                f"{located.name!r} changed since the run began: save it under another name.", code="changed"
            )
        seen = self._replace(located, data)
        self.around.outputs.saved(output)
        text = f"Saved {call.output} as {located.name} ({len(data):,} bytes)."
        return structs.replace(seen, text=text, facts={**seen.facts, "path": located.name})

    def decide(self, finer: Callable[[], Sequence[Finer]], *, also: bool = False) -> None:
        """Find out what the rules say of the tool itself and of what it is used on.

        With ``also``, this is added to what was decided before. What the rules deny to be read or run is
        hidden from a model: it gets the error of something missing.
        """
        name = None if self.skill is None else self.skill.name
        found = list(finer())
        self.wanted = [*(self.wanted if also else []), (finer, found)]
        wanted = found if also else [*self._of_tool(), *found]
        requests = [Request(each, names, self.origin, self.around.agent, name) for each, names, _ in wanted]
        decided = [(request, self.around.gate.policy.decide(request)) for request in requests]
        self.asked = [*self.asked, *decided] if also else decided
        for (request, decision), (_, _, shown) in zip(decided, wanted, strict=True):
            hides = decision.effect is Effect.DENY and request.permission in _HIDING
            if hides and self.origin != "user":
                self.refused, self.hidden = decision, True
                raise self._not_there(request.permission, shown)

    def _of_tool(self) -> list[Finer]:
        """Return what the tool itself needs; a rule that denies writing denies every tool that writes."""
        tools = [self.tool]
        if self.tool in _WRITING or (isinstance(self.call, calls.RunCommand) and self.call.writes):
            denied = self.around.gate.policy.decide(
                Request("tool", ("write_file",), self.origin, self.around.agent)
            )
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

    def denied_files(self, skill: Skill) -> list[str]:
        """Return the files of a skill that a rule denies, which its scripts do not get either."""
        files, _ = listed_below(skill.location)
        policy, agent = self.around.gate.policy, self.around.agent
        if not policy.could_restrict("resource", agent, "\n".join(f"{skill.name}/{file}" for file in files)):
            return []
        wanted = (
            Request("resource", file_names(skill, file), self.origin, agent, skill.name) for file in files
        )
        decided = [policy.decide(request).effect for request in wanted]
        return [file for file, effect in zip(files, decided, strict=True) if effect is Effect.DENY]

    def sees(self, relative: str) -> bool:
        """Return whether the caller may know of a file of the skill."""
        assert self.skill is not None
        sees = files_seen(self.around.gate.policy, self.skill, agent=self.around.agent, origin=self.origin)
        return sees(relative)

    def _require(
        self,
        finer: Callable[[], Sequence[Finer]],
        *,
        about: Callable[[], str] = str,
        exact: Callable[[], str] = str,
        within: tuple[str, ...] = (),
    ) -> None:
        """Ask for the tool itself and for what it is used on, with everything that bounds it."""
        self.decide(finer)
        found = self.wanted[-1][1]
        used_on = within or tuple(resource for _, resources, _ in found for resource in resources)
        self.settle(used_on, about=about, exact=exact, digest=self._skill_digest())

    def _skill_digest(self) -> str:
        return "" if self.skill is None else skill_digest(self.skill)

    def settle(
        self,
        used_on: tuple[str, ...],
        *,
        about: Callable[[], str],
        exact: Callable[[], str],
        digest: str,
    ) -> None:
        """Go on only if the rules, the bounds and, if it is asked, a person let all that was decided pass."""
        worst, also = self._worst([decision for _, decision in self.asked], used_on)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        self.asked_of.check(lambda: digest, exact)
        secrets = self.around.place.secrets
        self.passage = self.around.gate.settle(
            self.asked,
            approver=self.asked_of,
            digest=lambda: digest,
            about=lambda: secrets.mask_values(about()),
            exact=exact,
            also=also,
        )
        # While a person was asked, a path may have become a link to something else.
        if self.passage.by != "rule" and any(list(finer()) != found for finer, found in self.wanted):
            raise ToolRefused(CHANGED, code="changed")

    def foresee(self, finer: Sequence[Finer]) -> Decision:
        """Return what would be decided about a call that needs this, without doing or asking anything."""
        self.decide(lambda: finer)
        used_on = tuple(resource for _, resources, _ in finer for resource in resources)
        return self._worst([decision for _, decision in self.asked], used_on)[0]

    def _worst(self, decided: list[Decision], used_on: tuple[str, ...]) -> tuple[Decision, list[Decision]]:
        """The strictest decision about the call, and those that did not come from the rules."""
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

    def _request(self, call: calls.NetworkRequest) -> Observation:
        from vademecum.tools.network import about_request, network_request  # noqa: PLC0415 - for this tool alone

        def exact() -> str:
            return repr(calls.said(call))

        def permit(permission: str, hop: Hop) -> None:
            about = partial(about_request, call, hop) if permission == "network" else str
            try:
                finer: list[Finer] = [(permission, (hop.resource,), "")]
                self._require(lambda: finer, about=about, exact=exact, within=(hop.host,))
            except Deferred as deferred:
                if hop.url == call.url:
                    raise
                # Something was sent by now, so that this cannot be taken up later.
                text = (
                    f"It redirects to {hop.host!r}, which needs an approval of its own: request that address."
                )
                raise ToolRefused(text, code="redirects") from deferred

        return network_request(call, permit=permit, keep=self.directory / "answer")

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

    def _content(self, located: Located, new: bytes = b"") -> Callable[[], str]:
        """Return what an answer about changing a file depends on: what is in it now, and what would be."""
        return lambda: f"{writing.content_digest(located)} {hashlib.sha256(new).hexdigest()}"

    def _of_skill(self, real: Path, shown: str) -> list[Finer]:
        """A file of a skill is the skill's, whichever tool reads it and by whatever name."""
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
        request = Request(kind, (f"{skill.name}/{relative}",), self.origin, self.around.agent, skill.name)
        return self.around.gate.policy.decide(request).effect is Effect.DENY

    def _may_read(self, real: Path) -> bool:
        """Return whether a path may be read without asking; what may not is not mentioned."""
        return self._effect_of_reading(real) is Effect.ALLOW

    def may_list(self, real: Path) -> bool:
        """Return whether the caller may know of a path."""
        return self._effect_of_reading(real) is not Effect.DENY

    def _effect_of_reading(self, real: Path) -> Effect:
        names = self.around.place.workspace.rule_names(real)
        finer = [("read", names, ""), *self._of_skill(Path(os.path.realpath(real)), "")]
        return max(
            self.around.gate.policy.decide(
                Request(permission, resources, self.origin, self.around.agent)
            ).effect
            for permission, resources, _ in finer
        )

    def knows(self, located: Located) -> bool:
        """Return whether the caller may know of what is there."""
        return self.may_list(Path(os.path.realpath(located.path)))

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
            if gate.policy.decide(Request("read", resources, self.origin, agent)).effect is not Effect.ALLOW:
                return False
            return not (of_skills or (inode and inode in linked())) or self._may_read(Path(base, relative))

        return tuple(sorted({*special, *hidden_below(base, names, may_show)}))

    def is_closed(self, file: Path) -> bool:
        """Return whether a file may not be changed, whatever a person answers."""
        names = self.around.place.workspace.rule_names(file)
        requests = (Request(each, names, self.origin, self.around.agent) for each in ("write", "delete"))
        in_skills = any(str(file).startswith(f"{root}/") for root in self.around.skills.roots)
        return in_skills or any(
            self.around.gate.policy.decide(each).effect is Effect.DENY for each in requests
        )

    @property
    def trash(self) -> Path:
        """Where the old content of files goes."""
        return self.asked_of.run.record.place / "trash"

    @property
    def directory(self) -> Path:
        """Where what belongs to this call is kept."""
        return self.asked_of.run.record.place / "calls" / f"{self.number:04}"

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
            self.asked_of.run.record.add_bounded("tool_called", **written)
