"""One call of a tool: ask the gate about everything it needs, do it within limits, write it down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.policy.base import Decision, Effect, Request, Rule, bounded, needs_approval
from vademecum.policy.engine import APPROVAL, FIXED, RUN
from vademecum.policy.gate import Decided, Passage, refusal
from vademecum.runs.record import OBSERVATIONS
from vademecum.session.recording import CHANGED, Run
from vademecum.session.view import SessionCall, file_names
from vademecum.skill.assets import no_script, script_name, skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import PREFIX, Inode, Input, find_inputs, hidden_below, listed_below
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.session.session import Session

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
# A call that needs the permission, for its resource.
_CALLS: dict[str, Callable[[str], calls.ToolCall]] = {
    "write": lambda path: calls.WriteFile(path, ""),
    "delete": calls.DeleteFile,
    "network": calls.NetworkRequest,
    "script": lambda resource: calls.RunScript("", resource),
    "command": lambda line: calls.RunCommand([line]),
}


@dataclass(slots=True)
class Act:
    """One call of a tool, from the first question to its entry in the record.

    A refusal by a rule is an observation that a model can act on. A person's no is raised: the caller must
    not go on as if it had not been said.
    """

    asked_of: SessionCall
    call: calls.ToolCall
    skill: Skill | None = None
    cancelled: Callable[[], bool] = bool
    number: int = 0
    passage: Passage | None = None
    refused: Decision | None = None
    hidden: bool = False
    closed: Decision | None = None
    asked: list[Decided] = field(default_factory=list)
    wanted: Callable[[], Sequence[Finer]] = list
    found: list[Finer] = field(default_factory=list)
    tool: str = field(init=False)
    session: Session = field(init=False)
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        """Remember the name of the tool, and the session of the caller."""
        self.tool, self.session = calls.NAMES[type(self.call)], self.asked_of.session

    def perform(self, work: Callable[[], Observation]) -> Observation:
        """Do the work of the call and write it down, whatever comes of it."""
        self.run = self.asked_of.run
        self.number = next(self.run.numbers)
        started, clock = time.time(), time.monotonic()
        seen = Observation(self.tool, "", code="interrupted")
        try:
            seen = work()
        except VademecumError as error:
            seen = Observation(self.tool, str(error), code=error.code, advice=error.advice)
            if isinstance(error, Declined):
                raise
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            seen = Observation(self.tool, f"{self.tool} failed ({reason}): try another way.", code="failed")
        finally:
            self.asked_of.write_call(
                # The record says what really happened, also if the model was told of something missing.
                structs.replace(seen, code="denied") if self.hidden else seen,
                calls.said(self.call),
                number=self.number,
                skill=self.skill,
                started=started,
                seconds=time.monotonic() - clock,
                decision=self.refused if self.passage is None else self.passage.decision,
                asked=self.asked,
                approved_by=None if self.passage is None else self.passage.by,
            )
        return seen

    def locate(self, path: str) -> Located:
        """Return where a path from outside leads: in the project, or to an output of this conversation."""
        if path.startswith(PREFIX):
            return self.session.outputs.locate(path)
        return self.session.place.workspace.locate(path)

    def inputs(
        self, words: Sequence[str], files: Sequence[str], copies: Sequence[str] = ()
    ) -> tuple[list[Input], list[str]]:
        """Return what is named for a process, and the words that lead out of the project."""
        known = self.knows if self.asked_of.origin != "user" else bool
        workspace = self.session.place.workspace
        return find_inputs(words, files, copies, workspace=workspace, locate=self.locate, known=known)

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
        requests = [self._request(each, names, self.skill) for each, names, _ in wanted]
        decided = [(request, self.session.gate.policy.decide(request)) for request in requests]
        self.asked = [*self.asked, *decided]
        for (request, decision), (_, _, shown) in zip(decided, wanted, strict=True):
            hides = decision.effect is Effect.DENY and request.permission in _HIDING
            if hides and self.asked_of.origin != "user":
                self.refused, self.hidden = decision, True
                raise self._not_there(request.permission, shown)

    def _of_tool(self) -> list[Finer]:
        """Return what the tool itself needs; a rule that denies writing denies every tool that writes."""
        found: list[Finer] = [("tool", (self.tool,), "")]
        writes = self.tool in _WRITING or (isinstance(self.call, calls.RunCommand) and self.call.writes)
        if writes and self.decision("tool", ("write_file",)).effect is Effect.DENY:
            found.append(("tool", ("write_file",), ""))
        return found

    def refuse_denied(self, used_on: tuple[str, ...] = ()) -> None:
        """Raise if something that was decided is denied, before anything is read or copied for it.

        If ``used_on`` says what the tool is used on, the bounds of active skills count too.
        """
        tool, _ = self.asked[0]
        bounds = self._bounds(used_on) if used_on else ()
        for request, decision in (*self.asked, *((tool, bound) for bound in bounds)):
            if decision.effect is Effect.DENY:
                self.refused = decision
                raise refusal(request, decision)

    def _not_there(self, permission: str, shown: str) -> VademecumError:
        if isinstance(self.call, calls.RunScript) and not shown and self.skill is not None:
            if permission == "skill":
                return SkillNotFound(f"No skill is called {self.call.skill!r}.")
            return no_script(self.skill, self.call.relative_path, self.asked_of.sees(self.skill))
        return ToolRefused(f"There is no {shown!r} here.", code="missing")

    def decision(self, permission: str, resources: tuple[str, ...], skill: Skill | None = None) -> Decision:
        """Return what the rules say of one request of this caller."""
        return self.session.gate.policy.decide(self._request(permission, resources, skill))

    def _request(self, permission: str, resources: tuple[str, ...], skill: Skill | None) -> Request:
        name = None if skill is None else skill.name
        return Request(permission, resources, self.asked_of.origin, self.session.agent, name)

    def denied_files(self, skill: Skill) -> list[str]:
        """Return the files of a skill that a rule denies, which its scripts do not get either."""
        files, _ = listed_below(skill.location)
        policy, agent = self.session.gate.policy, self.session.agent
        if not policy.could_restrict("resource", agent, "\n".join(f"{skill.name}/{file}" for file in files)):
            return []
        return [
            file
            for file in files
            if self.decision("resource", file_names(skill, file), skill).effect is Effect.DENY
        ]

    def require(
        self,
        finer: Callable[[], Sequence[Finer]],
        *,
        about: Callable[[], str] = str,
        exact: Callable[[], str] = str,
    ) -> None:
        """Ask for the tool itself and for what it is used on, with everything that bounds it."""
        self.decide(finer)
        self.settle(_resources(self.found), about=about, exact=exact)

    def settle(
        self,
        used_on: tuple[str, ...],
        *,
        about: Callable[[], str],
        exact: Callable[[], str],
        digest: str | None = None,
    ) -> None:
        """Go on only if the rules, the bounds and, if it is asked, a person let all that was decided pass.

        An answer applies to what ``exact`` returns and to ``digest``, which is by default that of the skill.
        """
        if digest is None:
            digest = "" if self.skill is None else skill_digest(self.skill)
        worst, also = self._worst(used_on)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        held = partial(str, digest)
        self.asked_of.check(held, exact)
        secrets = self.session.place.secrets
        self.passage = self.session.gate.settle(
            self.asked,
            approver=self.asked_of,
            digest=held,
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
        return self._worst(_resources(finer))[0]

    def _worst(self, used_on: tuple[str, ...]) -> tuple[Decision, list[Decision]]:
        """Return the strictest decision about the call, and those that did not come from the rules."""
        also = [*self._bounds(used_on), *self._risk(used_on), *self._origin_risk()]
        also += [self.closed] if self.closed else []
        # Of equal ones, that of the risk says best what would allow it.
        decided = (decision for _, decision in self.asked)
        return max((*also, *decided), key=lambda decision: decision.effect), also

    def _bounds(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return what ``allowed-tools`` excludes.

        A script must pass its own skill's list; if another active skill excludes it, that is asked. Any other
        tool must pass the lists of all active skills. What a skill excluded that the model itself unloaded is
        asked, as far as it changes or sends something.
        """
        active, unloaded = self.session.bounding()
        excluding = [(skill, Effect.DENY) for skill in active]
        if isinstance(self.call, calls.RunScript) and self.skill is not None:
            own = self.skill.location
            excluding = [
                (skill, Effect.DENY if skill.location == own else Effect.ASK)
                for skill in {each.location: each for each in (*active, self.skill)}.values()
            ]
        if self.tool in _LASTING:
            excluding += [(skill, Effect.ASK) for skill in unloaded]
        found = [
            bounded(tool, names, skill=skill.name, allowed_tools=allowed, effect=effect)
            for skill, effect in excluding
            if (allowed := skill.controls.allowed_tools) is not None
            for tool, names in self._bounded_uses(used_on)
        ]
        return [decision for decision in found if decision is not None]

    def _bounded_uses(self, used_on: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
        """Return what lists of tools are asked about: the tool, and what a command changes and reaches."""
        if not isinstance(self.call, calls.RunCommand):
            return [(self.tool, used_on)]
        more = ("write_file", tuple(self.call.writes)), ("network_request", tuple(self.call.network))
        return [(self.tool, used_on[:1]), *((tool, names) for tool, names in more if names)]

    def _risk(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return the approval that a risky tool needs, unless this run was started with it."""
        needed = needs_approval(self.tool, careful=self.session.place.config.execution.require_approval_for)
        if needed is None:
            return []
        wanted = Request(APPROVAL, tuple(f"{self.tool} {each}" for each in used_on), agent=self.session.agent)
        decision = self.session.gate.policy.decide(wanted)
        return [] if decision.effect is Effect.ALLOW and decision.layer == RUN else [needed]

    def _origin_risk(self) -> list[Decision]:
        """Return the approval that a script of a server needs, whatever the rules allow."""
        if not isinstance(self.call, calls.RunScript) or self.skill is None:
            return []
        if not self.skill.source.startswith("mcp:"):
            return []
        says = f"that comes from {self.skill.source} always needs approval"
        rule = Rule("script", says, Effect.ASK, "a script", 0, "approve it, or install the skill")
        resource = f"{self.skill.name}/{script_name(self.skill, self.call.relative_path)}"
        return [Decision(Effect.ASK, rule, "script", resource)]

    def reads(self, *files: Located) -> list[Finer]:
        """Return what reading files needs; what this conversation saw or made already needs nothing."""
        seen = [Path(os.path.realpath(place / OBSERVATIONS)) for place in self.session.recording.places]
        found: list[Finer] = []
        for located in files:
            real = Path(os.path.realpath(located.path))
            if not (located.name.startswith(PREFIX) or not {real, *real.parents}.isdisjoint(seen)):
                names = self.session.place.workspace.names(located)
                found += [("read", names, located.name), *self._of_skill(real, located.name)]
        return found

    def writes(self, located: Located, permission: str = "write") -> list[Finer]:
        """Return what changing or deleting a file needs."""
        names = f"{located.path}/", f"{os.path.realpath(located.path)}/"
        if any(name.startswith(f"{root}/") for root in self.session.view.roots for name in names):
            rule = Rule(permission, "close the roots of skills", Effect.DENY, FIXED, 0, CLOSED_TO_AGENTS)
            self.closed = Decision(Effect.DENY, rule, permission, located.name)
        return [(permission, self.session.place.workspace.names(located), located.name)]

    def _of_skill(self, real: Path, shown: str) -> list[Finer]:
        """Return the rules to ask if a path is a file of a skill, by whatever name it is reached."""
        found: list[Finer] = []
        for skill, relative in self.session.view.owners(real):
            found.append(("skill", (skill.name,), shown))
            if relative in {".", skill.file}:
                continue
            names = (f"{skill.name}/{relative}",)
            found.append(("resource", names, shown))
            if relative.startswith("scripts/"):  # one that is asked about to be run may be read
                decision = self.decision("script", names, skill)
                found += [("script", names, shown)] if decision.effect is Effect.DENY else []
        return found

    def may_read(self, real: Path, *, most: Effect = Effect.ALLOW) -> bool:
        """Return whether a path may be read without asking; what may not is not mentioned."""
        names = self.session.place.workspace.rule_names(real)
        finer = [("read", names, ""), *self._of_skill(Path(os.path.realpath(real)), "")]
        return max([self.decision(each, resources).effect for each, resources, _ in finer]) <= most

    def may_list(self, real: Path) -> bool:
        """Return whether the caller may know of a path."""
        return self.may_read(real, most=Effect.ASK)

    def knows(self, located: Located) -> bool:
        """Return whether the caller may know of what is there."""
        return located.name.startswith(PREFIX) or self.may_list(Path(os.path.realpath(located.path)))

    def hidden_in(self, located: Located) -> tuple[str, ...]:
        """Return what below a directory may not be read without asking, relative to it."""
        workspace, base = self.session.place.workspace, os.path.realpath(located.path)
        prefixes = [
            "" if name == "." else f"{name}/" for name in dict.fromkeys(workspace.rule_names(Path(base)))
        ]
        names, special = listed_below(base)
        policy, agent, skills = self.session.gate.policy, self.session.agent, self.session.view
        of_skills = skills.overlap(base)
        written = "\n".join(f"{prefix}{name}" for prefix in prefixes for name in names)
        # What rules deny of skills may be reached by hard links, under any name.
        of_rules = policy.denies_some(("script",), agent) or any(
            policy.could_restrict(each, agent) for each in ("skill", "resource")
        )
        if not (of_skills or of_rules or policy.could_restrict("read", agent, written)):
            return tuple(special)
        linked = cache(skills.linked)

        def may_show(relative: str, inode: Inode | None) -> bool:
            resources = tuple(f"{prefix}{relative}" for prefix in prefixes)
            if self.decision("read", resources).effect is not Effect.ALLOW:
                return False
            return not (of_skills or (inode and inode in linked())) or self.may_read(Path(base, relative))

        return tuple(sorted({*special, *hidden_below(base, names, may_show)}))

    def is_closed(self, file: Path) -> bool:
        """Return whether a file may not be changed, whatever a person answers."""
        names = self.session.place.workspace.rule_names(file)
        in_skills = any(str(file).startswith(f"{root}/") for root in self.session.view.roots)
        return in_skills or any(
            self.decision(each, names).effect is Effect.DENY for each in ("write", "delete")
        )

    @property
    def trash(self) -> Path:
        """Where the old content of files goes."""
        return self.run.record.place / "trash"

    @property
    def directory(self) -> Path:
        """Where what belongs to this call is kept."""
        return self.run.record.place / "calls" / f"{self.number:04}"


def _resources(finer: Sequence[Finer]) -> tuple[str, ...]:
    return tuple(resource for _, resources, _ in finer for resource in resources)


def explain(session: Session, permission: str, resources: Sequence[str]) -> Decision:
    """Return the decision about a request of the user, without doing or asking anything."""
    first = resources[0] if resources else ""
    call = _CALLS.get(permission, calls.ReadFile)(first)
    act = Act(session.asking(origin="user"), call)
    decisions = [act.decision(permission, tuple(resources))]
    match permission:
        case "read":
            decisions.append(act.foresee(act.reads(act.locate(first))))
        case "write" | "delete":
            decisions.append(act.foresee(act.writes(act.locate(first), permission)))
        case "network" | "script" | "command":
            decisions.append(act.foresee([(permission, tuple(resources), "")]))
        case "tool":
            careful = session.place.config.execution.require_approval_for
            decisions += filter(None, (needs_approval(tool, careful=careful) for tool in resources))
    return max(decisions, key=lambda decision: decision.effect)
