"""One call about a skill: ask the gate, then read what it lets through."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial

from vademecum.errors import Declined, Denied, LoadRefused, SkillNotFound
from vademecum.loader.loading import BodyLimits, Loaded, LoadReport, load_body, load_resource, no_file
from vademecum.masking import Secrets
from vademecum.paths import check_relative
from vademecum.policy.base import Effect, Origin, Request
from vademecum.policy.gate import Gate
from vademecum.session.base import Result
from vademecum.session.recording import CallRecord
from vademecum.session.view import View, file_names, files_seen
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


@dataclass(frozen=True, slots=True)
class SkillAct:
    """One call about a skill, of one agent."""

    gate: Gate
    view: View
    limits: BodyLimits
    agent: str
    origin: Origin
    asked: CallRecord

    def find(self, name: str, source: str = "") -> Skill:
        """Return the skill of that name that may be known: for a model, one of those it was offered."""
        index = self.view.index if self.origin == "user" else self.view.offered
        try:
            return index.get(name, source=source or None)
        except SkillNotFound as error:
            if self.origin == "user":
                raise
            raise SkillNotFound(f"{error} search_skills finds skills by what they do.") from error

    def require(self, skill: Skill) -> str:
        """Go on only if the skill may be used; return what the rules say of it."""
        request = Request("skill", (skill.name,), self.origin, self.agent, skill.name)
        self._fetch(skill, request)
        self.asked.check(partial(skill_digest, skill))
        passage = self.gate.require(request, approver=self.asked, digest=partial(skill_digest, skill))
        self._guard(skill)
        return passage.decision.effect.name.lower()

    def body(self, skill: Skill, section: str | None = None, *, whole: bool = False) -> Loaded:
        """Read the instructions of a skill, after its frontmatter if the ``whole`` document is wanted."""
        return load_body(skill, limits=self.limits, section=section, whole=whole, sees=self._sees(skill))

    def search(self, call: calls.SearchSkills) -> Result:
        """Return the skills that fit a query."""
        found = self.view.find(call.query, call.n)
        hits = [{"name": hit.name, "description": hit.description} for hit in found.hits]
        note = "" if found.fits else "\n(No skill clearly fits this query; these are the nearest.)"
        return Result(json.dumps(hits, ensure_ascii=False) + (note if hits else ""))

    def asset(self, call: calls.LoadSkillAsset) -> Result:
        """Read one file of a skill."""
        skill = self.find(call.skill, call.source)
        self._fetch(skill)
        sees = self._sees(skill)
        relative = asset_path(skill, call.relative_path, sees=sees)
        self._require_file("resource", skill, relative)
        if not all(sees(name.removeprefix(f"{skill.name}/")) for name in file_names(skill, relative)):
            raise no_file(skill, relative, sees)
        loaded = load_resource(skill, relative, section_hint=call.section_hint or None, sees=sees)
        self.asked.write(
            "resource_loaded", skill=skill.skill_id, path=relative, report=loaded.report.to_json()
        )
        return Result(loaded.text, kind="resource", skill=skill, report=loaded.report)

    def read_bytes(self, skill: Skill, path: str, secrets: Secrets) -> bytes:
        """Read one file of a skill as it is, if it may be read without asking; a secret in it is not sent."""
        from vademecum.session.publishing import read_bytes, readable, real_path  # noqa: PLC0415 - for these alone

        self.require(skill)
        check_relative(skill.location, path)
        may_read = readable(self.gate.policy, skill, agent=self.agent)
        if not (may_read(path) and may_read(real_path(skill, path))):
            raise no_file(skill, path, self._sees(skill))
        try:
            data = read_bytes(skill, path)
        except OSError as error:
            raise no_file(skill, path, self._sees(skill)) from error
        if secrets.masks(data):
            raise LoadRefused(f"{path!r} of skill {skill.name!r} contains a secret.", code="secret")
        digest = hashlib.sha256(data).hexdigest()
        report = LoadReport(
            f"{skill.location}/{path}", digest, len(data), len(data), truncated=False, hidden_removed=0
        )
        self.asked.write("resource_loaded", skill=skill.skill_id, path=path, report=report.to_json())
        return data

    def assets(self, call: calls.ListSkillAssets) -> Result:
        """List the files of a skill."""
        skill = self.find(call.skill, call.source)
        self._guard(skill)
        self._fetch(skill)
        names = list_assets(skill, sees=self._sees(skill))
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
        return Result(str(script_path(skill, call.relative_path, sees=self._sees(skill))))

    def _require_file(self, permission: str, skill: Skill, relative: str) -> None:
        """Ask for a file of a skill by its one spelling, and for what it is if it is a link."""
        request = Request(permission, file_names(skill, relative), self.origin, self.agent, skill.name)
        if self.origin != "user" and self.gate.policy.decide(request).effect is Effect.DENY:
            # What a rule denies looks to a model like what does not exist.
            missing = no_script if permission == "script" else no_file
            raise missing(skill, relative, self._sees(skill))
        self.asked.check(partial(skill_digest, skill))
        self.gate.require(request, approver=self.asked, digest=partial(skill_digest, skill))
        self._guard(skill)

    def _fetch(self, skill: Skill, request: Request | None = None) -> None:
        """Get the files of a skill of a server before they are needed, unless a rule denies the skill."""
        request = request or Request("skill", (skill.name,), self.origin, self.agent, skill.name)
        if self.gate.policy.decide(request).effect is not Effect.DENY:
            self.view.index.fetch(skill)

    def _sees(self, skill: Skill) -> Sees:
        return files_seen(self.gate.policy, skill, agent=self.agent, origin=self.origin)

    def _guard(self, skill: Skill) -> None:
        self.asked.guarded("skill", skill.name, {}, lambda: None)
