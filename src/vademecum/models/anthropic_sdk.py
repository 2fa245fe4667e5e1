"""Anthropic's models, by the official SDK and its clients for Bedrock and Vertex."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anthropic

from vademecum.errors import ModelRefused, ModelReplyWrong, ModelUnavailable
from vademecum.models.base import Message, OnText, Reply, Usage
from vademecum.models.wire import count, said, translated

MAX_TOKENS = 8192
OVERLOADED = 529
# The reply is the input of this one tool, so that it is an object and not prose.
_TOOL = "turn"


class AnthropicModel:
    """One of Anthropic's models. The SDK reads the key from the environment; it is written nowhere."""

    def __init__(self, model: str, client: Any, **params: Any) -> None:
        self.name = f"anthropic:{model}"
        self._model = model
        self._client = client.with_options(max_retries=0)  # the loop waits and asks again, on the record
        self._params = {"max_tokens": MAX_TOKENS, **params}

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask once."""
        with translated(anthropic, self._client):
            return self._streamed(messages, schema, on_text)

    def _streamed(
        self, messages: Sequence[Message], schema: Mapping[str, Any], on_text: OnText | None
    ) -> Reply:
        pieces: list[str] = []
        spoken: list[str] = []
        started, output, ended = 0, 0, None
        tool = {"name": _TOOL, "description": "Answer with the next action.", "input_schema": dict(schema)}
        try:
            stream = self._client.messages.create(
                model=self._model,
                system="\n\n".join(m.content for m in messages if m.role == "system"),
                messages=[{"role": m.role, "content": m.content} for m in messages if m.role != "system"],
                tools=[tool],
                tool_choice={"type": "tool", "name": _TOOL},
                stream=True,
                **self._params,
            )
        except TypeError as error:
            raise ModelRefused(f"The model's settings do not fit: {said(error)}.") from error
        with stream:
            for event in stream:
                match event.type:
                    case "message_start":
                        started = count(event.message.usage.input_tokens)
                    case "content_block_delta" if event.delta.type == "input_json_delta":
                        pieces.append(event.delta.partial_json)
                        if on_text is not None:
                            on_text(event.delta.partial_json)
                    case "content_block_delta" if event.delta.type == "text_delta":
                        spoken.append(event.delta.text)
                    case "message_delta":
                        ended = event.delta.stop_reason or ended
                        output = count(event.usage.output_tokens)
        text = "".join(pieces) or "".join(spoken)
        return Reply(_whole(text, ended, self.name), Usage(started, output))


def _whole(text: str, ended: str | None, name: str) -> str:
    match ended:
        case "tool_use" | "end_turn" | "stop_sequence":
            return text
        case "max_tokens":
            raise ModelReplyWrong(f"The reply of {name} was cut at its length limit.")
        case "refusal":
            raise ModelRefused(f"{name} refuses this request.")
    raise ModelUnavailable(f"The reply of {name} broke off in the middle.")


def connect(model: str, *, make: Callable[..., Any] = anthropic.Anthropic, **params: Any) -> AnthropicModel:
    """A model by name; ``base_url`` and ``timeout`` are the client's, the rest goes with each request."""
    own = {key: params.pop(key) for key in ("base_url", "timeout") if key in params}
    try:
        client = make(**own)
    except anthropic.AnthropicError as error:
        raise ModelRefused(f"The model cannot be used: {said(error)}") from error
    return AnthropicModel(model, client, **params)
