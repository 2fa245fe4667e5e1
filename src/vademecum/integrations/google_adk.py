"""Google's Agent Development Kit: skills as a toolset that brings its own instructions."""

from __future__ import annotations

from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from vademecum.integrations.toolkit import Toolkit


class SkillToolset(BaseToolset):
    """For ``Agent(tools=[SkillToolset()])``; the skills of this place by default.

    What went wrong is told to the model as ``{"error": ...}``. A person's no ends the run.
    """

    def __init__(self, kit: Toolkit | None = None) -> None:
        super().__init__()
        self.kit = kit or Toolkit(client="google-adk")

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:  # noqa: ARG002
        """The tools; the same for every invocation."""
        return [_SkillTool(self.kit, schema) for schema in self.kit.schemas("anthropic")]

    async def process_llm_request(self, *, tool_context: Any, llm_request: Any) -> None:  # noqa: ARG002
        """Tell the model which skills there are."""
        if told := self.kit.system_prompt():
            llm_request.append_instructions([told])

    async def close(self) -> None:
        """End the record."""
        self.kit.close()


class _SkillTool(BaseTool):
    def __init__(self, kit: Toolkit, schema: dict[str, Any]) -> None:
        super().__init__(name=schema["name"], description=schema["description"])
        self._kit = kit
        self._schema = schema["input_schema"]

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, str]:  # noqa: ARG002
        """Call it, in a thread."""
        result = await self._kit.call_async(self.name, args)
        return {"result" if result.ok else "error": result.text}
