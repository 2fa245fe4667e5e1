"""Offer skills to LangChain and LangGraph as tools, or as a middleware with tools and a prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from vademecum.integrations.toolkit import Toolkit, call_or_ask, extra, in_thread, shown, yes_or_no
from vademecum.policy.approval import Question
from vademecum.session.base import Result

with extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import SystemMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from langgraph.config import get_config
    from langgraph.types import interrupt

# Where a graph keeps its checkpointer.
_CHECKPOINTER = "__pregel_checkpointer"


def skill_tools(kit: Toolkit | None = None) -> list[BaseTool]:
    """Return tools for ``bind_tools``, ``ToolNode`` or ``create_agent``.

    An error is a message with the status "error". In a graph with a checkpointer, a call that needs approval
    interrupts the graph, unless the toolkit has an approver; if an approver refuses, the run ends.
    """
    kit = kit or Toolkit(client="langchain")
    return [_tool(kit, schema) for schema in kit.schemas("anthropic")]


def _tool(kit: Toolkit, schema: dict[str, Any]) -> BaseTool:
    # Plain functions: this framework looks at their type hints.
    def call(**arguments: Any) -> Any:
        return _called(kit, schema["name"], arguments)

    async def call_async(**arguments: Any) -> Any:
        return await in_thread(_called, kit, schema["name"], arguments)

    return StructuredTool.from_function(
        call,
        call_async,
        name=schema["name"],
        description=schema["description"],
        args_schema=schema["input_schema"],
        handle_tool_error=True,
    )


class SkillsMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware with tools and skills: ``create_agent(model, middleware=[SkillsMiddleware()])``."""

    def __init__(self, kit: Toolkit | None = None) -> None:
        super().__init__()
        self.kit = kit or Toolkit(client="langchain")
        self.tools = [_tool(self.kit, schema) for schema in self.kit.schemas("anthropic", listed=False)]

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
        blocks = [] if request.system_message is None else request.system_message.content_blocks
        message = SystemMessage(content=[*blocks, {"type": "text", "text": told}])
        return request.override(system_message=message)


def _called(
    kit: Toolkit, name: str, arguments: dict[str, Any], *, cancelled: Callable[[], bool] = bool
) -> Any:
    """Call a tool, interrupting the graph for each question."""
    call_id = _call_id()
    if call_id is None:
        return _given(kit.call(name, arguments, cancelled=cancelled))
    result = call_or_ask(kit, name, arguments, call_id, cancelled=cancelled)
    while isinstance(result, Question):
        answer = yes_or_no(interrupt(shown(result)))
        result = call_or_ask(kit, name, arguments, call_id, answer, cancelled=cancelled)
    return _given(result)


def _call_id() -> str | None:
    """Return the step of the graph, which stays the same when it resumes, or None if it cannot resume."""
    try:
        found = get_config()["configurable"]
    except (KeyError, RuntimeError):
        return None
    can_resume = found.get(_CHECKPOINTER) is not None
    return f"{found.get('thread_id')} {found.get('checkpoint_ns')}" if can_resume else None


def _given(result: Result) -> Any:
    if not result.ok:
        raise ToolException(result.text)
    if not result.content:
        return result.text
    blocks = [
        {"type": "image" if each.is_image else "file", "base64": each.base64, "mime_type": each.media_type}
        for each in result.content
    ]
    return [{"type": "text", "text": result.text}, *blocks]
