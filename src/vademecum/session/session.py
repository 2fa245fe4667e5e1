"""The session: one agent in one conversation at one place. Everything that serves a model uses it."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vademecum.config import SandboxName
from vademecum.errors import Declined, SkillNotFound, ToolRefused, VademecumError
from vademecum.loader.loading import BodyLimits, Loaded, load_document
from vademecum.policy.approval import Answer, Approver, Nobody
from vademecum.policy.base import Decider, Origin
from vademecum.policy.engine import Policy
from vademecum.policy.gate import Gate
from vademecum.policy.grants import Grants, grants_file
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Listener, Record, new_run, runs_directory
from vademecum.session import skills
from vademecum.session.act import Act
from vademecum.session.base import Deferred, Guard, Host, Kind, Place, Result, TextKind, contents_of
from vademecum.session.recording import CLOSED, Answered, Recording, claimed, keep_pending
from vademecum.session.view import View
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation
from vademecum.tools.exchange import Outputs

if TYPE_CHECKING:
    from vademecum.sandbox.base import Sandbox
    from vademecum.session.publishing import Publications, PublishedSkill


class Session:
    """One agent in one conversation at one place: its skills, rules, active skills and record.

    Without an approver, calls that need approval are refused. Threads can call at the same time.

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
        outputs: Outputs | None = None,
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
        sandbox: Callable[[SandboxName], Sandbox] | None = None,
        recording: bool = True,
    ) -> None:
        self.place = place or Place.at()
        self.agent = agent
        self.host: Host | None = None
        self._origin: Origin = origin
        self._approver = approver
        self.guard = guard
        self._client = client
        self._runs = runs or runs_directory(self.place.context)
        self.listener = listener
        self._choose_sandbox = sandbox
        self._parent: Session | None = None
        self._lock = threading.RLock()
        self._active: dict[str, Skill] = {}
        self._unloaded: dict[str, Skill] = {}
        # The files that scripts and commands of this conversation left.
        self.outputs = outputs or Outputs()
        self.recording = Recording(self._start, is_on=recording)
        context = self.place.context
        self.gate = Gate(
            policy or Policy.load(context), project=self.place.project, grants=Grants(grants_file(context))
        )
        self.view = view or View(index, self.gate.policy, agent=agent, origin=origin)
        self.limits = limits or BodyLimits(index.options.body_lines)

    # Calls

    def call(  # noqa: PLR0913 - the options of a call
        self,
        call: calls.Call,
        *,
        approver: Approver | None = None,
        cancelled: Callable[[], bool] = bool,
        origin: Origin | None = None,
        for_skill: str | None = None,
        stdin: int | None = None,
    ) -> Result:
        """Carry out one call; errors are results that a model can act on.

        Two things are raised: a person's refusal, as ``Declined``, because the caller must not ignore it; and
        ``Deferred``, if the approver defers the answer. Then nothing was done, and ``resume`` carries out the
        call. A script ends when ``cancelled`` returns true. ``for_skill`` is the active skill that a direct
        tool is called for, if the caller names one. ``stdin`` is a descriptor for the script's standard
        input.
        """
        with self.asking(approver, origin, call, cancelled) as act:
            try:
                if isinstance(call, calls.SkillCall):
                    result = skills.perform(act, call)
                else:
                    result = self._tool(call, act, for_skill, stdin)
            except Declined:
                raise
            except Deferred as deferred:
                if deferred.kept:
                    keep_pending(act, deferred.question, call, for_skill)
                raise
            except VademecumError as error:
                result = Result(str(error), error.code, "error", advice=error.advice)
                if not act.is_written:
                    self._failed(act, act.tool, calls.said(call), result)
        text, facts = self.place.secrets.mask_values((result.text, result.facts))
        return replace(result, text=text, facts=facts)

    def call_named(
        self,
        name: object,
        arguments: Mapping[str, Any] | str,
        *,
        offered: Sequence[str] = tuple(calls.CALLS),
        **options: Any,
    ) -> Result:
        """Carry out a call by name, with arguments as a model sends them, if it is ``offered``."""
        try:
            call = calls.parse_call(name, arguments, offered=offered)
        except ToolRefused as error:
            result = Result(str(error), error.code, "error")
            with self.asking() as act:
                self._failed(act, str(name)[:80], {"wrong": arguments}, result)
            return result
        return self.call(call, **options)

    def _failed(self, act: Act, name: str, said: Mapping[str, Any], result: Result) -> None:
        """Record a call that failed before anything was done."""
        if self.recording.is_on:
            act.write_call(Observation(name, result.text, code=result.code), said, time.time())

    def resume(
        self,
        question_id: str,
        answer: Answer,
        *,
        approver: Approver | None = None,
        cancelled: Callable[[], bool] = bool,
    ) -> Result:
        """Carry out a deferred call, possibly in another process than the one that asked.

        Exactly that call is carried out, and only if its content is the same as when it was asked about.
        ``approver`` answers further questions of the same call.
        """
        try:
            pending = claimed(self, question_id)
            call = calls.parse_call(pending.call, pending.arguments)
            active = {skill.location: skill for skill in map(self.view.index.get, pending.active)}
        except VademecumError as error:
            return Result(str(error), error.code, "error")
        if answer.verdict == "reject":
            self.write("approval_answered", id=question_id, verdict="reject", message=answer.message)
            told = f" ({answer.message})" if answer.message else ""
            wanted = pending.question.wanted
            raise Declined(f"{wanted} was declined{told}: it was not done.", told=answer.message)
        answers = {**pending.answers, pending.question.fingerprint: answer}
        expected = pending.question.digest, pending.question.exact
        answered = Answered(answers, expected, approver or self._approver or Nobody())
        session = self
        if not isinstance(call, calls.SkillCall):  # as it was when the call was made
            session = copy.copy(self)
            session._active = {**active, **self._active}
        about: dict[str, Any] = {"origin": pending.origin, "for_skill": pending.for_skill}
        return session.call(call, approver=answered, cancelled=cancelled, **about)

    # Skills

    @property
    def active(self) -> tuple[Skill, ...]:
        """The loaded skills, in the order of loading."""
        with self._lock:
            return tuple(self._active.values())

    def activate(self, name: str, *, source: str = "", origin: Origin = "user") -> Skill:
        """Make a skill active without loading its text, because the person or the call named it."""
        skill = self.find(name, source, origin)
        self.view.index.fetch(skill)
        self.make_active(skill)
        return skill

    def make_active(self, skill: Skill) -> None:
        """Put a skill last among the active ones."""
        with self._lock:
            self._unloaded.pop(skill.location, None)
            self._active.pop(skill.location, None)
            self._active[skill.location] = skill

    def show(
        self,
        name: str,
        *,
        source: str = "",
        section: str | None = None,
        whole: bool = False,
        origin: Origin | None = None,
    ) -> Result:
        """Return a skill's text, one section or the ``whole`` document, without making the skill active.

        Errors are raised.
        """
        with self.asking(origin=origin) as act:
            skill = act.find(name, source)
            effect = skills.use(act, skill)
            loaded = load_document(skill) if whole else skills.body(act, skill, section)
            return skills.given(act, skill, loaded, effect)

    def publish(self, skill: Skill, known: Publications) -> PublishedSkill:
        """Return a skill with every file that this agent may read without asking, for another program."""
        return known.publish(skill, self.gate.policy, agent=self.agent)

    def read_bytes(self, name: str, path: str) -> bytes:
        """Return one file of a skill as bytes, without making the skill active; raise on errors."""
        with self.asking() as act:
            return skills.read_bytes(act, act.find(name), path)

    def nested_body(self, skill: Skill) -> Loaded:
        """Read the one skill of a child agent; the parent's gate has allowed it already."""
        return skills.body(self.asking(origin="nested"), skill)

    def load_nested(self, skill: Skill, loaded: Loaded, effect: str) -> Result:
        """Make the one skill of a child agent active in its own run."""
        self.make_active(skill)
        with self.asking(origin="nested") as act:
            return skills.given(act, skill, loaded, effect)

    def unload(self, skill: Skill, act: Act) -> Result:
        """Make a skill inactive; if a model does this, what it excluded needs approval."""
        with self._lock:
            self._active.pop(skill.location, None)
            if act.origin != "user":
                self._unloaded[skill.location] = skill
        act.write("skill_unloaded", skill=skill.skill_id)
        return Result(f"{skill.name} is not loaded any more.")

    def find(self, name: str, source: str = "", origin: Origin | None = None) -> Skill:
        """Return the skill of that name if the caller may know of it; models see only offered skills."""
        return self.asking(origin=origin).find(name, source)

    def chosen(self, name: str, source: str, act: Act) -> Skill:
        """Return the active skill of that name; of namesakes, the one loaded last."""
        active = self.view.index.restricted(reversed(self.active))
        try:
            return active.get(name, source=source or None)
        except SkillNotFound:
            found = act.find(name, source)
        raise VademecumError(f"The skill {found.name!r} is not loaded: load it first.", code="not-loaded")

    # Tools

    def _tool(
        self, call: calls.RunScript | calls.DirectCall, act: Act, for_skill: str | None, stdin: int | None
    ) -> Result:
        kind: Kind = "tool"
        if isinstance(call, calls.RunScript):
            from vademecum.session.launch import prepared  # noqa: PLC0415 - for scripts alone

            skill = act.skill = self.chosen(call.skill, call.source, act)
            kind, (name, said, work) = "script", prepared(act, call, skill, stdin)
        else:
            from vademecum.session.direct import perform  # noqa: PLC0415 - for other tools alone

            if for_skill is not None:
                source, _, skill_name = for_skill.rpartition(":")
                act.skill = self.chosen(skill_name, source, act)
            name, said, work = act.tool, calls.said(call), partial(perform, act, call)

        def do() -> Result:
            seen = act.perform(work, calls.said(call))
            came: TextKind = "error" if seen.code else "tool"
            left = (seen.files, seen.advice, seen.outputs, contents_of(seen.outputs))
            return Result(seen.text, seen.code, came, act.skill, None, seen.facts, *left)

        return act.guarded(kind, name, said, do)

    def bounding(self) -> tuple[tuple[Skill, ...], tuple[Skill, ...]]:
        """Return the skills that limit tools, active and unloaded, including the parent's."""
        with self._lock:
            active, unloaded = tuple(self._active.values()), tuple(self._unloaded.values())
        if self._parent is None:
            return active, unloaded
        above, before = self._parent.bounding()
        return (*above, *active), (*before, *unloaded)

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox of this session, chosen when the first script needs it."""
        from vademecum.sandbox.available import choose_sandbox  # noqa: PLC0415 - for processes alone

        return (self._choose_sandbox or choose_sandbox)(self.place.config.execution.sandbox)

    def asking(
        self,
        approver: Approver | None = None,
        origin: Origin | None = None,
        call: calls.Call | None = None,
        cancelled: Callable[[], bool] = bool,
    ) -> Act:
        """Begin one call; the approver answers its questions."""
        return Act(self, approver or self._approver or Nobody(), origin or self._origin, call, cancelled)

    # The record

    def begin(self, request: str, *, model: str, **more: Any) -> Record:
        """Begin a run: one request of the conversation. It forgets answers "for this run"."""
        return self.recording.begin(partial(self._start, request, model=model, **more)).record

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Record how the run ended, and close its record after its last call."""
        self.recording.end(summary)

    def child(self) -> Session:
        """Return the session of a child agent: the same rules, answers and place, but its own record."""
        child = copy.copy(self)
        child.host, child._active, child._unloaded = None, {}, {}
        child._lock = threading.RLock()
        child._parent = self
        child.recording = Recording(child._start)
        child.view = View.of_nothing(self.view.index)
        return child

    def adopt(self, policy: Decider, view: View, place: Place) -> None:
        """Continue with other rules, skills and settings; keep everything done so far."""
        with self._lock:
            changed = view.index.hash != self.view.index.hash
            place.secrets.add(self.place.secrets.added)
            self.gate.follow(policy)
            self.view, self.place = view, place
            vars(self).pop("sandbox", None)
        if changed and self.run_id:
            self.write("index_changed", index_hash=view.index.hash, skills=len(view.index))

    def close(self, *, at_once: bool = False) -> None:
        """End the run, if one was begun. A later call begins another run.

        It waits for calls that are running, unless ``at_once``, if the process is about to end.
        """
        self.recording.end(CLOSED, at_once=at_once)

    @property
    def run_id(self) -> str:
        """The id of the current run, or an empty text."""
        run = self.recording.now
        return "" if run is None else run.record.run_id

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run."""
        with self.asking() as act:
            act.write(type_, **data)

    def _start(self, request: str = "", *, model: str = "another program's", **more: Any) -> Record:
        """Begin the record of a run; forget answers "for this run", unless it is a child's."""
        if self._parent is None:
            self.gate.begin_run()
        index = self.view.index
        if not request:
            request, more = f"(calls through {self._client})", {"skills": len(index)}
        record = Record(new_run(self._runs), secrets=self.place.secrets, listener=self.listener)
        digest = index.hash
        record.snapshot(digest, self.view.snapshot)
        record.add(
            "run_started",
            request=request,
            model=model,
            agent=self.agent,
            index_hash=digest,
            **({"allow": list(allow)} if (allow := getattr(self.gate.policy, "allow", ())) else {}),
            **more,
        )
        return record
