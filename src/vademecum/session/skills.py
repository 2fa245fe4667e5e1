"""Calls about skills: load, search, list and read them. The gate decides before anything is read."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import assert_never

from vademecum.errors import Declined, Denied, LoadRefused, VademecumError
from vademecum.loader.loading import Loaded, LoadReport, load_body, load_resource
from vademecum.paths import check_relative
from vademecum.policy.base import Effect
from vademecum.policy.gate import Decided
from vademecum.session.act import Act
from vademecum.session.base import Result
from vademecum.session.view import file_names
from vademecum.skill.assets import (
    MAX_ASSETS,
    asset_path,
    list_assets,
    no_file,
    script_name,
    script_path,
    skill_digest,
)
from vademecum.skill.skill import Skill
from vademecum.tools import calls


def perform(act: Act, call: calls.SkillCall) -> Result:
    """Carry out one call about a skill."""
    match call:
        case calls.UseSkill(name=name, source=source, task=task):
            return _load(act, act.find(name, source), task, whole=isinstance(call, calls.LoadSkill))
        case calls.UnloadSkill(skill=name, source=source):
            return act.session.unload(act.session.chosen(name, source, act), act)
        case calls.SearchSkills():
            return _search(act, call)
        case calls.LoadSkillAsset():
            return _asset(act, call)
        case calls.ListSkillAssets():
            return _assets(act, call)
        case calls.GetSkillScriptPath():
            return _script_path(act, call)
        case _:
            assert_never(call)


def _load(act: Act, skill: Skill, task: str, *, whole: bool) -> Result:
    """Load the instructions of a skill and make it active; loading it again returns its text again."""
    effect, host = use(act, skill), act.session.host
    if skill.controls.run_mode == "subagent" and host is not None:
        return host.run_subagent(skill, task, effect)
    loaded = body(act, skill, whole=whole)
    if host is not None and not host.has_room_for(loaded.text):
        raise VademecumError(f"The instructions of {skill.name} do not fit any more.", code="max-context")
    act.session.make_active(skill)
    return given(act, skill, loaded, effect)


def given(act: Act, skill: Skill, loaded: Loaded, effect: str) -> Result:
    """Record that the text of a skill was loaded, and return it."""
    report = loaded.report.to_json()
    act.write("skill_loaded", skill=skill.skill_id, origin=act.origin, effect=effect, report=report)
    return Result(loaded.text, kind="skill", skill=skill, report=loaded.report)


def use(act: Act, skill: Skill) -> str:
    """Return the rules' decision about a skill; raise if it may not be used."""
    request, decision = _fetched(act, skill)
    _settle(act, skill, (request, decision))
    return decision.effect.name.lower()


def body(act: Act, skill: Skill, section: str | None = None, *, whole: bool = False) -> Loaded:
    """Read the instructions of a skill or, if ``whole``, its document with the frontmatter."""
    return load_body(skill, limits=act.session.limits, section=section, whole=whole, sees=act.sees(skill))


def read_bytes(act: Act, skill: Skill, path: str) -> bytes:
    """Read one file of a skill as bytes, if that needs no approval; refuse one that contains a secret."""
    from vademecum.session.publishing import read_bytes, readable  # noqa: PLC0415 - for these alone

    use(act, skill)
    check_relative(skill.location, path)
    if not readable(act.session.gate.policy, skill, agent=act.session.agent)(path):
        raise no_file(skill, path, act.sees(skill))
    try:
        data = read_bytes(skill, path)
    except OSError as error:
        raise no_file(skill, path, act.sees(skill)) from error
    if act.session.place.secrets.masks(data):
        raise LoadRefused(f"{path!r} of skill {skill.name!r} contains a secret.", code="secret")
    place, digest = f"{skill.location}/{path}", hashlib.sha256(data).hexdigest()
    report = LoadReport(place, digest, len(data), len(data), truncated=False, hidden_removed=0)
    act.write("resource_loaded", skill=skill.skill_id, path=path, report=report.to_json())
    return data


def _search(act: Act, call: calls.SearchSkills) -> Result:
    """Return the skills that fit a query."""
    found = act.session.view.finder.find(call.query, call.n)
    hits = [{"name": hit.name, "description": hit.description} for hit in found.hits]
    note = "" if found.fits else "\n(No skill clearly fits this query; these are the nearest.)"
    return Result(json.dumps(hits, ensure_ascii=False) + (note if hits else ""))


def _asset(act: Act, call: calls.LoadSkillAsset) -> Result:
    """Read one file of a skill."""
    skill = act.find(call.skill, call.source)
    _fetched(act, skill)
    sees = act.sees(skill)
    relative = asset_path(skill, call.relative_path, sees=sees)
    _require_file(act, "resource", skill, relative)
    if not all(sees(name.removeprefix(f"{skill.name}/")) for name in file_names(skill, relative)):
        raise no_file(skill, relative, sees)
    loaded = load_resource(skill, relative, section_hint=call.section_hint or None, sees=sees)
    act.write("resource_loaded", skill=skill.skill_id, path=relative, report=loaded.report.to_json())
    return Result(loaded.text, kind="resource", skill=skill, report=loaded.report)


def _assets(act: Act, call: calls.ListSkillAssets) -> Result:
    """List the files of a skill."""
    skill = act.find(call.skill, call.source)
    act.guarded("skill", skill.name, {}, lambda: None)
    _fetched(act, skill)
    names = list_assets(skill, sees=act.sees(skill))
    note = f"\n(only the first {MAX_ASSETS:,} are listed)" if len(names) == MAX_ASSETS else ""
    return Result(json.dumps(names, ensure_ascii=False) + note)


def _script_path(act: Act, call: calls.GetSkillScriptPath) -> Result:
    """Return the absolute path of a script."""
    skill = act.find(call.skill, call.source)
    try:
        _require_file(act, "script", skill, script_name(skill, call.relative_path))
    except Declined:
        raise
    except Denied as error:
        text = f"{error} run_script runs it in a sandbox."
        return Result(text, error.code, "error", advice=error.advice)
    return Result(str(script_path(skill, call.relative_path, sees=act.sees(skill))))


def _require_file(act: Act, permission: str, skill: Skill, relative: str) -> None:
    """Ask for a file of a skill by its normalized path and, for a link, its target."""
    decided = act.decided(permission, file_names(skill, relative), skill)
    if act.origin != "user" and decided[1].effect is Effect.DENY:
        # A denied skill or file looks missing to a model.
        what = "script" if permission == "script" else "file"
        raise no_file(skill, relative, act.sees(skill), what=what)
    _settle(act, skill, decided)


def _settle(act: Act, skill: Skill, decided: Decided) -> None:
    digest = partial(skill_digest, skill)
    act.check(digest)
    act.session.gate.settle([decided], approver=act, digest=digest)
    act.guarded("skill", skill.name, {}, lambda: None)


def _fetched(act: Act, skill: Skill) -> Decided:
    """Fetch the files of a server's skill before they are needed, unless a rule denies the skill."""
    decided = act.decided("skill", (skill.name,), skill)
    if decided[1].effect is not Effect.DENY:
        act.session.view.index.fetch(skill)
    return decided
