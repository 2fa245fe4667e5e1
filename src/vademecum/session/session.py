"""The session: one agent in one conversation at one place. Whatever serves a model goes through it."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, assert_never

from msgspec import structs

from vademecum.config import SandboxName
from vademecum.errors import Declined, Denied, SkillNotFound, ToolRefused, VademecumError
from vademecum.loader.loading import BodyLimits, Loaded, load_body, load_document, load_resource, no_file
from vademecum.policy.approval import Answer, Approver, Nobody, Question
from vademecum.policy.base import Decider, Decision, Effect, Origin, Request
from vademecum.policy.bounds import needs_approval
from vademecum.policy.engine import Policy
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Listener, Record, new_run, runs_directory
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.choose import choose_sandbox
from vademecum.session import asking
from vademecum.session.act import Act, Entry, RunContext, record_of
from vademecum.session.base import Deferred, Guard, Host, Kind, Result, TextKind
from vademecum.session.place import Place
from vademecum.session.recording import CLOSED, Recording, Run
from vademecum.session.view import View, files_seen
from vademecum.skill.assets import (
    MAX_ASSETS,
    Sees,
    asset_path,
    list_assets,
    no_script,
    script_name,
    script_path,
)
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation

T = TypeVar("T")


class Session:
    """One agent in one conversation at one place: its skills, rules, active skills and record.

    Without an approver nobody is asked, and what would need approval is refused. Threads may call together.

    >>> from vademecum import BUILTIN_ROOT, IndexOptions, build_index
    >>> session = Session(build_index(BUILTIN_ROOT, IndexOptions()))
    >>> session.call(calls.ListSkillAssets("file-diff")).text
    '["scripts/compare.py"]'
    >>> session.call(calls.RunScript("file-diff", "compare.py")).code
    'not-loaded'
    """

    def __init__(  # noqa: PLR0913 - the parts of a session
        self,
        index: SkillIndex,
        *,
        place: Place | None = None,
        policy: Decider | None = None,
        view: View | None = None,
        agent: str = "default",
        origin: Origin = "model",
        approver: Approver | None = None,
        guard: Guard | None = None,
        limits: BodyLimits | None = None,
        client: str = "Session",
        runs: Path | None = None,
        listener: Listener | None = None,
        sandbox: Callable[[SandboxName], Sandbox] = choose_sandbox,
        recording: bool = True,
    ) -> None:
        self.place = place or Place.at()
        self.agent = agent
        self.host: Host | None = None
        self._origin: Origin = origin
        self._approver = approver
        self._guard = guard
        self._client = client
        self._runs = runs or runs_directory(self.place.context)
        self.listener = listener
        self._choose_sandbox = sandbox
        self._sandbox: Sandbox | None = None
        self._parent: Session | None = None
        self._lock = threading.RLock()
        self._active: dict[str, Skill] = {}
        self._unloaded: dict[str, Skill] = {}
        self._recording = Recording(self._start) if recording else None
        self._gate = Gate(
            policy or Policy.load(self.place.context),
            project=self.place.project,
            grants=Grants(self.place.grants),
        )
        self.view = view or View(index, self._gate, agent=agent, origin=origin)
        self._limits = limits or BodyLimits(index.options.body_lines)

    # Calls

    def call(
        self,
        call: calls.Call,
        *,
        approver: Approver | None = None,
        cancelled: Callable[[], bool] = bool,
        origin: Origin | None = None,
        for_skill: str | None = None,
    ) -> Result:
        """Do one call; what goes wrong is a result that a model can act on.

        Two things are raised: a person's no, as ``Declined``, because the caller must not go on as if it had
        not been said; and ``Deferred``, if the approver puts the answer off. Then nothing was done, and
        ``resume`` does it. A script ends when ``cancelled`` returns true. ``for_skill`` is the active skill
        that a direct tool is called for, if the caller names one.
        """
        origin = origin or self._origin
        with self._asked(approver) as asked:
            try:
                if isinstance(call, calls.SkillCall):
                    result = self._about_skill(call, asked, origin)
                else:
                    result = self._tool(call, asked, cancelled, origin, for_skill)
            except Declined:
                raise
            except Deferred as deferred:
                if deferred.kept:
                    self._defer(deferred.question, call, asked, origin, for_skill)
                raise
            except VademecumError as error:
                result = Result(str(error), error.code, "error", advice=error.advice)
                if isinstance(call, calls.SkillCall) or error.code in {"not-loaded", "skill-not-found"}:
                    self._failed(calls.NAMES[type(call)], calls.said(call), result, asked)
        return replace(result, text=self.place.secrets.mask_values(result.text))

    def call_named(
        self,
        name: object,
        arguments: Mapping[str, Any] | str,
        *,
        offered: Sequence[str] = tuple(calls.CALLS),
        **options: Any,
    ) -> Result:
        """Do one call by its name, with arguments as a model sends them, if it is one of those offered."""
        try:
            call = calls.parse_call(name, arguments, offered=offered)
        except ToolRefused as error:
            result = Result(str(error), error.code, "error")
            with self._asked() as asked:
                self._failed(str(name)[:80], {"wrong": arguments}, result, asked)
            return result
        return self.call(call, **options)

    def _failed(self, name: str, said: Mapping[str, Any], result: Result, asked: asking.CallRecord) -> None:
        """Write down a call that failed before anything was done."""
        if self._recording is not None:
            run = asked.run
            entry = Entry(next(run.numbers), self.agent, None, time.time())
            written = record_of(entry, said, Observation(name, result.text, code=result.code))
            run.record.add_bounded("tool_called", **written)

    def resume(self, question_id: str, answer: Answer, *, approver: Approver | None = None) -> Result:
        """Do a call whose question was put off, also in another process than the one that asked.

        Exactly that call is done, and only if what it is about is the same as when it was asked. ``approver``
        is for further questions of the same call.
        """
        try:
            file, pending = asking.find(self._runs, question_id, key=self._key())
            if pending.agent != self.agent:
                raise VademecumError("Another agent asked that question.", code="no-question")  # noqa: TRY301
            call = calls.parse_call(pending.call, pending.arguments)
            active = {skill.location: skill for skill in map(self.index.get, pending.active)}
            if not asking.take(file):
                raise VademecumError("That question was answered already.", code="no-question")  # noqa: TRY301
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        if answer.verdict == "reject":
            self.write("approval_answered", id=question_id, verdict="reject", message=answer.message)
            told = f" ({answer.message})" if answer.message else ""
            raise Declined(f"{pending.wanted} was declined{told}: it was not done.", told=answer.message)
        answered = asking.Answered(pending, answer, approver or self._approver or Nobody())
        session = self
        if not isinstance(call, calls.SkillCall):  # as it was when the call was made, and nothing else of it
            session = copy.copy(self)
            session._active = {**active, **self._active}
        return session.call(call, approver=answered, origin=pending.origin, for_skill=pending.for_skill)

    def _key(self) -> bytes:
        try:
            return asking.key_of(self.place.grants.parent)
        except OSError as error:
            text = f"The key of the sessions in {self.place.grants.parent} cannot be used ({error.strerror})."
            raise VademecumError(text, code="config") from error

    def explain(self, permission: str, resources: Sequence[str]) -> Decision:
        """Return what would be decided about a request, by the code that decides when a call is made."""
        request = Request(permission, tuple(resources), "user", self.agent)
        first = resources[0] if resources else ""
        context = self._context(Run.__new__(Run))  # nothing is written
        with self._asked() as asked:
            decisions = [self._gate.decide(request)]
            match permission:
                case "read":
                    act = Act(context, calls.ReadFile(first), asked, origin="user")
                    decisions.append(act.foresee(act.reads(first)))
                case "write":
                    act = Act(context, calls.WriteFile(first, ""), asked, origin="user")
                    decisions.append(act.foresee(act.writes(first)))
                case "delete":
                    act = Act(context, calls.DeleteFile(first), asked, origin="user")
                    decisions.append(act.foresee(act.writes(first, permission)))
                case "network" | "script":
                    call = (
                        calls.NetworkRequest(first) if permission == "network" else calls.RunScript("", first)
                    )
                    act = Act(context, call, asked, origin="user")
                    decisions.append(act.foresee([(permission, tuple(resources), "")]))
                case "tool":
                    careful = self.place.config.execution.require_approval_for
                    needed = (needs_approval(tool, careful=careful) for tool in resources)
                    decisions += filter(None, needed)
        return max(decisions, key=lambda decision: decision.effect)

    # Skills

    @property
    def index(self) -> SkillIndex:
        """All skills of this place, also those that the agent may not know of."""
        return self.view.index

    @property
    def active(self) -> tuple[Skill, ...]:
        """The skills that are loaded, in the order they were."""
        with self._lock:
            return tuple(self._active.values())

    def activate(self, name: str, *, source: str = "", origin: Origin = "user") -> Skill:
        """Make a skill active without loading its text, because the person or the one call named it."""
        skill = self.find(name, source, origin)
        with self._lock:
            self._active[skill.location] = skill
        return skill

    def show(
        self,
        name: str,
        *,
        source: str = "",
        section: str | None = None,
        whole: bool = False,
        origin: Origin | None = None,
    ) -> Result:
        """Return the text of a skill, of one section or of the ``whole`` document, without making it active.

        What goes wrong is raised.
        """
        origin = origin or self._origin
        skill = self.find(name, source, origin)
        with self._asked() as asked:
            effect = self._require_skill(skill, asked, origin)
            loaded = load_document(skill) if whole else self._body(skill, origin, section)
            self._write_load(skill, loaded, origin, effect, asked)
        return Result(loaded.text, kind="skill", skill=skill, report=loaded.report)

    def _load(self, skill: Skill, asked: asking.CallRecord, origin: Origin, task: str) -> Result:
        """Load the instructions of a skill and make it active; loaded again, it gives its text again."""
        effect = self._require_skill(skill, asked, origin)
        if skill.controls.run_mode == "subagent" and self.host is not None:
            return self.host.run_subagent(skill, task, effect)
        loaded = self._body(skill, origin)
        if self.host is not None and not self.host.has_room_for(loaded.text):
            raise VademecumError(f"The instructions of {skill.name} do not fit any more.", code="max-context")
        return self._activated(skill, loaded, origin, effect, asked)

    def nested_body(self, skill: Skill) -> Loaded:
        """Read the one skill of a child agent, which passed the gate of its parent already."""
        return self._body(skill, "nested")

    def load_nested(self, skill: Skill, loaded: Loaded, effect: str) -> Result:
        """Make the one skill of a child agent active in its own run."""
        with self._asked() as asked:
            return self._activated(skill, loaded, "nested", effect, asked)

    def _require_skill(self, skill: Skill, asked: asking.CallRecord, origin: Origin) -> str:
        request = Request("skill", (skill.name,), origin, self.agent, skill.name)
        asked.check(partial(skill_digest, skill))
        passage = self._gate.require(request, approver=asked, digest=partial(skill_digest, skill))
        self._guarded("skill", skill.name, {}, lambda: None, asked)
        return passage.decision.effect.name.lower()

    def _body(self, skill: Skill, origin: Origin, section: str | None = None) -> Loaded:
        return load_body(skill, limits=self._limits, section=section, sees=self._sees(skill, origin))

    def _activated(
        self, skill: Skill, loaded: Loaded, origin: Origin, effect: str, asked: asking.CallRecord
    ) -> Result:
        with self._lock:
            self._unloaded.pop(skill.location, None)
            self._active.pop(skill.location, None)
            self._active[skill.location] = skill
        self._write_load(skill, loaded, origin, effect, asked)
        return Result(loaded.text, kind="skill", skill=skill, report=loaded.report)

    def _write_load(
        self, skill: Skill, loaded: Loaded, origin: Origin, effect: str, asked: asking.CallRecord
    ) -> None:
        report = loaded.report.to_json()
        asked.write("skill_loaded", skill=skill.skill_id, origin=origin, effect=effect, report=report)

    def _about_skill(self, call: calls.SkillCall, asked: asking.CallRecord, origin: Origin) -> Result:
        match call:
            case calls.UseSkill(name=name, source=source, task=task):
                return self._load(self.find(name, source, origin), asked, origin, task)
            case calls.UnloadSkill(skill=name, source=source):
                return self._unload(self._chosen(name, source, origin), origin, asked)
            case calls.SearchSkills(query=query, n=n):
                hits = [
                    {"name": hit.name, "description": hit.description} for hit in self.view.search(query, n)
                ]
                return Result(json.dumps(hits, ensure_ascii=False))
            case calls.LoadSkillAsset():
                return self._asset(call, asked, origin)
            case calls.ListSkillAssets(skill=name, source=source):
                skill = self.find(name, source, origin)
                self._guarded("skill", skill.name, {}, lambda: None, asked)
                names = list_assets(skill, sees=self._sees(skill, origin))
                note = f"\n(only the first {MAX_ASSETS:,} are listed)" if len(names) == MAX_ASSETS else ""
                return Result(json.dumps(names, ensure_ascii=False) + note)
            case calls.GetSkillScriptPath(skill=name, relative_path=script, source=source):
                skill = self.find(name, source, origin)
                try:
                    self._require_file("script", skill, script_name(skill, script), asked, origin)
                except Declined:
                    raise
                except Denied as error:
                    text = f"{error} run_script runs it in a sandbox."
                    return Result(text, error.code, "error", advice=error.advice)
                return Result(str(script_path(skill, script, sees=self._sees(skill, origin))))
            case _:
                assert_never(call)

    def _unload(self, skill: Skill, origin: Origin, asked: asking.CallRecord) -> Result:
        """Make a skill inactive; what it kept a model from changing stays closed until a person says so."""
        with self._lock:
            self._active.pop(skill.location, None)
            if origin != "user":
                self._unloaded[skill.location] = skill
        asked.write("skill_unloaded", skill=skill.skill_id)
        return Result(f"{skill.name} is not loaded any more.")

    def _asset(self, call: calls.LoadSkillAsset, asked: asking.CallRecord, origin: Origin) -> Result:
        skill = self.find(call.skill, call.source, origin)
        sees = self._sees(skill, origin)
        relative = asset_path(skill, call.relative_path, sees=sees)
        self._require_file("resource", skill, relative, asked, origin)
        loaded = load_resource(skill, relative, section_hint=call.section_hint or None, sees=sees)
        asked.write("resource_loaded", skill=skill.skill_id, path=relative, report=loaded.report.to_json())
        return Result(loaded.text, kind="resource", skill=skill, report=loaded.report)

    def _require_file(
        self, permission: str, skill: Skill, relative: str, asked: asking.CallRecord, origin: Origin
    ) -> None:
        """Ask for a file of a skill by its one spelling, and for what it is if it is a link."""
        real = os.path.relpath(
            os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location)
        )
        names = tuple(dict.fromkeys(f"{skill.name}/{path}" for path in (relative, real)))
        request = Request(permission, names, origin, self.agent, skill.name)
        if origin != "user" and self._gate.decide(request).effect is Effect.DENY:
            # What a rule denies looks to a model like what does not exist.
            missing = no_script if permission == "script" else no_file
            raise missing(skill, relative, self._sees(skill, origin))
        asked.check(partial(skill_digest, skill))
        self._gate.require(request, approver=asked, digest=partial(skill_digest, skill))
        self._guarded("skill", skill.name, {}, lambda: None, asked)

    def _sees(self, skill: Skill, origin: Origin) -> Sees:
        return files_seen(self._gate, skill, agent=self.agent, origin=origin)

    def find(self, name: str, source: str = "", origin: Origin | None = None) -> Skill:
        """Return the skill of that name that may be known: for a model, one of those it was offered."""
        origin = origin or self._origin
        index = self.index if origin == "user" else self.view.offered
        try:
            return index.get(name, source=source or None)
        except SkillNotFound as error:
            if origin == "user":
                raise
            raise SkillNotFound(f"{error} search_skills finds skills by what they do.") from error

    def _chosen(self, name: str, source: str, origin: Origin) -> Skill:
        """The active skill of that name, of namesakes the one loaded last."""
        active = self.index.restricted(reversed(self.active))
        try:
            return active.get(name, source=source or None)
        except SkillNotFound:
            found = self.find(name, source, origin)
        raise VademecumError(f"The skill {found.name!r} is not loaded: load it first.", code="not-loaded")

    # Tools

    def _tool(
        self,
        call: calls.ToolCall,
        asked: asking.CallRecord,
        cancelled: Callable[[], bool],
        origin: Origin,
        for_skill: str | None,
    ) -> Result:
        skill = None if for_skill is None else self._chosen(*_reference(for_skill), origin)
        if isinstance(call, calls.RunScript):
            skill = self._chosen(call.skill, call.source, origin)
        act = Act(self._context(asked.run), call, asked, skill, origin, cancelled)
        kind: Kind = "tool"
        name, said = act.tool, calls.said(call)
        if isinstance(act.call, calls.RunScript) and skill is not None:
            act.call = run = structs.replace(act.call, files=act.inputs(act.call))
            kind, name = "script", f"{skill.name}/{script_name(skill, run.relative_path)}"
            # A charter knows a script by its mapping, and what is said to it by these names.
            said = {"arguments": run.args, "files": run.files, "network": run.network}
            said = {key: value for key, value in said.items() if value}

        def do() -> Result:
            seen = act.perform()
            came: TextKind = "error" if seen.code else "tool"
            return Result(seen.text, seen.code, came, skill, None, seen.facts, seen.files, seen.advice)

        return self._guarded(kind, name, said, do, asked)

    def _context(self, run: Run) -> RunContext:
        return RunContext(
            run,
            self._gate,
            self.place,
            self._in_sandbox,
            self.view.files,
            self.agent,
            *self._bounding(),
            () if self._recording is None else self._recording.places,
        )

    def _bounding(self) -> tuple[tuple[Skill, ...], tuple[Skill, ...]]:
        """The skills that bound tools, active and unloaded; a child is bounded by its parent's as well."""
        with self._lock:
            active, unloaded = tuple(self._active.values()), tuple(self._unloaded.values())
        if self._parent is None:
            return active, unloaded
        above, before = self._parent._bounding()
        return (*above, *active), (*before, *unloaded)

    def _in_sandbox(self) -> Sandbox:
        """The sandbox of this session, chosen when the first script needs it."""
        if self._sandbox is None:
            self._sandbox = self._choose_sandbox(self.place.config.execution.sandbox)
        return self._sandbox

    def _guarded(
        self,
        kind: Kind,
        name: str,
        said: Mapping[str, object],
        do: Callable[[], T],
        asked: asking.CallRecord,
    ) -> T:
        if self._guard is None:
            return do()
        return self._guard.act(kind, name, said, do, record=asked.run.record)

    def _asked(self, approver: Approver | None = None) -> asking.CallRecord:
        """One call on the record, with whoever answers its questions."""
        held = None if self._recording is None else self._recording.held
        return asking.CallRecord(approver or self._approver or Nobody(), held)

    def _defer(
        self,
        question: Question,
        call: calls.Call,
        asked: asking.CallRecord,
        origin: Origin,
        for_skill: str | None,
    ) -> None:
        pending = asking.Pending(
            calls.NAMES[type(call)],
            calls.said(call),
            self.agent,
            origin,
            asking.fingerprint(question),
            question.digest,
            question.exact,
            question.wanted,
            for_skill,
            tuple(skill.location for skill in self.active),
            asked.answers,
        )
        asking.keep(asked.run.record.place, question.id, pending, key=self._key())

    # The record

    def begin(self, request: str, *, model: str, **more: Any) -> Record:
        """Begin a run: one request of the conversation. Answers "for this run" begin anew with it."""
        assert self._recording is not None
        run = self._recording.begin(partial(self._start, request, model=model, **more))
        return run.record

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write down how the run ended, and close its record once its last call is over."""
        if self._recording is not None:
            self._recording.end(summary)

    def child(self) -> Session:
        """Return the session of a child agent: the same rules, answers and place, and a record of its own."""
        child = copy.copy(self)
        child.host, child._active, child._unloaded = None, {}, {}
        child._lock = threading.RLock()
        child._parent = self
        child._recording = Recording(child._start)
        child.view = View.of_nothing(self.index)
        return child

    def adopt(self, policy: Decider, view: View, place: Place) -> None:
        """Go on with other rules, skills and settings; what was done so far stays as it was."""
        with self._lock:
            changed = view.index.hash != self.index.hash
            self._gate.policy, self.view, self.place = policy, view, place
            self._sandbox = None
        if changed and self.run_id:
            self.write("index_changed", index_hash=view.index.hash, skills=len(view.index))

    def close(self) -> None:
        """End the run, if one was begun; calls that go on are waited for. A later call begins another run."""
        self.finish(CLOSED)

    def abandon(self) -> None:
        """End all runs at once, with whatever still goes on: the process is about to end."""
        if self._recording is not None:
            self._recording.abandon()

    @property
    def run_id(self) -> str:
        """The id of the run that goes on, or nothing."""
        run = None if self._recording is None else self._recording.now
        return "" if run is None else run.record.run_id

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run."""
        with self._asked() as asked:
            asked.write(type_, **data)

    def _start(self, request: str = "", *, model: str = "another program's", **more: Any) -> Record:
        """Begin the record of a run; answers "for this run" are forgotten, unless it is a child's."""
        if self._parent is None:
            self._gate.begin_run()
        if not request:
            request, more = f"skills for {self.agent}, through {self._client}", {"skills": len(self.index)}
        record = Record(new_run(self._runs), secrets=self.place.secrets, listener=self.listener)
        record.snapshot(self.index.hash, lambda: self.view.snapshot)
        record.add(
            "run_started",
            request=request,
            model=model,
            agent=self.agent,
            index_hash=self.index.hash,
            **({"allow": list(allow)} if (allow := getattr(self._gate.policy, "allow", ())) else {}),
            **more,
        )
        return record


def _reference(written: str) -> tuple[str, str]:
    """The name and the source of a skill that was written as ``source:name`` or only by its name."""
    source, _, name = written.rpartition(":")
    return name, source
