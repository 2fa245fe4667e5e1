"""LangChain and LangGraph: skills as tools, and as a middleware that brings tools and prompt together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from vademecum.integrations.toolkit import Toolkit
from vademecum.session.base import Result


def skill_tools(kit: Toolkit | None = None) -> list[BaseTool]:
    """Tools for ``bind_tools``, ``ToolNode`` or ``create_agent``; say ``kit.system_prompt()`` in the prompt.

    What went wrong is a message with the status "error". A person's no ends the run.
    """
    kit = kit or Toolkit(client="langchain")
    return [
        StructuredTool.from_function(
            _function(kit, schema["name"]),
            _coroutine(kit, schema["name"]),
            name=schema["name"],
            description=schema["description"],
            args_schema=schema["input_schema"],
            handle_tool_error=True,
        )
        for schema in kit.schemas("anthropic")
    ]


class SkillsMiddleware(AgentMiddleware[Any, Any, Any]):
    """For ``create_agent(model, middleware=[SkillsMiddleware()])``: the tools, and which skills there are."""

    def __init__(self, kit: Toolkit | None = None) -> None:
        super().__init__()
        self.kit = kit or Toolkit(client="langchain")
        self.tools = skill_tools(self.kit)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model with the skills in its prompt."""
        return handler(self._with_skills(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Ask the model with the skills in its prompt."""
        return await handler(self._with_skills(request))

    def _with_skills(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        told = self.kit.system_prompt()
        if not told:
            return request
        before = request.system_message
        blocks = [] if before is None else list(before.content_blocks)
        return request.override(
            system_message=SystemMessage(content=[*blocks, {"type": "text", "text": told}])
        )


def _function(kit: Toolkit, name: str) -> Callable[..., str]:
    """A plain function: this framework looks at its type hints."""

    def call(**arguments: Any) -> str:
        return _text(kit.call(name, arguments))

    return call


def _coroutine(kit: Toolkit, name: str) -> Callable[..., Awaitable[str]]:
    async def call(**arguments: Any) -> str:
        return _text(await kit.call_async(name, arguments))

    return call


def _text(result: Result) -> str:
    if not result.ok:
        raise ToolException(result.text)
    return result.text
