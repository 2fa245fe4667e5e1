"""The session: one agent in one conversation at one place. Whatever serves a model goes through it."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, assert_never

from msgspec import structs

from vademecum.config import SandboxName
from vademecum.errors import Declined, Denied, SkillNotFound, ToolRefused, VademecumError
from vademecum.loader.loading import BodyLimits, Loaded, load_body, load_document, load_resource
from vademecum.policy.approval import Answer, Approver, Nobody, Question
from vademecum.policy.base import Decider, Origin, Request
from vademecum.policy.engine import Policy
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Listener, Record, new_run, runs_directory
from vademecum.sandbox.base import Sandbox
from vademecum.sandbox.choose import choose_sandbox
from vademecum.session import asking
from vademecum.session.act import Act, Entry, Run, RunContext, record_of
from vademecum.session.base import Deferred, Guard, Host, Kind, Result, TextKind
from vademecum.session.place import Place
from vademecum.session.view import View, files_seen
from vademecum.skill.assets import MAX_ASSETS, Sees, asset_path, list_assets, script_name, script_path
from vademecum.skill.digest import skill_digest
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation

MAX_WRONG_CHARS = 50_000

_CLOSED: dict[str, Any] = {"status": "done", "stop_reason": "closed", "answer": "", "stats": {}}
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
        self._recording = recording
        self._parent: Session | None = None
        self._lock = threading.RLock()
        self._active: dict[str, Skill] = {}
        self._run: Run | None = None
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
        asked = self._asked(approver)
        origin = origin or self._origin
        try:
            if isinstance(call, calls.SkillCall):
                return self._about_skill(call, asked, origin)
            return self._tool(call, asked, cancelled, origin, for_skill)
        except Declined:
            raise
        except Deferred as deferred:
            self._defer(deferred.question, call, asked, origin)
            raise
        except VademecumError as error:
            return Result(str(error), error.code, "error")

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
            seen = Observation(str(name)[:80], str(error), code=error.code)
            with self._held() as run:
                entry = Entry(next(run.numbers), self.agent, None, time.time())
                written = record_of(entry, {"wrong": repr(arguments)[:MAX_WRONG_CHARS]}, seen)
                run.record.add_bounded("tool_called", **written)
            return Result(seen.text, seen.code, "error")
        return self.call(call, **options)

    def resume(self, question_id: str, answer: Answer, *, approver: Approver | None = None) -> Result:
        """Do a call whose question was put off, also in another process than the one that asked.

        Exactly that call is done, and only if what it is about is the same as when it was asked. ``approver``
        is for further questions of the same call.
        """
        try:
            pending = asking.take(self._runs, question_id, agent=self.agent)
            for skill_id in pending.active:
                self.activate(skill_id)
            call = calls.parse_call(pending.call, pending.arguments)
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        answered = asking.Answered(pending, answer, approver or self._approver or Nobody())
        return self.call(call, approver=answered, origin=pending.origin)

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
        self._require_skill(skill, self._asked(), origin)
        loaded = load_document(skill) if whole else self._body(skill, origin, section)
        return Result(loaded.text, kind="skill", skill=skill, report=loaded.report)

    def _load(self, skill: Skill, asked: asking.OnRecord, origin: Origin) -> Result:
        """Load the instructions of a skill and make it active; loaded again, it gives its text again."""
        effect = self._require_skill(skill, asked, origin)
        self._guarded("skill", skill.name, {}, lambda: None)
        if skill.controls.run_mode == "subagent" and self.host is not None:
            return self.host.run_subagent(skill, effect)
        loaded = self._body(skill, origin)
        if self.host is not None and not self.host.has_room_for(loaded.text):
            raise VademecumError(f"The instructions of {skill.name} do not fit any more.", code="max-context")
        return self._activated(skill, loaded, origin, effect)

    def load_nested(self, skill: Skill, effect: str) -> Result:
        """Load the one skill of a child agent, which passed the gate of its parent already."""
        return self._activated(skill, self._body(skill, "nested"), "nested", effect)

    def _require_skill(self, skill: Skill, asked: asking.OnRecord, origin: Origin) -> str:
        request = Request("skill", (skill.name,), origin, self.agent, skill.name)
        passage = self._gate.require(request, approver=asked, digest=partial(skill_digest, skill))
        return passage.decision.effect.name.lower()

    def _body(self, skill: Skill, origin: Origin, section: str | None = None) -> Loaded:
        return load_body(skill, limits=self._limits, section=section, sees=self._sees(skill, origin))

    def _activated(self, skill: Skill, loaded: Loaded, origin: Origin, effect: str) -> Result:
        with self._lock:
            self._active.pop(skill.location, None)
            self._active[skill.location] = skill
        report = loaded.report.to_json()
        self.write("skill_loaded", skill=skill.skill_id, origin=origin, effect=effect, report=report)
        return Result(loaded.text, kind="skill", skill=skill, report=loaded.report)

    def _about_skill(self, call: calls.SkillCall, asked: asking.OnRecord, origin: Origin) -> Result:
        match call:
            case calls.UseSkill(name=name, source=source):
                return self._load(self.find(name, source, origin), asked, origin)
            case calls.UnloadSkill(skill=name, source=source):
                return self._unload(self._chosen(name, source, origin))
            case calls.SearchSkills(query=query, n=n):
                hits = [
                    {"name": hit.name, "description": hit.description} for hit in self.view.search(query, n)
                ]
                return Result(json.dumps(hits, ensure_ascii=False))
            case calls.LoadSkillAsset():
                return self._asset(call, asked, origin)
            case calls.ListSkillAssets(skill=name, source=source):
                skill = self.find(name, source, origin)
                names = list_assets(skill, sees=self._sees(skill, origin))
                note = f"\n(only the first {MAX_ASSETS:,} are listed)" if len(names) == MAX_ASSETS else ""
                return Result(json.dumps(names, ensure_ascii=False) + note)
            case calls.GetSkillScriptPath(skill=name, relative_path=script, source=source):
                skill = self.find(name, source, origin)
                try:
                    self._require_file("script", skill, script_name(skill, script), asked, origin)
                except Denied as error:
                    return Result(f"{error} run_script runs it in a sandbox.", error.code, "error")
                return Result(str(script_path(skill, script, sees=self._sees(skill, origin))))
            case _:
                assert_never(call)

    def _unload(self, skill: Skill) -> Result:
        with self._lock:
            self._active.pop(skill.location, None)
        self.write("skill_unloaded", skill=skill.skill_id)
        return Result(f"{skill.name} is not loaded any more.")

    def _asset(self, call: calls.LoadSkillAsset, asked: asking.OnRecord, origin: Origin) -> Result:
        skill = self.find(call.skill, call.source, origin)
        sees = self._sees(skill, origin)
        relative = asset_path(skill, call.relative_path, sees=sees)
        self._require_file("resource", skill, relative, asked, origin)
        loaded = load_resource(skill, relative, section_hint=call.section_hint or None, sees=sees)
        self.write("resource_loaded", skill=skill.skill_id, path=relative, report=loaded.report.to_json())
        return Result(loaded.text, kind="resource", skill=skill, report=loaded.report)

    def _require_file(
        self, permission: str, skill: Skill, relative: str, asked: asking.OnRecord, origin: Origin
    ) -> None:
        """Ask for a file of a skill by its one spelling, and for what it is if it is a link."""
        real = os.path.relpath(
            os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location)
        )
        names = tuple(dict.fromkeys(f"{skill.name}/{path}" for path in (relative, real)))
        request = Request(permission, names, origin, self.agent, skill.name)
        self._gate.require(request, approver=asked, digest=partial(skill_digest, skill))

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
        asked: asking.OnRecord,
        cancelled: Callable[[], bool],
        origin: Origin,
        for_skill: str | None,
    ) -> Result:
        skill = None if for_skill is None else self._chosen(for_skill, "", origin)
        kind: Kind = "tool"
        name, said = calls.NAMES[type(call)], calls.said(call)
        if isinstance(call, calls.RunScript):
            skill = self._chosen(call.skill, call.source, origin)
            call = structs.replace(call, files=self.place.workspace.named(call.args, call.files))
            kind, name = "script", f"{skill.name}/{script_name(skill, call.relative_path)}"
            # A charter knows a script by its mapping, and what is said to it by these names.
            said = {"arguments": call.args, "files": call.files, "network": call.network}
            said = {key: value for key, value in said.items() if value}

        def do() -> Result:
            with self._held() as run:
                asked.held = lambda: nullcontext(run.record)
                seen = Act(self._context(run), call, asked, skill, origin, cancelled).perform()
            came: TextKind = "error" if seen.code else "tool"
            return Result(seen.text, seen.code, came, skill, facts=seen.facts, files=seen.files)

        return self._guarded(kind, name, said, do)

    def _context(self, run: Run) -> RunContext:
        return RunContext(
            run, self._gate, self.place, self._in_sandbox, self.index.at, self.agent, self.active
        )

    def _in_sandbox(self) -> Sandbox:
        """The sandbox of this session, chosen when the first script needs it."""
        if self._sandbox is None:
            self._sandbox = self._choose_sandbox(self.place.config.execution.sandbox)
        return self._sandbox

    def _guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        if self._guard is None:
            return do()
        with self._held() as run:
            return self._guard.act(kind, name, said, do, record=run.record)

    def _asked(self, approver: Approver | None = None) -> asking.OnRecord:
        """Whoever answers the questions of a call, which go on the record."""
        return asking.OnRecord(approver or self._approver or Nobody(), self._held_record)

    def _defer(self, question: Question, call: calls.Call, asked: asking.OnRecord, origin: Origin) -> None:
        pending = asking.Pending(
            calls.NAMES[type(call)],
            calls.said(call),
            self.agent,
            origin,
            asking.fingerprint(question),
            tuple(skill.skill_id for skill in self.active),
            asked.answers,
        )
        with self._held() as run:
            asking.keep(run.record.place, question.id, pending)

    # The record

    def begin(self, request: str, *, model: str, **more: Any) -> Record:
        """Begin a run: one request of the conversation. Answers "for this run" begin anew with it."""
        with self._lock:
            if self._parent is None:
                self._gate.begin_run()
            self._run = self._begun(request, model=model, **more)
            return self._run.record

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write down how the run ended, and close its record."""
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            _finish(run.record, summary)

    def child(self) -> Session:
        """Return the session of a child agent: the same rules, answers and place, and a record of its own."""
        child = copy.copy(self)
        child.host, child._run, child._active = None, None, {}
        child._lock = threading.RLock()
        child._parent = self
        child.view = View.of_nothing(self.index)
        return child

    def adopt(self, policy: Decider, view: View) -> None:
        """Go on with other rules and skills; what was done so far stays as it was."""
        with self._lock:
            self._gate.policy = policy
            changed, self.view = view.index.hash != self.index.hash, view
            if changed and self._run is not None:
                self._run.record.add("index_changed", index_hash=view.index.hash, skills=len(view.index))

    def close(self) -> None:
        """End the run, if one was begun; calls that go on are waited for. A later call begins another run."""
        with self._lock:
            run, self._run = self._run, None
            if run is not None and not run.going_on:
                _finish(run.record, _CLOSED)

    def abandon(self) -> None:
        """End the run at once, with whatever still goes on: the process is about to end."""
        with self._lock:
            run, self._run = self._run, None
            if run is not None:
                _finish(run.record, {**_CLOSED, "status": "interrupted"} if run.going_on else _CLOSED)

    @property
    def run_id(self) -> str:
        """The id of the run that goes on, or nothing."""
        return "" if self._run is None else self._run.record.run_id

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run."""
        if self._recording:
            with self._held() as run:
                run.record.add(type_, **data)

    @contextmanager
    def _held(self) -> Iterator[Run]:
        """The run, which stays open as long as a call goes on, also if the session is closed meanwhile."""
        with self._lock:
            if self._run is None:
                request = f"skills for {self.agent}, through {self._client}"
                self._run = self._begun(request, model="another program's", skills=len(self.index))
            run = self._run
            run.going_on += 1
        try:
            yield run
        finally:
            with self._lock:
                run.going_on -= 1
                if run is not self._run and not run.going_on and not run.record.is_closed:
                    _finish(run.record, _CLOSED)

    @contextmanager
    def _held_record(self) -> Iterator[Record | None]:
        if not self._recording:
            yield None
            return
        with self._held() as run:
            yield run.record

    def _begun(self, request: str, *, model: str, **more: Any) -> Run:
        record = Record(new_run(self._runs), secrets=self.place.secrets, listener=self.listener)
        record.snapshot(self.index.hash, lambda: self.view.snapshot)
        record.add(
            "run_started",
            request=request,
            model=model,
            agent=self.agent,
            index_hash=self.index.hash,
            **more,
        )
        return Run(record)


def _finish(record: Record, summary: Mapping[str, Any]) -> None:
    record.add("run_finished", **{key: summary[key] for key in _CLOSED})
    record.finish({"run_id": record.run_id, **summary}, str(summary["answer"]))
