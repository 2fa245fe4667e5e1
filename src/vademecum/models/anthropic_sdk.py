"""Anthropic's models, with the official SDK and its clients for Bedrock and Vertex."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anthropic

from vademecum.errors import ModelRefused, ModelUnavailable
from vademecum.models.base import Message, OnText, Reply, ToolCall, Usage, Wire
from vademecum.models.wire import ServedModel, count

MAX_TOKENS = 16_000
_CACHED = {"cache_control": {"type": "ephemeral"}}
_MOST_TOKENS = re.compile(r"max_tokens: \d+ > (\d+)")


class AnthropicModel(ServedModel):
    """One of Anthropic's models."""

    sdk = anthropic
    models = "/v1/models"

    def __init__(
        self, *named: Any, protocol: Literal["auto", "tools", "json"] = "auto", **params: Any
    ) -> None:
        super().__init__(*named, **params)
        self.wire: Wire = "json" if protocol == "json" else "tools"

    def reply(self, messages: Sequence[Message], *, on_text: OnText | None = None, **_: Any) -> Reply:
        """Ask for a reply; if its length limit is too high for the model, ask again with the model's."""
        while True:
            try:
                with self._translated():
                    return self._asked(messages, on_text)
            except ModelRefused as error:
                most = _MOST_TOKENS.search(str(error))
                if most is None or "max_tokens" in self._params or self._habits.max_tokens == int(most[1]):
                    raise
                self._learn(max_tokens=int(most[1]))

    def _asked(self, messages: Sequence[Message], on_text: OnText | None) -> Reply:
        system, *rest = messages
        sent: dict[str, Any] = {
            "model": self._model,
            "system": [{"type": "text", "text": system.content, **_CACHED}],
            "messages": _messages(rest),
            "max_tokens": self._habits.max_tokens or MAX_TOKENS,
            "stream": True,
        }
        if system.tools:
            sent["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in system.tools
            ]
        heard = _Heard(on_text)
        for part in self._parts(self._client.messages.with_raw_response.create, sent):
            heard.take(part)
        return heard.reply(self.name)


@dataclass(slots=True)
class _Heard:
    """The part of a reply that has arrived so far, in blocks."""

    on_text: OnText | None
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    is_over: bool = False

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event, or a whole reply of a server that does not stream."""
        begun = event.get("message") or event  # the first event contains the empty message
        self.usage |= {key: value for key, value in (begun.get("usage") or {}).items() if value}
        match event.get("type"):
            case "message":
                for number, block in enumerate(event.get("content") or ()):
                    self._begin(number, block)
                self.ended, self.is_over = str(event.get("stop_reason") or ""), True
            case "content_block_start":
                self._begin(event["index"], event["content_block"])
            case "content_block_delta":
                block, delta = self.blocks.setdefault(event["index"], {"type": "text"}), event["delta"]
                for key in ("text", "partial_json", "thinking", "signature"):
                    if key in delta:
                        block[key] = block.get(key, "") + delta[key]
                if "text" in delta and self.on_text is not None:
                    self.on_text(delta["text"])
            case "message_delta":
                self.ended = str(event.get("delta", {}).get("stop_reason") or self.ended)
            case "message_stop":
                self.is_over = True

    def _begin(self, number: int, block: Mapping[str, Any]) -> None:
        self.blocks[number] = dict(block)
        if block.get("type") == "text" and block.get("text") and self.on_text:
            self.on_text(block["text"])

    def reply(self, name: str) -> Reply:
        """Return the whole reply, or raise the error in it."""
        if self.ended == "refusal":
            raise ModelRefused(f"{name} refuses this request.")
        if not self.is_over and not self.ended:
            raise ModelUnavailable(f"The reply of {name} broke off in the middle.")
        blocks = [self.blocks[number] for number in sorted(self.blocks)]
        calls = []
        for each in (each for each in blocks if each.get("type") == "tool_use"):
            arguments = each.get("partial_json") or json.dumps(each.get("input") or {})
            calls.append(ToolCall(str(each.get("id")), str(each.get("name")), arguments))
        thoughts = tuple(block for block in blocks if "thinking" in str(block.get("type")))
        text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        usage = self.usage
        cached = count(usage.get("cache_read_input_tokens"))
        given = count(usage.get("input_tokens")) + cached + count(usage.get("cache_creation_input_tokens"))
        used = Usage(given, count(usage.get("output_tokens")), cached)
        cut = self.ended in {"max_tokens", "model_context_window_exceeded"}
        return Reply(text, used, tuple(calls), cut, thoughts)


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages in Anthropic's form, with the last block marked as the end of the cache."""
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not found or found[-1]["role"] != role:
            found.append({"role": role, "content": []})
        found[-1]["content"] += _blocks(message)
    if found and found[-1]["content"]:
        found[-1]["content"][-1] = {**found[-1]["content"][-1], **_CACHED}
    return found


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}]
    blocks = list(message.blocks)
    if message.content.strip():
        blocks.append({"type": "text", "text": message.content})
    for call in message.calls:
        try:
            given = json.loads(call.arguments or "{}")
            # An escape can be half a character, which cannot be sent.
            given = json.loads(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
        except ValueError:
            given = {}
        arguments = given if isinstance(given, dict) else {}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


SDK_ERROR, MODEL = anthropic.AnthropicError, AnthropicModel
