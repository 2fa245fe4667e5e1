"""Answer the tool calls of a reply, in your own loop on the OpenAI or Anthropic SDK."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from vademecum.integrations.toolkit import Toolkit
from vademecum.session.base import Result

if TYPE_CHECKING:
    from anthropic.types import Message, MessageParam
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam


def answer_openai(
    kit: Toolkit, message: ChatCompletionMessage, *, others: Collection[str] = ()
) -> list[ChatCompletionMessageParam]:
    """Return the messages to append after a reply: the reply, and the result of each of its tool calls.

    Calls of the tools named in ``others`` are left out: they are yours to answer.
    """
    answers: list[Any] = [message.model_dump(exclude_none=True)]
    for call in message.tool_calls or ():
        if call.type == "function" and call.function.name not in others:
            result = kit.call(call.function.name, call.function.arguments)
            answers.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
    return answers


def answer_anthropic(kit: Toolkit, message: Message, *, others: Collection[str] = ()) -> list[MessageParam]:
    """Return the messages to append after a reply: the reply, and one with the results of its tool calls.

    Calls of the tools named in ``others`` are left out: they are yours to answer.
    """
    results: list[Any] = []
    for block in message.content:
        if block.type == "tool_use" and block.name not in others:
            result = kit.call(block.name, block.input)
            answer = {"type": "tool_result", "tool_use_id": block.id, "content": _blocks(result)}
            results.append({**answer, "is_error": not result.ok})
    said: Any = {"role": "assistant", "content": [block.model_dump() for block in message.content]}
    return [said, {"role": "user", "content": results}] if results else [said]


def _blocks(result: Result) -> str | list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "text", "text": result.text}]
    for each in result.content:
        source = {"type": "base64", "media_type": each.media_type, "data": each.base64}
        found.append({"type": "image" if each.is_image else "document", "source": source})
    return found if result.content else result.text
