"""The interface of a model, which takes a conversation and returns one reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

# How actions are transported: as the provider's own tool calls, or as one JSON object in the text.
Wire = Literal["tools", "json"]
# Takes pieces of the reply as they come.
OnText = Callable[[str], None]


class Tool(Struct, frozen=True):
    """A tool that a model may call: its name, when to use it, and the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(Struct, frozen=True):
    """A call as a model wrote it; ``arguments`` should be JSON."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    ``tools`` belong to the system message, ``calls`` to the assistant's. ``call_id`` names the call that a
    tool's message answers. ``blocks`` are parts of a reply that the provider must get back unchanged.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tools: tuple[Tool, ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()


class Usage(Struct, frozen=True):
    """The tokens that a reply used; 0 if the model does not count. ``cached`` is part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Reply(Struct, frozen=True, omit_defaults=True):
    """A reply: its text, its calls, and its tokens. ``cut`` is true if a length limit ended it."""

    text: str
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False
    blocks: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """Decides the next action.

    ``reply`` returns the whole reply, or raises ``ModelUnavailable``, ``ModelRefused``, ``ModelOverflow`` or
    ``ModelReplyWrong``. It can call ``on_text``, if given, with pieces of the reply's text as they arrive. A
    model with native tool calls has an attribute ``wire`` with the value ``"tools"``; it raises
    ``ToolsUnsupported`` if its server does not support them. A model that chooses by the search results, and
    not by reading the catalogue, has a true attribute ``needs_ranking``.
    """

    name: str

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Answer the last message: with calls of the tools, or with a JSON object of this schema."""
        ...


def wire_of(model: Model) -> Wire:
    """Return how a model's actions are transported.

    >>> from vademecum import models
    >>> wire_of(models.offline())
    'json'
    """
    return "tools" if getattr(model, "wire", "json") == "tools" else "json"
