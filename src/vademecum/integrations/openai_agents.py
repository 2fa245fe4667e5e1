"""The OpenAI Agents SDK: skills as function tools."""

from __future__ import annotations

from functools import partial
from typing import Any

from agents import FunctionTool, Tool

from vademecum.integrations.toolkit import Toolkit


def skill_tools(kit: Toolkit | None = None) -> list[Tool]:
    """Tools for ``Agent(tools=skill_tools(kit), instructions=kit.system_prompt())``.

    What went wrong is told to the model. A person's no ends the run.
    """
    kit = kit or Toolkit(client="openai-agents")
    return [
        FunctionTool(
            name=schema["name"],
            description=schema["description"],
            params_json_schema=schema["input_schema"],
            on_invoke_tool=partial(_call, kit, schema["name"]),
            strict_json_schema=False,
        )
        for schema in kit.schemas("anthropic")
    ]


async def _call(kit: Toolkit, name: str, _context: Any, arguments: str) -> str:
    result = await kit.call_async(name, arguments or "{}")
    return result.text if result.ok else f"Error: {result.text}"
