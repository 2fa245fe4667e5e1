"""One call of a session: ask the gate for everything it needs, carry it out within limits, and record it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Decision, Effect, Origin, Request, Rule, bounded, needs_approval, risk_of
from vademecum.policy.engine import APPROVAL, FIXED, RUN
from vademecum.policy.gate import Decided, Passage, refusal, said
from vademecum.runs.record import OBSERVATIONS
from vademecum.session.base import Deferred, Kind
from vademecum.session.recording import CHANGED, Answered, Run
from vademecum.session.view import file_names
from vademecum.skill.assets import Sees, no_file, script_name, skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import PREFIX, Inode, Input, find_inputs, hidden_below, listed_below
from vademecum.tools.workspace import Located

if TYPE_CHECKING:
    from vademecum.session.session import Session

# A permission, its resources, and their name for a model.
Finer = tuple[str, tuple[str, ...], str]
# If a rule denies one of these, it looks missing to a model.
_HIDING = frozenset({"read", "skill", "resource", "script"})
CLOSED_TO_AGENTS = "no rule, flag or answer allows it"
# Stays closed after a model unloaded the skill that excludes it.
_LASTING = frozenset(
    {"write_file", "edit_file", "save_output", "delete_file", "run_command", "network_request"}
)
_WRITING = frozenset({"edit_file", "save_output"})
_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")
T = TypeVar("T")


class Act(ExitStack):
    """One call, from the first question to its entry in the record.

    A refusal by a rule is an observation that a model can act on. A person's refusal is raised, because the
    caller must not ignore it.
    """

    def __init__(
        self,
        session: Session,
        approver: Approver,
        origin: Origin,
        call: calls.Call | None = None,
        cancelled: Callable[[], bool] = bool,
    ) -> None:
        super().__init__()
        self.session, self.origin, self._approver = session, origin, approver
        self.call, self.cancelled = call, cancelled
        self.tool = "" if call is None else calls.NAMES[type(call)]
        self.skill: Skill | None = None
        self.answers: dict[str, Answer] = {}
        self.is_written = self.hidden = False
        self.passage: Passage | None = None
        self.refused: Decision | None = None
        self.closed: Decision | None = None
        self.asked: list[Decided] = []
        self.wanted: Callable[[], Sequence[Finer]] = list
        self.found: list[Finer] = []

    # The record

    @cached_property
    def run(self) -> Run:
        """The run, which begins with the first event and stays open until the call is over."""
        return self.enter_context(self.session.recording.held(by_person=self.origin == "user"))

    @cached_property
    def number(self) -> int:
        """The number of this call in its run."""
        return next(self.run.numbers)

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run, if there is one."""
        if self.session.recording.is_on:
            self.run.record.add(type_, **data)

    def write_call(
        self, seen: Observation, parameters: Mapping[str, Any], started: float, seconds: float = 0.0
    ) -> None:
        """Add the event for one call of a tool: who called, when, the decision, and the result."""
        self.is_written = True
        skill, passage = self.skill, self.passage
        decision = self.refused if passage is None else passage.decision
        facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
        self.run.record.add_bounded(
            "tool_called",
            call=self.number,
            tool=seen.tool,
            risk=risk_of(seen.tool),
            agent=self.session.agent,
            skill=None if skill is None else skill.name,
            skill_id=None if skill is None else skill.skill_id,
            parameters=dict(parameters),
            started=started,
            seconds=seconds,
            decision=None if decision is None else decision.to_json(),
            asked=[
                {"permission": r.permission, "resources": list(r.resources), "effect": d.effect.name.lower()}
                for r, d in self.asked
            ],
            approved_by=None if passage is None else passage.by,
            ok=not seen.code,
            code=seen.code,
            result={**facts, "text": seen.text, "files": list(seen.files)},
            hashes={key: seen.facts[key] for key in _HASHES if key in seen.facts},
        )

    def perform(self, work: Callable[[], Observation], parameters: Mapping[str, Any]) -> Observation:
        """Do the work of a tool and record it, also if it fails."""
        started, clock = time.time(), time.monotonic()
        seen = Observation(self.tool, "", code="interrupted")
        self.number  # noqa: B018 - number calls in the order in which they begin
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
            # The record says what really happened, even if the model was told that something is missing.
            said = structs.replace(seen, code="denied") if self.hidden else seen
            self.write_call(said, parameters, started, time.monotonic() - clock)
        return seen

    # Questions

    def guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        """Call ``do`` if the guard, if any, allows it."""
        guard = self.session.guard
        if guard is None:
            return do()
        self.is_written = kind != "skill"  # the guard itself records what it refuses to tools
        return guard.act(kind, name, said, do, record=self.run.record)

    def check(self, digest: Callable[[], str], exact: Callable[[], str] = str) -> None:
        """Raise if this is a deferred call and its content has changed since."""
        if isinstance(self._approver, Answered) and (digest(), exact()) != self._approver.expected:
            raise ToolRefused(CHANGED, code="changed")

    def ask(self, question: Question) -> Answer:
        """Ask, and record question and answer; a failure to ask is a refusal."""
        self.write(
            "approval_asked",
            id=question.id,
            wanted=question.wanted,
            reason=question.decision.reason,
            about=question.about,
        )
        verdict, scope, message = "interrupted", None, ""
        try:
            answer = self._asked(question)
            verdict, message = answer.verdict, answer.message
            scope = answer.scope if verdict == "always" else None
        except Deferred:
            verdict = "deferred"
            raise
        finally:
            self.write("approval_answered", id=question.id, verdict=verdict, scope=scope, message=message)
        self.answers[question.fingerprint] = answer
        return answer

    def _asked(self, question: Question) -> Answer:
        try:
            return self._approver.ask(question)
        except (Deferred, VademecumError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever an approver raises is a refusal
            return Answer("reject", f"the question could not be asked ({error})", seen=False, absent=True)

    # Decisions of the rules

    def decided(self, permission: str, resources: tuple[str, ...], skill: Skill | None = None) -> Decided:
        """Return a request of this caller with its decision."""
        return self.all_decided([(permission, resources, "")], skill)[0]

    def all_decided(self, wanted: Sequence[Finer], skill: Skill | None = None) -> list[Decided]:
        """Return several requests of this caller with their decisions."""
        caller = self.origin, self.session.agent, None if skill is None else skill.name
        requests = [Request(each, names, *caller) for each, names, _ in wanted]
        return list(zip(requests, map(self.session.gate.policy.decide, requests), strict=True))

    def decision(self, permission: str, resources: tuple[str, ...], skill: Skill | None = None) -> Decision:
        """Return the decision about one request of this caller."""
        return self.decided(permission, resources, skill)[1]

    def sees(self, skill: Skill) -> Sees:
        """Return a function that says whether the caller may know of a file of a skill."""

        def sees(relative: str) -> bool:
            names = (f"{skill.name}/{relative}",)
            kinds = ("resource", "script") if relative.startswith("scripts/") else ("resource",)
            decided = self.all_decided([(each, names, "") for each in kinds], skill)
            return all(decision.effect is not Effect.DENY for _, decision in decided)

        return sees

    def find(self, name: str, source: str = "") -> Skill:
        """Return the skill of that name if the caller may know of it; models see only offered skills."""
        index = self.session.view.index if self.origin == "user" else self.session.view.offered
        try:
            return index.get(name, source=source or None)
        except SkillNotFound as error:
            if self.origin == "user":
                raise
            raise SkillNotFound(f"{error} search_skills finds skills by what they do.") from error

    def locate(self, path: str) -> Located:
        """Return the location of a path from outside: in the project, or an output of this conversation."""
        if path.startswith(PREFIX):
            return self.session.outputs.locate(path)
        return self.session.place.workspace.locate(path)

    def inputs(
        self, words: Sequence[str], files: Sequence[str], copies: Sequence[str] = ()
    ) -> tuple[list[Input], list[str]]:
        """Return the inputs that a call names, and the words that lead out of the project."""
        known, workspace = self.knows if self.origin != "user" else bool, self.session.place.workspace
        return find_inputs(words, files, copies, workspace=workspace, locate=self.locate, known=known)

    def decide(self, wanted: Callable[[], Sequence[Finer]], *, fixed: Sequence[Finer] = ()) -> None:
        """Decide about the tool itself and what it is used on.

        ``wanted`` is computed again after a person was asked; ``fixed`` cannot change.
        """
        self.wanted, self.found, self.asked = wanted, list(wanted()), []
        self.decide_also([*self._of_tool(), *fixed, *self.found])

    def decide_also(self, wanted: Sequence[Finer]) -> None:
        """Add requests that cannot change any more to the earlier decisions.

        If the rules deny reading or running, a model gets the error for a missing file or skill.
        """
        decided = self.all_decided(wanted, self.skill)
        self.asked = [*self.asked, *decided]
        for (request, decision), (_, _, shown) in zip(decided, wanted, strict=True):
            hides = decision.effect is Effect.DENY and request.permission in _HIDING
            if hides and self.origin != "user":
                self.refused, self.hidden = decision, True
                error = self._not_there(request.permission, shown)
                error.advice = said([request], decision)  # people are told of the rule
                raise error

    def _of_tool(self) -> list[Finer]:
        """Return the requests for the tool itself; a rule that denies writing denies all tools that write."""
        found: list[Finer] = [("tool", (self.tool,), "")]
        writes = self.tool in _WRITING or (isinstance(self.call, calls.RunCommand) and self.call.writes)
        if writes and self.decision("tool", ("write_file",)).effect is Effect.DENY:
            found.append(("tool", ("write_file",), ""))
        return found

    def refuse_denied(self, used_on: tuple[str, ...] = ()) -> None:
        """Raise if a decision is a denial, before anything is read or copied.

        If ``used_on`` is given, the bounds of active skills count too.
        """
        tool, _ = self.asked[0]
        bounds = self._bounds(used_on) if used_on else ()
        for request, decision in (*self.asked, *((tool, bound) for bound in bounds)):
            if decision.effect is Effect.DENY:
                self.refused = decision
                raise refusal([request], decision)

    def _not_there(self, permission: str, shown: str) -> VademecumError:
        if isinstance(self.call, calls.RunScript) and not shown and self.skill is not None:
            if permission == "skill":
                return SkillNotFound(f"No skill is called {self.call.skill!r}.")
            return no_file(self.skill, self.call.relative_path, self.sees(self.skill), what="script")
        return ToolRefused(f"There is no {shown!r} here.", code="missing")

    def denied_files(self, skill: Skill) -> list[str]:
        """Return the files of a skill that a rule denies; its scripts do not get them either."""
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
        """Ask for the tool itself and what it is used on, within all bounds."""
        self.decide(finer)
        self.settle(resources_of(self.found), about=about, exact=exact)

    def settle(
        self,
        used_on: tuple[str, ...],
        *,
        about: Callable[[], str],
        exact: Callable[[], str],
        digest: str | None = None,
    ) -> None:
        """Return only if the rules, the bounds and, if asked, a person allow everything decided on.

        An answer applies to the result of ``exact`` and to ``digest``, by default the skill's.
        """
        if digest is None:
            digest = "" if self.skill is None else skill_digest(self.skill)
        worst, also = self._worst(used_on)
        self.refused = worst if worst.effect is not Effect.ALLOW else None
        held = partial(str, digest)
        self.check(held, exact)
        secrets = self.session.place.secrets
        self.passage = self.session.gate.settle(
            self.asked,
            approver=self,
            digest=held,
            about=lambda: secrets.mask_values(about()),
            exact=exact,
            also=also,
        )
        # While the person decided, a path may have become a link to something else.
        if self.passage.by != "rule" and list(self.wanted()) != self.found:
            raise ToolRefused(CHANGED, code="changed")

    def foresee(self, finer: Sequence[Finer]) -> Decision:
        """Return the decision about a call with these needs, without doing or asking anything."""
        self.decide(lambda: finer)
        return self._worst(resources_of(finer))[0]

    def _worst(self, used_on: tuple[str, ...]) -> tuple[Decision, list[Decision]]:
        """Return the strictest decision about the call, and those that did not come from the rules."""
        also = [*self._bounds(used_on), *self._risk(used_on), *self._origin_risk()]
        also += [self.closed] if self.closed else []
        # Of equal decisions, the one about the risk says best what would allow the call.
        decided = (decision for _, decision in self.asked)
        return max((*also, *decided), key=lambda decision: decision.effect), also

    def _bounds(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return the decisions of ``allowed-tools`` that exclude the call.

        A script must be in its own skill's list; if another active skill excludes it, a person is asked. Any
        other tool must be in the lists of all active skills. If only a skill that the model unloaded excludes
        a tool that changes or sends something, a person is asked.
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
        uses = [(self.tool, used_on)]
        if isinstance(self.call, calls.RunCommand):  # its changes and hosts must be in the list as well
            uses = [(self.tool, used_on[:1]), ("write_file", tuple(self.call.writes))]
            uses.append(("network_request", tuple(self.call.network)))
        found = [
            bounded(tool, names, skill=skill.name, allowed_tools=allowed, effect=effect)
            for skill, effect in excluding
            if (allowed := skill.controls.allowed_tools) is not None
            for tool, names in uses
            if names or tool == self.tool
        ]
        return [decision for decision in found if decision is not None]

    def _risk(self, used_on: tuple[str, ...]) -> list[Decision]:
        """Return the approval that a risky tool needs, unless this run was started with it."""
        needed = needs_approval(self.tool, careful=self.session.place.config.execution.require_approval_for)
        if needed is None:
            return []
        wanted = Request(APPROVAL, tuple(f"{self.tool} {each}" for each in used_on), agent=self.session.agent)
        decision = self.session.gate.policy.decide(wanted)
        return [] if decision.effect is Effect.ALLOW and decision.layer == RUN else [needed]

    def _origin_risk(self) -> list[Decision]:
        """Return the approval that a script from a server always needs."""
        if not isinstance(self.call, calls.RunScript) or self.skill is None:
            return []
        if not self.skill.source.startswith("mcp:"):
            return []
        says = f"that comes from {self.skill.source} always needs approval"
        rule = Rule("script", says, Effect.ASK, "a script", 0, "approve it, or install the skill")
        resource = f"{self.skill.name}/{script_name(self.skill, self.call.relative_path)}"
        return [Decision(Effect.ASK, rule, "script", resource)]

    def reads(self, *files: Located) -> list[Finer]:
        """Return the requests for reading files; outputs of this conversation need none."""
        seen = [Path(os.path.realpath(place / OBSERVATIONS)) for place in self.session.recording.places]
        found: list[Finer] = []
        for located in files:
            real = Path(os.path.realpath(located.path))
            if not (located.name.startswith(PREFIX) or not {real, *real.parents}.isdisjoint(seen)):
                names = self.session.place.workspace.names(located)
                found += [("read", names, located.name), *self._of_skill(real, located.name)]
        return found

    def writes(self, located: Located, permission: str = "write") -> list[Finer]:
        """Return the requests for changing or deleting a file."""
        names = f"{located.path}/", f"{os.path.realpath(located.path)}/"
        if any(name.startswith(f"{root}/") for root in self.session.view.roots for name in names):
            rule = Rule(permission, "close the roots of skills", Effect.DENY, FIXED, 0, CLOSED_TO_AGENTS)
            self.closed = Decision(Effect.DENY, rule, permission, located.name)
        return [(permission, self.session.place.workspace.names(located), located.name)]

    def _of_skill(self, real: Path, shown: str) -> list[Finer]:
        """Return the requests for a path that is a file of a skill, under any of its names."""
        found: list[Finer] = []
        for skill, relative in self.session.view.owners(real):
            found.append(("skill", (skill.name,), shown))
            if relative in {".", skill.file}:
                continue
            names = (f"{skill.name}/{relative}",)
            found.append(("resource", names, shown))
            if relative.startswith("scripts/"):  # a script that may be run after approval may be read
                decision = self.decision("script", names, skill)
                found += [("script", names, shown)] if decision.effect is Effect.DENY else []
        return found

    def may_read(self, real: Path, *, most: Effect = Effect.ALLOW) -> bool:
        """Return whether a path may be read without asking."""
        names = self.session.place.workspace.rule_names(real)
        finer = [("read", names, ""), *self._of_skill(Path(os.path.realpath(real)), "")]
        return max([decision.effect for _, decision in self.all_decided(finer)]) <= most

    def may_list(self, real: Path) -> bool:
        """Return whether the caller may know of a path."""
        return self.may_read(real, most=Effect.ASK)

    def knows(self, located: Located) -> bool:
        """Return whether the caller may know of a location."""
        return located.name.startswith(PREFIX) or self.may_list(Path(os.path.realpath(located.path)))

    def hidden_in(self, located: Located) -> tuple[str, ...]:
        """Return the relative paths below a directory that may not be read without asking."""
        workspace, base = self.session.place.workspace, os.path.realpath(located.path)
        prefixes = [
            "" if name == "." else f"{name}/" for name in dict.fromkeys(workspace.rule_names(Path(base)))
        ]
        names, special = listed_below(base)
        policy, agent, skills = self.session.gate.policy, self.session.agent, self.session.view
        of_skills = skills.overlap(base)
        written = "\n".join(f"{prefix}{name}" for prefix in prefixes for name in names)
        # Denied files of skills can be reached by hard links, under any name.
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
        """Return whether a file must not be changed, even with approval."""
        names = self.session.place.workspace.rule_names(file)
        in_skills = any(str(file).startswith(f"{root}/") for root in self.session.view.roots)
        return in_skills or any(
            self.decision(each, names).effect is Effect.DENY for each in ("write", "delete")
        )

    @property
    def trash(self) -> Path:
        """The directory for the old content of files that this call changes."""
        return self.run.record.place / "trash" / f"{self.number:04}"

    @property
    def directory(self) -> Path:
        """The directory of this call."""
        return self.run.record.place / "calls" / f"{self.number:04}"


def resources_of(finer: Sequence[Finer]) -> tuple[str, ...]:
    return tuple(resource for _, resources, _ in finer for resource in resources)
