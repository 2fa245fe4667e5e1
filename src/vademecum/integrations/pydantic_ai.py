"""Pydantic AI: skills as a toolset that brings its own instructions."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from vademecum.integrations.toolkit import Toolkit


def skills_toolset(kit: Toolkit | None = None) -> FunctionToolset[Any]:
    """A toolset for ``Agent(model, toolsets=[skills_toolset()])``; the skills of this place by default.

    What went wrong is told to the model as the framework does it: wrong arguments as something to correct,
    everything else as a failure. A person's no ends the run.
    """
    kit = kit or Toolkit(client="pydantic-ai")
    tools = [
        Tool.from_schema(
            partial(_call, kit, schema["name"]), schema["name"], schema["description"], schema["input_schema"]
        )
        for schema in kit.schemas("anthropic")
    ]
    return FunctionToolset(tools, instructions=kit.system_prompt() or None, id="vademecum")


async def _call(kit: Toolkit, name: str, /, **arguments: Any) -> str:
    result = await kit.call_async(name, arguments)
    if result.code == "arguments":
        raise ModelRetry(result.text)
    if not result.ok:
        raise ToolFailed(result.text)
    return result.text
