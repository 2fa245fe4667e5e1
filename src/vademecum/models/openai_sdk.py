"""Models behind the OpenAI protocol, by the official SDK: OpenAI, Azure, vLLM, Ollama, llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import openai

from vademecum.errors import ModelRefused, ModelReplyWrong, ModelUnavailable
from vademecum.models.base import Message, OnText, Reply, Usage
from vademecum.models.wire import count, said, translated

Structure = Literal["auto", "json_schema", "json_object", "text"]

# What a server offers is found out by asking: the most first, then less.
_LADDER: tuple[Structure, ...] = ("json_schema", "json_object", "text")


class OpenAIModel:
    """One model of one server. The SDK reads the key from the environment; it is written nowhere."""

    def __init__(self, model: str, client: Any, *, structure: Structure = "auto", **params: Any) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._client = client.with_options(max_retries=0)  # the loop waits and asks again, on the record
        self._steps = list(_LADDER if structure == "auto" else (structure,))
        self._params = params

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Ask once; a server that does not know a form of structured output is asked without it."""
        while True:
            try:
                with translated(openai, self._client):
                    return self._streamed(messages, schema, on_text or _nowhere)
            except _StructureRefused:
                self._steps.pop(0)

    def _streamed(self, messages: Sequence[Message], schema: Mapping[str, Any], on_text: OnText) -> Reply:
        pieces: list[str] = []
        usage, ended = Usage(), None
        try:
            stream = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": m.role, "content": m.content} for m in messages],
                stream=True,
                stream_options={"include_usage": True},
                **self._structured(schema),
                **self._params,
            )
        except TypeError as error:
            raise ModelRefused(f"The model's settings do not fit: {said(error)}.") from error
        except openai.BadRequestError as error:
            if len(self._steps) > 1 and "response_format" in str(error):
                raise _StructureRefused from error
            raise
        with stream:
            for chunk in stream:
                found = getattr(chunk, "usage", None)
                if found is not None:
                    usage = Usage(count(found.prompt_tokens), count(found.completion_tokens))
                for choice in (getattr(chunk, "choices", None) or [])[:1]:
                    delta = choice.delta
                    if getattr(delta, "refusal", None):
                        raise ModelRefused(f"{self.name} refuses: {delta.refusal}")
                    text = getattr(delta, "content", None)
                    if isinstance(text, str) and text:
                        pieces.append(text)
                        on_text(text)
                    ended = choice.finish_reason or ended
        return Reply(_whole("".join(pieces), ended, self.name), usage)

    def _structured(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        match self._steps[0]:
            case "json_schema":
                wanted = {"name": "turn", "schema": dict(schema), "strict": False}
                return {"response_format": {"type": "json_schema", "json_schema": wanted}}
            case "json_object":
                return {"response_format": {"type": "json_object"}}
        return {}


class _StructureRefused(Exception):
    """The server does not know this form of structured output."""


def _whole(text: str, ended: str | None, name: str) -> str:
    match ended:
        case "stop" | "tool_calls":
            return text
        case "length":
            raise ModelReplyWrong(f"The reply of {name} was cut at its length limit.")
        case "content_filter":
            raise ModelRefused(f"{name} refuses: its content filter stopped the reply.")
    raise ModelUnavailable(f"The reply of {name} broke off in the middle.")


def _nowhere(text: str) -> None:
    """Take a piece of text that nobody wants to see."""


def connect(model: str, *, make: Callable[..., Any] = openai.OpenAI, **params: Any) -> OpenAIModel:
    """A model of a server; ``base_url`` and ``timeout`` are the client's, the rest goes with each request."""
    own = {key: params.pop(key) for key in ("base_url", "timeout", "structure") if key in params}
    structure = own.pop("structure", "auto")
    try:
        client = make(**own)
    except openai.OpenAIError as error:
        raise ModelRefused(f"The model cannot be used: {said(error)}") from error
    return OpenAIModel(model, client, structure=structure, **params)
