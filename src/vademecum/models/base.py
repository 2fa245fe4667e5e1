"""What a model is to an agent: messages and a schema in, one reply out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

Role = Literal["system", "user", "assistant"]
# Takes pieces of the reply as they come.
OnText = Callable[[str], None]


class Message(Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: str


class Usage(Struct, frozen=True):
    """What a reply cost, in tokens; 0 where a model does not count."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The two together."""
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


class Reply(Struct, frozen=True):
    """The whole text of a reply, and what it cost."""

    text: str
    usage: Usage = Usage()


class Model(Protocol):
    """Decides what to do next.

    ``reply`` returns the whole reply, or raises ``ModelUnavailable``, ``ModelRefused`` or
    ``ModelReplyWrong``. Where ``on_text`` is given it may be called with pieces on the way; joined, they are
    the text of the reply.
    """

    name: str

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Answer the last message with one JSON object of this schema."""
        ...
