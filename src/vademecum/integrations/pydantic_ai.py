"""Offer skills to Pydantic AI as a toolset with its own instructions."""

from __future__ import annotations

from functools import partial
from typing import Any

from vademecum.integrations.toolkit import Toolkit, call_or_ask, extra, in_thread, shown
from vademecum.policy.approval import Answer, Question

with extra("pydantic-ai"):
    from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
    from pydantic_ai.messages import BinaryContent
    from pydantic_ai.tools import DeferredToolRequests, RunContext, Tool
    from pydantic_ai.toolsets import FunctionToolset


def skills_toolset(kit: Toolkit | None = None) -> FunctionToolset[Any]:
    """Return a toolset for ``Agent(model, toolsets=[skills_toolset()])``.

    If ``DeferredToolRequests`` is an output type of the agent and the toolkit has no approver, a call that
    needs approval is a deferred tool. The model gets wrong arguments back to correct them, and other
    errors as a failure. If an approver refuses, the run ends.
    """
    kit = kit or Toolkit(client="pydantic-ai")
    tools = [
        Tool.from_schema(
            partial(_call, kit, schema["name"]),
            schema["name"],
            schema["description"],
            schema["input_schema"],
            takes_ctx=True,
        )
        for schema in kit.schemas("anthropic", listed=False)
    ]
    return FunctionToolset(tools, instructions=kit.system_prompt() or None, id="vademecum")


async def _call(kit: Toolkit, name: str, context: RunContext[Any], /, **arguments: Any) -> Any:
    call_id = context.tool_call_id or ""
    answer = Answer("once") if context.tool_call_approved else None
    if answer or _can_defer(context):
        result = await in_thread(call_or_ask, kit, name, arguments, call_id, answer)
    else:
        result = await kit.call_async(name, arguments)
    if isinstance(result, Question):
        raise ApprovalRequired(metadata=shown(result))
    if result.code == "arguments":
        raise ModelRetry(result.text)
    if not result.ok:
        raise ToolFailed(result.text)
    found = [BinaryContent(each.data, media_type=each.media_type) for each in result.content]
    return [result.text, *found] if found else result.text


def _can_defer(context: RunContext[Any]) -> bool:
    """Return whether the run can end with a question; true if the agent is unknown."""
    if context.agent is None:
        return True
    outputs = context.agent.output_type
    return DeferredToolRequests in (outputs if isinstance(outputs, list | tuple) else [outputs])
