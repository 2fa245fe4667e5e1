"""Compare the actions of a past run with today's index and rules, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vademecum.errors import VademecumError
from vademecum.loader.loading import BodyLimits, load_body, load_resource
from vademecum.policy.base import Decider, Request
from vademecum.registry.index import SkillIndex
from vademecum.runs.record import Event
from vademecum.runs.stored import Difference, PastRun, Replayed
from vademecum.skill.assets import skill_digest


def replay(run: PastRun, index: SkillIndex, policy: Decider) -> Replayed:
    """Check the recorded loads and decisions again, without running, writing or asking anything."""
    started = run.first("run_started")
    agent = str(started.data.get("agent", "default")) if started else "default"
    found = [each for event in run.events for each in _compared(event, index, policy, agent)]
    return Replayed(len(found), tuple(each for each in found if each is not None))


def _compared(event: Event, index: SkillIndex, policy: Decider, agent: str) -> Iterator[Difference | None]:
    """Yield a difference, or ``None``, for each text and each decision of an event."""
    data = event.data
    skill = str(data.get("skill"))
    if event.type == "skill_loaded":
        limits = BodyLimits(index.options.body_lines)
        what, then = f"the instructions of {skill}", str(data["report"]["sha256"])
        yield _content(event, what, then, lambda: load_body(index.get(skill), limits=limits).report.sha256)
        name = skill.partition(":")[2].partition("@")[0]
        request = Request("skill", (name,), data["origin"], agent, name)
        yield _decision(event, policy, request, str(data.get("effect", "allow")))
    if event.type == "resource_loaded":
        path, then = data["path"], str(data["report"]["sha256"])
        what = f"{path} of {skill}"
        yield _content(event, what, then, lambda: load_resource(index.get(skill), path).report.sha256)
    if event.type == "tool_called":
        for asked in data.get("asked", ()):
            resources = tuple(asked["resources"])
            request = Request(asked["permission"], resources, "model", agent, data.get("skill"))
            yield _decision(event, policy, request, str(asked["effect"]))
        if then := data.get("hashes", {}).get("digest"):
            id_ = str(data.get("skill_id") or skill)
            yield _content(event, f"the files of {skill}", str(then), lambda: skill_digest(index.get(id_)))


def _content(event: Event, what: str, then: str, digest: Callable[[], str]) -> Difference | None:
    try:
        now = digest()
    except VademecumError as error:
        return Difference(event.number, what, "was there", str(error))
    shown = (f"sha256 {each.removeprefix('sha256:')[:12]}…" for each in (then, now))
    return None if now == then else Difference(event.number, what, *shown)


def _decision(event: Event, policy: Decider, request: Request, then: str) -> Difference | None:
    decision = policy.decide(request)
    now = decision.effect.name.lower()
    what = f"{request.permission} {', '.join(request.resources)}"
    return None if now == then else Difference(event.number, what, then, f"{now}, because {decision.reason}")
