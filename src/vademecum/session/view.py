"""The skills that one agent may know of, and one call: its questions, its record, what it may do with skills.

The gate is asked before anything is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vademecum.errors import Declined, Denied, LoadRefused, SkillNotFound, ToolRefused, VademecumError
from vademecum.loader.catalogue import DEFAULT_BUDGET, Form, render_catalogue
from vademecum.loader.loading import Loaded, LoadReport, load_body, load_resource, no_file
from vademecum.paths import check_relative
from vademecum.policy.approval import Answer, Approver, Question
from vademecum.policy.base import Decider, Decision, Effect, Origin, Request, risk_of
from vademecum.policy.engine import AllowAll
from vademecum.policy.gate import Decided
from vademecum.registry.index import SkillIndex
from vademecum.session.base import Deferred, Kind, Result
from vademecum.session.recording import CHANGED, Answered, Run
from vademecum.skill.assets import (
    MAX_ASSETS,
    Sees,
    asset_path,
    list_assets,
    no_script,
    script_name,
    script_path,
    skill_digest,
)
from vademecum.skill.skill import Skill
from vademecum.tools import calls
from vademecum.tools.calls import Observation

if TYPE_CHECKING:
    from vademecum.search.finder import Finder
    from vademecum.session.session import Session

_HASHES = ("sha256", "digest", "script_sha256", "stdout_sha256", "stderr_sha256")
T = TypeVar("T")


class View:
    """An index as one agent sees it. It can be shared by any number of sessions with the same rules.

    A skill that a rule denies does not exist here. One that needs approval does: loading it asks.
    """

    def __init__(
        self,
        index: SkillIndex,
        policy: Decider,
        *,
        agent: str = "default",
        origin: Origin = "model",
    ) -> None:
        def is_offered(skill: Skill) -> bool:
            if origin == "model" and skill.controls.disable_model_invocation:
                return False
            request = Request("skill", (skill.name,), origin, agent, skill.name)
            return policy.decide(request).effect < Effect.DENY

        self.index = index
        shadowed = [skill for skill in index.shadowed if is_offered(skill)]
        self.offered = index.restricted([skill for skill in index.skills if is_offered(skill)], shadowed)

    @classmethod
    def of_nothing(cls, index: SkillIndex) -> View:
        """Return the view of a child agent, which has its one skill already and is offered no other."""
        view = cls(index.restricted(()), AllowAll())
        view.index = index
        return view

    @cached_property
    def finder(self) -> Finder:
        """The search over these skills, built on first use."""
        from vademecum.search.finder import Finder  # noqa: PLC0415 - most sessions never search

        return Finder(self.index, skills=self.offered.skills)

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """The whole index as the record keeps it, made once."""
        return self.index.to_json()

    def catalogue(self, *, form: Form = "list", budget: int = DEFAULT_BUDGET) -> str:
        """Return the skills to choose from, by name, source and description."""
        return render_catalogue(self.offered.skills, form=form, budget=budget).text

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The directories of skills, by their real paths."""
        return tuple(dict.fromkeys(os.path.realpath(root.path) for root in self.index.roots))

    def overlap(self, base: str) -> bool:
        """Return whether a directory contains skills or is part of one."""
        return any(
            place == base or place.startswith(f"{base.rstrip('/')}/") or base.startswith(f"{place}/")
            for place in (*self.roots, *(skill.location for skill in self.index.skills))
        )

    def owners(self, real: Path) -> list[tuple[Skill, str]]:
        """Return the skills that a file belongs to, with its paths there, also by a second name of it."""
        skill = self.index.at(real)
        if skill is not None:
            return [(skill, os.path.relpath(real, os.path.realpath(skill.location)))]
        try:
            about = os.stat(real)
        except (OSError, ValueError):
            return []
        if not stat.S_ISREG(about.st_mode) or about.st_nlink == 1:
            return []
        return self.linked().get((about.st_dev, about.st_ino), [])

    def linked(self) -> dict[tuple[int, int], list[tuple[Skill, str]]]:
        """Return all files of all skills by device and inode, as they are now."""
        found: dict[tuple[int, int], list[tuple[Skill, str]]] = {}
        for skill in (*self.index.shadowed, *self.index.skills):
            for directory, _, files in os.walk(skill.location):
                for file in files:
                    with contextlib.suppress(OSError):
                        about = os.lstat(f"{directory}/{file}")
                        relative = os.path.relpath(f"{directory}/{file}", skill.location)
                        found.setdefault((about.st_dev, about.st_ino), []).append((skill, relative))
        return found


def file_names(skill: Skill, relative: str) -> tuple[str, ...]:
    """Return the names of a file of a skill in rules: its one spelling, and what it is if it is a link."""
    real = os.path.relpath(os.path.realpath(f"{skill.location}/{relative}"), os.path.realpath(skill.location))
    return tuple(dict.fromkeys(f"{skill.name}/{each}" for each in (relative, real)))


class SessionCall(ExitStack):
    """One call of a session: its record, its questions, and all that it can do with skills."""

    def __init__(self, session: Session, approver: Approver, origin: Origin) -> None:
        super().__init__()
        self.session = session
        self.origin = origin
        self._approver = approver
        self.answers: dict[str, Answer] = {}
        self.is_written = False

    @cached_property
    def run(self) -> Run:
        """The run, which is begun if nothing was written down yet, and stays open until the call is over."""
        return self.enter_context(self.session.recording.held())

    def write(self, type_: str, **data: Any) -> None:
        """Add an event to the record of the run, if there is one."""
        if self.session.recording.is_on:
            self.run.record.add(type_, **data)

    def write_call(  # noqa: PLR0913 - what belongs to a call
        self,
        seen: Observation,
        parameters: Mapping[str, Any],
        *,
        number: int,
        started: float,
        seconds: float = 0.0,
        skill: Skill | None = None,
        decision: Decision | None = None,
        asked: Sequence[Decided] = (),
        approved_by: str | None = None,
    ) -> None:
        """Add the event for one call of a tool: who called, when, what the rules said, what came of it."""
        self.is_written = True
        facts = {key: value for key, value in seen.facts.items() if key not in _HASHES}
        self.run.record.add_bounded(
            "tool_called",
            call=number,
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
                for r, d in asked
            ],
            approved_by=approved_by,
            ok=not seen.code,
            code=seen.code,
            result={**facts, "text": seen.text, "files": list(seen.files)},
            hashes={key: seen.facts[key] for key in _HASHES if key in seen.facts},
        )

    def guarded(self, kind: Kind, name: str, said: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do something with the leave of the guard, if there is one."""
        guard = self.session.guard
        if guard is None:
            return do()
        self.is_written = kind != "skill"  # the guard itself writes down what it refuses to tools
        return guard.act(kind, name, said, do, record=self.run.record)

    def check(self, digest: Callable[[], str], exact: Callable[[], str] = str) -> None:
        """Raise if this is a call that was put off and what it is about has changed since."""
        if isinstance(self._approver, Answered) and (digest(), exact()) != self._approver.expected:
            raise ToolRefused(CHANGED, code="changed")

    def ask(self, question: Question) -> Answer:
        """Ask, and write down what was asked and what was answered; who cannot be asked has not said yes."""
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
        except Exception as error:  # noqa: BLE001 - whatever an approver raises, it is not a yes
            return Answer("reject", f"the question could not be put ({error})", seen=False, absent=True)

    def decide(self, permission: str, resources: tuple[str, ...], skill: Skill | None = None) -> Decided:
        """Return a request of this caller, and what the rules say of it."""
        name = None if skill is None else skill.name
        request = Request(permission, resources, self.origin, self.session.agent, name)
        return request, self.session.gate.policy.decide(request)

    def sees(self, skill: Skill) -> Sees:
        """Return the test whether the caller may know of a file of a skill: what is denied is not named."""

        def sees(relative: str) -> bool:
            for permission in ("resource", "script") if relative.startswith("scripts/") else ("resource",):
                _, decision = self.decide(permission, (f"{skill.name}/{relative}",), skill)
                if decision.effect is Effect.DENY:
                    return False
            return True

        return sees

    def find(self, name: str, source: str = "") -> Skill:
        """Return the skill of that name that may be known: for a model, one of those it was offered."""
        index = self.session.view.index if self.origin == "user" else self.session.view.offered
        try:
            return index.get(name, source=source or None)
        except SkillNotFound as error:
            if self.origin == "user":
                raise
            raise SkillNotFound(f"{error} search_skills finds skills by what they do.") from error

    def require(self, skill: Skill) -> str:
        """Go on only if the skill may be used; return what the rules say of it."""
        request, decision = self._fetched(skill)
        self._settle(skill, request, decision)
        return decision.effect.name.lower()

    def body(self, skill: Skill, section: str | None = None, *, whole: bool = False) -> Loaded:
        """Read the instructions of a skill, after its frontmatter if the ``whole`` document is wanted."""
        return load_body(
            skill, limits=self.session.limits, section=section, whole=whole, sees=self.sees(skill)
        )

    def search(self, call: calls.SearchSkills) -> Result:
        """Return the skills that fit a query."""
        found = self.session.view.finder.find(call.query, call.n)
        hits = [{"name": hit.name, "description": hit.description} for hit in found.hits]
        note = "" if found.fits else "\n(No skill clearly fits this query; these are the nearest.)"
        return Result(json.dumps(hits, ensure_ascii=False) + (note if hits else ""))

    def asset(self, call: calls.LoadSkillAsset) -> Result:
        """Read one file of a skill."""
        skill = self.find(call.skill, call.source)
        self._fetched(skill)
        sees = self.sees(skill)
        relative = asset_path(skill, call.relative_path, sees=sees)
        self._require_file("resource", skill, relative)
        if not all(sees(name.removeprefix(f"{skill.name}/")) for name in file_names(skill, relative)):
            raise no_file(skill, relative, sees)
        loaded = load_resource(skill, relative, section_hint=call.section_hint or None, sees=sees)
        self.write("resource_loaded", skill=skill.skill_id, path=relative, report=loaded.report.to_json())
        return Result(loaded.text, kind="resource", skill=skill, report=loaded.report)

    def read_bytes(self, skill: Skill, path: str) -> bytes:
        """Read one file of a skill as it is, if it may be read without asking; a secret in it is not sent."""
        from vademecum.session.publishing import read_bytes, readable  # noqa: PLC0415 - for these alone

        self.require(skill)
        check_relative(skill.location, path)
        if not readable(self.session.gate.policy, skill, agent=self.session.agent)(path):
            raise no_file(skill, path, self.sees(skill))
        try:
            data = read_bytes(skill, path)
        except OSError as error:
            raise no_file(skill, path, self.sees(skill)) from error
        if self.session.place.secrets.masks(data):
            raise LoadRefused(f"{path!r} of skill {skill.name!r} contains a secret.", code="secret")
        digest = hashlib.sha256(data).hexdigest()
        report = LoadReport(
            f"{skill.location}/{path}", digest, len(data), len(data), truncated=False, hidden_removed=0
        )
        self.write("resource_loaded", skill=skill.skill_id, path=path, report=report.to_json())
        return data

    def assets(self, call: calls.ListSkillAssets) -> Result:
        """List the files of a skill."""
        skill = self.find(call.skill, call.source)
        self._guard(skill)
        self._fetched(skill)
        names = list_assets(skill, sees=self.sees(skill))
        note = f"\n(only the first {MAX_ASSETS:,} are listed)" if len(names) == MAX_ASSETS else ""
        return Result(json.dumps(names, ensure_ascii=False) + note)

    def script_path(self, call: calls.GetSkillScriptPath) -> Result:
        """Return the absolute path of a script."""
        skill = self.find(call.skill, call.source)
        try:
            self._require_file("script", skill, script_name(skill, call.relative_path))
        except Declined:
            raise
        except Denied as error:
            text = f"{error} run_script runs it in a sandbox."
            return Result(text, error.code, "error", advice=error.advice)
        return Result(str(script_path(skill, call.relative_path, sees=self.sees(skill))))

    def _require_file(self, permission: str, skill: Skill, relative: str) -> None:
        """Ask for a file of a skill by its one spelling, and for what it is if it is a link."""
        request, decision = self.decide(permission, file_names(skill, relative), skill)
        if self.origin != "user" and decision.effect is Effect.DENY:
            # What a rule denies looks to a model like what does not exist.
            missing = no_script if permission == "script" else no_file
            raise missing(skill, relative, self.sees(skill))
        self._settle(skill, request, decision)

    def _settle(self, skill: Skill, request: Request, decision: Decision) -> None:
        digest = partial(skill_digest, skill)
        self.check(digest)
        self.session.gate.settle([(request, decision)], approver=self, digest=digest)
        self._guard(skill)

    def _fetched(self, skill: Skill) -> Decided:
        """Get the files of a skill of a server before they are needed, unless a rule denies the skill."""
        request, decision = self.decide("skill", (skill.name,), skill)
        if decision.effect is not Effect.DENY:
            self.session.view.index.fetch(skill)
        return request, decision

    def _guard(self, skill: Skill) -> None:
        if self.session.guard is not None:
            self.guarded("skill", skill.name, {}, lambda: None)
