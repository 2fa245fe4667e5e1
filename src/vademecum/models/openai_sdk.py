"""Models behind the OpenAI protocol, with the official SDK: OpenAI, Azure, and every compatible server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import openai
from msgspec import structs

from vademecum.errors import ModelRefused, ModelReplyWrong, ModelUnavailable, ToolsUnsupported
from vademecum.models.base import Message, OnText, Reply, ToolCall, Usage, Wire
from vademecum.models.wire import SERVER_ERROR, TOO_LONG, ServedModel, count

_OPEN, _CLOSE = "<think>", "</think>"
_IN_TEXT = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_FORMAT = re.compile(r"response_format|json_schema|json_object|grammar|structured", re.IGNORECASE)
# The features to leave out if a server's refusal names one, and their order if it names none.
_FEATURES = {
    "usage": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "strict": re.compile(r"strict", re.IGNORECASE),
    "json_schema": _FORMAT,
    "json_object": _FORMAT,
    "tools": re.compile(r"tool|function", re.IGNORECASE),
    "system": re.compile(r"system role|role.{0,20}system|system message", re.IGNORECASE),
    "stream": re.compile(r"\bstream", re.IGNORECASE),
}
# The features to leave out for a server that accepts only this `response_format`.
_WITHOUT = {"json_schema": set(), "json_object": {"json_schema"}, "text": {"json_schema", "json_object"}}
_INVALID = re.compile(r"validation|not support|unsupported|unknown|unrecogni|extra ", re.IGNORECASE)


class OpenAIModel(ServedModel):
    """One model behind the OpenAI protocol."""

    sdk = openai

    def __init__(
        self,
        *named: Any,
        protocol: Literal["auto", "tools", "json"] = "auto",
        structure: Literal["auto", "json_schema", "json_object", "text"] = "auto",
        **params: Any,
    ) -> None:
        super().__init__(*named, **params)
        without = self._habits.without
        if structure != "auto":
            without = without - {"json_schema", "json_object"} | _WITHOUT[structure]
        if protocol != "auto":
            without = without - {"tools"} if protocol == "tools" else without | {"tools"}
        self._habits = structs.replace(self._habits, without=without)
        self._may_drop_tools = protocol == "auto"

    @property
    def wire(self) -> Wire:
        """How this server transports actions, as far as is known."""
        return "json" if "tools" in self._habits.without else "tools"

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask for a reply; after a refusal, leave out the unsupported feature and ask again."""
        first: openai.APIStatusError | None = None
        request = partial(self._request, messages, schema)
        without = self._habits.without
        with self._translated():
            while True:
                sent = request(without)
                heard = _Heard(on_text)
                try:
                    for part in self._parts(self._client.chat.completions.with_raw_response.create, sent):
                        heard.take(part)
                    break
                except openai.APIStatusError as error:
                    first = first or error
                    used = [each for each in _FEATURES if request(without | {each}) != sent]
                    less = self._given_up(error, used)
                    if less is None:
                        raise first from None
                    without |= {less}
                    if less == "tools":
                        self._learn(without=without)
                        told = f"{self._host} does not support tools: {self._words(error)}"
                        raise ToolsUnsupported(told) from error
            if without != self._habits.without:
                self._learn(without=without)
            return heard.reply(self.name, native="tools" in sent)

    def _given_up(self, error: openai.APIStatusError, used: Sequence[str]) -> str | None:
        """Return which used feature to leave out after a refusal, or ``None`` if that would not help."""
        words, status = str(error), error.status_code
        refuses = status in {400, 404, 405, 415, 422, 501} or (
            status == SERVER_ERROR and _INVALID.search(words)
        )
        if not refuses or TOO_LONG.search(words):
            return None
        left = [each for each in used if each != "tools" or self._may_drop_tools]
        named = [each for each in left if _FEATURES[each].search(words)]
        if not named and status in {400, 422}:
            named = [each for each in left if each != "system"]
        return named[0] if named else None

    def _request(
        self, messages: Sequence[Message], schema: Mapping[str, Any], without: frozenset[str]
    ) -> dict[str, Any]:
        sent: dict[str, Any] = {"model": self._model, "messages": _messages(messages, without)}
        if "tools" not in without and messages[0].tools:
            sent["tools"] = [
                {"type": "function", "function": structs.asdict(tool)} for tool in messages[0].tools
            ]
        elif schema and "json_schema" not in without:
            wanted: dict[str, Any] = {"name": "turn", "schema": dict(schema)}
            wanted |= {} if "strict" in without else {"strict": False}
            sent["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif schema and "json_object" not in without:
            sent["response_format"] = {"type": "json_object"}
        if "stream" not in without:
            sent["stream"] = True
            sent |= {} if "usage" in without else {"stream_options": {"include_usage": True}}
        return sent


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Heard:
    """The part of a reply that has arrived so far; thoughts in ``<think>`` are left out of its text."""

    on_text: OnText | None
    pieces: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    by_index: dict[Any, _Call] = field(default_factory=dict)
    usage: Usage = Usage()
    ended: str = ""
    refusal: str = ""
    is_empty: bool = True
    waiting: str | None = ""  # text that can still be a thought; None once it is not

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Add one event, or a whole reply."""
        self.is_empty = False
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details") or {}
            cached = count(details.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
            self.usage = Usage(
                count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), cached
            )
        choices = chunk.get("choices")
        for choice in (choices if isinstance(choices, list) else [])[:1]:
            said = choice.get("delta") or choice.get("message") or {}
            self.refusal += str(said.get("refusal") or "")
            text = said.get("content") or choice.get("text")
            if isinstance(text, list):  # parts, as some servers send them
                text = "".join(str(part.get("text") or "") for part in text if isinstance(part, dict))
            if isinstance(text, str) and text:
                self._text(text)
            for place, call in enumerate(said.get("tool_calls") or ()):
                self._call(call.get("index", place), call.get("id"), call.get("function") or {})
            if isinstance(said.get("function_call"), dict):
                self._call("function", None, said["function_call"])
            self.ended = str(choice.get("finish_reason") or self.ended)

    def _call(self, index: Any, id_: Any, function: Mapping[str, Any]) -> None:
        known = self.by_index.get(index)
        name, arguments = function.get("name"), function.get("arguments")
        if known is None or (id_ and name and known.id != id_):
            known = _Call(str(id_ or f"call_{len(self.calls) + 1}"), "")
            self.calls.append(known)
            self.by_index[index] = known
        known.name = known.name or str(name or "")
        if arguments is not None:
            known.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _text(self, text: str) -> None:
        if self.waiting is not None:
            self.waiting += text
            begun = self.waiting.lstrip()
            if begun.startswith(_OPEN) and _CLOSE in begun:
                text = begun.partition(_CLOSE)[2].lstrip()
            elif begun.startswith(_OPEN) or _OPEN.startswith(begun):
                return
            else:
                text = self.waiting
            self.waiting = None
        if text:
            self.pieces.append(text)
            if self.on_text is not None:
                self.on_text(text)

    def reply(self, name: str, *, native: bool) -> Reply:
        """Return the whole reply, or raise the error in it."""
        if self.is_empty:
            raise ModelUnavailable(f"{name} sent an empty reply.")
        if self.refusal or self.ended in {"content_filter", "sensitive"}:
            raise ModelRefused(f"{name} refuses: {self.refusal or 'its content filter stopped the reply'}.")
        if self.ended in {"error", "network_error", "abort"}:
            raise ModelUnavailable(f"The reply of {name} broke off ({self.ended}).")
        text = "".join(self.pieces)
        if _CLOSE in text and _OPEN not in text:  # a template that opens the thought itself
            text = text.rpartition(_CLOSE)[2].lstrip()
        calls = tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self.calls)
        cut = self.ended in {"length", "max_tokens", "model_length"}
        if native and not calls and "<tool_call>" in text:
            calls = _calls_in(text)
            text = text.partition("<tool_call>")[0].rstrip() if calls else text
        if not text and not calls and not cut and not self.ended and self.waiting is None:
            raise ModelReplyWrong(f"The reply of {name} has neither text nor calls.")
        return Reply(text, self.usage, calls, cut)


def _calls_in(text: str) -> tuple[ToolCall, ...]:
    """Return the calls in a model's text, which its server did not translate."""
    try:
        found = [json.loads(written) for written in _IN_TEXT.findall(text)]
        written = [(str(call["name"]), json.dumps(call.get("arguments") or {})) for call in found]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(ToolCall(f"call_{number}", *call) for number, call in enumerate(written, 1))


def _messages(messages: Sequence[Message], without: frozenset[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        sent: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.role == "tool":
            sent["tool_call_id"] = message.call_id
        if message.calls:
            sent["content"] = message.content or None
            sent["tool_calls"] = []
            for call in message.calls:
                function = {"name": call.name, "arguments": call.arguments or "{}"}
                sent["tool_calls"].append({"id": call.id, "type": "function", "function": function})
        found.append(sent)
    if "system" in without and found[0]["role"] == "system":
        first, *rest = found
        if rest and rest[0]["role"] == "user":
            rest[0] = {"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}
            return rest
        return [{**first, "role": "user"}, *rest]
    return found


SDK_ERROR, MODEL = openai.OpenAIError, OpenAIModel
