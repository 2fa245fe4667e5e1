"""Offer skills to Google's Agent Development Kit as a toolset with its own instructions."""

from __future__ import annotations

from typing import Any

from vademecum.integrations.toolkit import Toolkit, call_or_ask, extra, in_thread, shown, yes_or_no
from vademecum.policy.approval import Question

with extra("google-adk"):
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types

# Pictures and documents that the model of an invocation has not seen yet.
_Seen = dict[str, list[tuple[str, types.Part]]]


class SkillToolset(BaseToolset):
    """A toolset for ``Agent(tools=[SkillToolset()])``, by default with the skills of this directory.

    A call that needs approval asks for a confirmation, unless the toolkit has an approver. The model gets
    errors as ``{"error": ...}``. If an approver refuses, the run ends.
    """

    def __init__(self, kit: Toolkit | None = None) -> None:
        super().__init__()
        self.kit = kit or Toolkit(client="google-adk")
        self._seen: _Seen = {}

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:  # noqa: ARG002
        """Return the tools; they are the same for every invocation."""
        return [
            _SkillTool(self.kit, schema, self._seen) for schema in self.kit.schemas("anthropic", listed=False)
        ]

    async def process_llm_request(self, *, tool_context: Any, llm_request: Any) -> None:
        """Add the list of skills, and the pictures and documents of results, to the request."""
        if told := self.kit.system_prompt():
            llm_request.append_instructions([told])
        for name, part in self._seen.pop(tool_context.invocation_id, ()):
            about = types.Part.from_text(text=f"This is {name}:")
            llm_request.contents.append(types.Content(role="user", parts=[about, part]))

    async def close(self) -> None:
        """End the record."""
        self.kit.close()


class _SkillTool(BaseTool):
    def __init__(self, kit: Toolkit, schema: dict[str, Any], seen: _Seen) -> None:
        super().__init__(name=schema["name"], description=schema["description"])
        self._kit = kit
        self._seen = seen
        self._schema = schema["input_schema"]

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, str]:
        """Call the tool in a thread; ask for a confirmation if it needs approval."""
        call_id = tool_context.function_call_id or ""
        given = tool_context.tool_confirmation
        answer = None if given is None else yes_or_no(given.confirmed)
        result = await in_thread(call_or_ask, self._kit, self.name, args, call_id, answer)
        if isinstance(result, Question):
            tool_context.request_confirmation(
                hint=f"{result.wanted}\n\n{result.about}", payload=shown(result)
            )
            tool_context.actions.skip_summarization = True
            return {"error": "This call needs an approval, which was asked for."}
        for each in result.content:
            part = types.Part.from_bytes(data=each.data, mime_type=each.media_type)
            self._seen.setdefault(tool_context.invocation_id, []).append((each.name, part))
        return {"result" if result.ok else "error": result.text}
