"""The actions of a past run, against today's index and rules, without a model: what would differ now."""

from __future__ import annotations

from collections.abc import Iterator

from vademecum.errors import VademecumError
from vademecum.loader.loading import BodyLimits, load_body, load_resource
from vademecum.policy.base import Decider, Request
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Event
from vademecum.runs.stored import Difference, PastRun, Replayed
from vademecum.skill.digest import skill_digest


def replay(run: PastRun, index: SkillIndex, policy: Decider) -> Replayed:
    """Go through the recorded loads and decisions again; nothing is run, written or asked."""
    agent = str((run.first("run_started") or Event(0, 0, "", {})).data.get("agent", "default"))
    compared, found = 0, []
    for event in run.events:
        for difference in _compared(event, index, policy, agent):
            compared += 1
            if difference is not None:
                found.append(difference)
    return Replayed(compared, tuple(found))


def _compared(event: Event, index: SkillIndex, policy: Decider, agent: str) -> Iterator[Difference | None]:
    match event.type:
        case "skill_loaded":
            yield _text(event, index, f"the instructions of {event.data['skill']}", None)
            name = str(event.data["skill"]).partition(":")[2].partition("@")[0]
            request = Request("skill", (name,), event.data["origin"], agent, name)
            yield _decision(event, policy, request, str(event.data.get("effect", "allow")))
        case "resource_loaded":
            what = f"{event.data['path']} of {event.data['skill']}"
            yield _text(event, index, what, event.data["path"])
        case "tool_called":
            yield from _tool(event, index, policy, agent)


def _text(event: Event, index: SkillIndex, what: str, path: str | None) -> Difference | None:
    then = str(event.data["report"]["sha256"])
    try:
        skill = index.get(str(event.data["skill"]))
        limits = BodyLimits(index.options.body_lines)
        loaded = load_body(skill, limits=limits) if path is None else load_resource(skill, path)
        now = loaded.report.sha256
    except VademecumError as error:
        return Difference(event.number, what, "was loaded", str(error))
    return (
        None if now == then else Difference(event.number, what, f"sha256 {then[:12]}…", f"sha256 {now[:12]}…")
    )


def _decision(event: Event, policy: Decider, request: Request, then: str) -> Difference | None:
    decision = policy.decide(request)
    now = decision.effect.name.lower()
    if now == then:
        return None
    what = f"{request.permission} {', '.join(request.resources)}"
    return Difference(event.number, what, then, f"{now}, because {decision.reason}")


def _tool(event: Event, index: SkillIndex, policy: Decider, agent: str) -> Iterator[Difference | None]:
    """Everything that was put to the gate is put to it again."""
    data = event.data
    skill = data.get("skill")
    for asked in data.get("asked", ()):
        request = Request(asked["permission"], tuple(asked["resources"]), "model", agent, skill)
        yield _decision(event, policy, request, str(asked["effect"]))
    digest = data.get("hashes", {}).get("digest")
    if digest:
        yield _same_skill(event, index, str(digest))


def _same_skill(event: Event, index: SkillIndex, then: str) -> Difference | None:
    name = str(event.data.get("skill"))
    try:
        now = skill_digest(index.get(str(event.data.get("skill_id") or name)))
    except VademecumError as error:
        return Difference(event.number, f"the files of {name}", "were there", str(error))
    if now == then:
        return None
    return Difference(event.number, f"the files of {name}", f"{then[:19]}…", f"{now[:19]}…")
