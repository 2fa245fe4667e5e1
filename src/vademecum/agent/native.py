"""Native tool calls → a decision: the same actions as those of the JSON protocol, several in one reply."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vademecum.agent.plan import Patch, Plan, plan_in
from vademecum.agent.protocol import (
    Action,
    BadCall,
    CallTool,
    FinalAnswer,
    SelectSkills,
    Turn,
    recorded,
)
from vademecum.errors import ToolRefused
from vademecum.models.base import Reply, Tool, ToolCall
from vademecum.session.schemas import ALL_TOOLS, schemas
from vademecum.tools import calls


class UpdatePlan(calls.Parameters):
    """Make or change the plan. Make one with your first call, and mark each step when it is done."""

    plan: Annotated[Plan | None, Meta(description="The whole plan, which replaces the one before.")] = None
    changes: Annotated[
        list[Patch] | None, Meta(description="Changes of the plan; used if there is no `plan`.")
    ] = None


class _Answer(FinalAnswer):
    """End the task. Needed only if it could not be done: any text without a call is the answer."""


_OWN: dict[str, type[calls.Parameters]] = {"update_plan": UpdatePlan, "final_answer": _Answer}


@cache
def offered_tools() -> tuple[Tool, ...]:
    """Return every tool that a model is offered; they are the same in every run.

    >>> [tool.name for tool in offered_tools()][-3:]
    ['network_request', 'update_plan', 'final_answer']
    """
    found = [
        Tool(each["name"], each["description"], each["inputSchema"])
        for each in schemas("mcp", names=ALL_TOOLS)
    ]
    for name, parameters in _OWN.items():
        (shape,), components = msgspec.json.schema_components([parameters], ref_template="#/$defs/{name}")
        own = components.pop(shape["$ref"].rpartition("/")[2])
        schema = {key: own[key] for key in ("type", "properties", "required", "additionalProperties")}
        if components:
            schema["$defs"] = components
        found.append(Tool(name, " ".join((parameters.__doc__ or "").split()), schema))
    return tuple(found)


def decision_in(reply: Reply) -> Turn:
    """Return what the calls of a reply ask for; text without a call is the answer.

    >>> decision_in(Reply("Four.")).actions[0].payload
    {'text': 'Four.'}
    """
    if not reply.calls:
        return Turn([recorded("final_answer", FinalAnswer(text=reply.text.strip()))])
    actions: list[Action] = []
    changes: list[tuple[ToolCall, dict[str, Any]]] = []
    for call in reply.calls:
        if call.name == "update_plan":
            changes.append((call, _read(call.arguments)))
        else:
            actions.append(_action(call))
    given = [change.get("plan") or change.get("changes") for _, change in changes]
    wrong = "" if all(given) else "The plan was not changed: give `plan` or `changes`."
    update = None
    for each in filter(None, given):
        update, problem = plan_in(each)
        wrong = problem or wrong
    return Turn(actions, update, wrong, [call.id for call, _ in changes])


def _read(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _action(call: ToolCall) -> Action:
    arguments = call.arguments.strip() or "{}"
    if call.name == "final_answer":
        problems: list[str] = []
        answer = calls.convert(_read(arguments), FinalAnswer, problems)
        if answer is not None:
            return recorded("final_answer", answer, call.id)
    try:
        parsed = calls.parse_call(call.name, arguments)
    except ToolRefused:
        payload = {"tool": call.name[:80], "arguments": arguments[:2000]}
        return Action("call_tool", BadCall(call.name, arguments), payload, call.id)
    match parsed:
        case calls.UseSkill():
            return recorded("select_skills", SelectSkills(skills=[parsed]), call.id)
        case calls.LoadSkillAsset():
            return recorded("load_resource", parsed, call.id)
        case calls.RunScript():
            return recorded("run_script", parsed, call.id)
        case _:
            tool = CallTool(tool=calls.NAMES[type(parsed)], arguments=calls.said(parsed))
            return recorded("call_tool", tool, call.id)
