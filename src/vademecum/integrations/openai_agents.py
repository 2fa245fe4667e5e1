"""Offer skills to the OpenAI Agents SDK as function tools."""

from __future__ import annotations

from typing import Any

from vademecum.integrations.toolkit import Toolkit, call_or_ask, extra, in_thread, told
from vademecum.policy.approval import Answer, Question
from vademecum.session.base import Result

with extra("openai-agents"):
    from agents import FunctionTool, Tool, ToolOutputFileContent, ToolOutputImage, ToolOutputText


def skill_tools(kit: Toolkit | None = None) -> list[Tool]:
    """Return tools for ``Agent(tools=skill_tools())``, by default for the skills of this directory.

    A call that needs approval interrupts the run, unless the toolkit has an approver. The model gets errors
    as text. If an approver refuses, the run ends.
    """
    kit = kit or Toolkit(client="openai-agents")
    return [_tool(kit, schema) for schema in kit.schemas("anthropic")]


def _tool(kit: Toolkit, schema: dict[str, Any]) -> FunctionTool:
    name = schema["name"]
    # The SDK asks first whether a call needs approval. To find out, try it: if it does, nothing is done.
    done: dict[str, Result] = {}

    async def needs_approval(_context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        result = await in_thread(call_or_ask, kit, name, arguments, call_id)
        if isinstance(result, Question):
            return True
        done[call_id] = result
        return False

    async def invoke(context: Any, arguments: str) -> Any:
        result: Result | Question | None = done.pop(context.tool_call_id, None)
        if result is None:
            call = name, arguments or "{}", context.tool_call_id
            result = await in_thread(call_or_ask, kit, *call, Answer("once"))
        if isinstance(result, Question):
            return f"Error: {result.wanted} needs another approval."
        return _given(result)

    return FunctionTool(
        name=name,
        description=schema["description"],
        params_json_schema=schema["input_schema"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=needs_approval,
    )


def _given(result: Result) -> Any:
    if not (result.ok and result.content):
        return told(result)
    found: list[Any] = [ToolOutputText(text=result.text)]
    for each in result.content:
        if each.is_image:
            found.append(ToolOutputImage(image_url=each.url))
        else:
            name = each.name.rpartition("/")[2]
            found.append(ToolOutputFileContent(file_data=each.url, filename=name))
    return found
