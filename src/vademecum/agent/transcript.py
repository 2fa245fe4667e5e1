"""The conversation with a model: messages are only appended, and rarely shortened in one step.

The system message has the rules, the tools and the catalogue. Then comes each request with the model's
replies and their results, in the provider's own roles. Text of skills, files and scripts is marked untrusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from vademecum.agent.plan import Plan
from vademecum.agent.protocol import mended, offered_tools, tools_in_words
from vademecum.models.base import Message, Reply, Wire
from vademecum.skill.skill import Skill

COMPACT_AT = 0.8  # of the context; checked before each request
TAIL_SHARE = 4  # at most a quarter of the context for the exchange that is kept unchanged
MAX_OBSERVATION_CHARS = 24_000
MAX_EARLIER = 10
MAX_QUOTED_CHARS = 1000
MAX_LINES = 300
BYTES_A_TOKEN = 3  # of UTF-8: safe for English, and for Chinese, which has three bytes a character

_ENTRY = re.compile(r"[\w./-]{1,200}")
_SPOOF = re.compile(r"^(\s*===)", re.MULTILINE)
_FRAME = re.compile(r"<(/?)(untrusted)", re.IGNORECASE)
_NATIVE = (
    "Use the tools for everything you do; you may call several at once, and they are done in order. A text "
    "without a call is your answer to the person and ends the task."
)
_SHORTENED = "The conversation was shortened. read_file gives back the full text of each line here."


@cache
def rules(wire: Wire) -> str:
    """Return the rules that every conversation begins with."""
    here = Path(__file__).parent
    protocol = _NATIVE
    if wire == "json":
        protocol = (here / "protocol.md").read_text("utf-8").strip().replace("{tools}", tools_in_words())
    return (here / "rules.md").read_text("utf-8").replace("{protocol}", protocol)


def estimate(text: str) -> int:
    """Return an estimate of a text's tokens, more likely too high than too low.

    >>> estimate("word " * 30), estimate("你好世界")
    (50, 4)
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_A_TOKEN)


@dataclass(slots=True)
class Transcript:
    """The messages of one conversation, and what compaction must keep.

    ``limit`` is the size of a request in tokens; it is lowered if the model's server accepts less.
    """

    wire: Wire
    catalogue: str
    limit: int
    messages: list[Message] = field(init=False)
    request: str = ""
    earlier: list[tuple[str, str]] = field(default_factory=list)
    plan: Plan | None = None
    skills: dict[str, str] = field(default_factory=dict)
    observed: list[tuple[str, str]] = field(default_factory=list)  # lines, with the paths of the full texts
    _results: list[str] = field(default_factory=list)
    _counted: int = 0  # tokens, by the provider's last count
    _since: int = 0  # an estimate for the messages since then
    _characters: int = 0
    _digest: hashlib._Hash = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the system message."""
        self._restart([])

    # Appending

    def ask(self, request: str, *, about: str = "", skills: Sequence[str] = ()) -> None:
        """Append the person's request, with the instructions of the skills that it names."""
        self.request = request
        sections = {"request": request, "about": about, "loaded skills": "\n\n".join(skills)}
        self._append(Message("user", written(sections)))

    def said(self, reply: Reply) -> None:
        """Append a reply, and use its count of tokens if that is plausible."""
        self._append(Message("assistant", reply.text, reply.calls, blocks=reply.blocks))
        total = reply.usage.input_tokens + reply.usage.output_tokens
        if reply.usage.input_tokens and total * 8 >= self.tokens:
            self._counted, self._since = total, 0

    def told(self, text: str, call_id: str = "") -> None:
        """Append the result of an action, or the problems of a reply."""
        self._append(Message("tool", text, call_id=call_id) if call_id else Message("user", text))

    def result(self, text: str, call_id: str = "") -> None:
        """Add the result of a call; in the JSON protocol, one message contains all results of a turn."""
        if self.wire == "json":
            self._results.append(text)
        else:
            self.told(text, call_id)

    def send_results(self) -> None:
        """Append the message with the collected results of a turn, if there are any."""
        if self._results:
            self.told("\n".join(["=== observations ===", *self._results]))
            self._results = []

    def observe(self, line: str, text: str, kind: str, path: str) -> str:
        """Keep the line of a result, and return its text for a message; text with a kind is framed."""
        self.observed.append((line, path))
        shown = untrusted(shortened(text, path), kind=kind) if kind and text else safe(text)
        return f"{line}\n{shown}" if shown else line

    def answered(self, answer: str, why: str) -> None:
        """Close a request: give calls without a result one, and append the answer."""
        last = self._last_calls()
        done = {message.call_id for message in self.messages[last:]}
        for call in self.messages[last].calls:
            if call.id not in done:
                self.told(f"Not done: the run ended ({why}).", call.id)
        if self.messages[-1].role != "assistant" or self.messages[-1].calls:
            self._append(Message("assistant", answer or why))
        self.earlier = [*self.earlier, (self.request, answer)][-MAX_EARLIER:]
        self.observed, self._results = [], []

    def keep(self, skill: Skill, text: str) -> str:
        """Keep a skill's instructions, and return their text for a message."""
        entry = skill.meta.metadata.get("entry", "")
        entry = f", entry {entry}" if _ENTRY.fullmatch(entry) else ""
        head = f"skill {skill.name} (source {skill.source}){entry}"
        self.skills[skill.skill_id] = f"{head}\n{untrusted(text, kind='skill')}"
        return self.skills[skill.skill_id]

    # Measuring

    @property
    def tokens(self) -> int:
        """The size of the next request: the provider's last count and an estimate of the messages since."""
        return self._counted + self._since

    def measured(self) -> dict[str, Any]:
        """Return the hash and the size of the next request, for the record."""
        digest = self._digest.hexdigest()
        return {"prompt_sha256": digest, "characters": self._characters, "tokens": self.tokens}

    def has_room_for(self, text: str) -> bool:
        """Return whether a skill's instructions fit beside everything that compaction keeps."""
        kept = sum(map(estimate, (self.request, *self.skills.values(), text)))
        return _size(self.messages[0]) + kept < self.limit * COMPACT_AT

    # Compaction

    def compact(self, active: Collection[str]) -> dict[str, Any] | None:
        """Shorten everything before the last exchange; return ``None`` if that saves nothing.

        Active skills, request and plan are kept. Every observation becomes a line that names the file with
        its full text. The result is for the record.
        """
        before = self.tokens
        start = self._last_calls()
        if not start and len(self.messages) > 3:
            start = max((n for n, each in enumerate(self.messages) if each.role == "assistant"), default=0)
        tail = self.messages[start:] if start > 1 else []
        share = self.limit * BYTES_A_TOKEN // TAIL_SHARE // max(1, len(tail))
        if any(len(call.arguments) > share for each in tail for call in each.calls):
            tail = []  # the calls alone are too long
        tail = [structs.replace(each, content=shortened(each.content, "", most=share)) for each in tail]
        self.skills = {name: text for name, text in self.skills.items() if name in active}
        summary = Message("user", self._summary())
        if sum(map(_size, (self.messages[0], summary, *tail))) >= before * 0.9:
            return None
        self._restart([summary, *tail])
        kept = [path for _, path in self.observed if path]
        sizes = {"tokens_before": before, "tokens_after": self.tokens}
        return {"observations": len(self.observed), **sizes, "kept": kept}

    def speak(self, wire: Wire, catalogue: str | None = None) -> None:
        """Continue with another wire or catalogue; summarise the earlier messages."""
        self.wire = wire
        self.catalogue = self.catalogue if catalogue is None else catalogue
        self._restart([Message("user", self._summary())] if self.request or self.earlier else [])

    def _summary(self) -> str:
        short = [[" ".join(text.split())[:MAX_QUOTED_CHARS] for text in pair] for pair in self.earlier]
        earlier = "\n".join(f"asked: {asked}\nanswered: {said}" for asked, said in short)
        seen = self.observed[-MAX_LINES:]
        done = [f"{line} (full text: {path})" if path else line for line, path in seen]
        found = {
            "request": self.request,
            "earlier in this conversation": earlier and untrusted(earlier, kind="conversation"),
            "plan": safe(msgspec.json.encode(self.plan).decode()) if self.plan else "",
            "loaded skills": "\n\n".join(self.skills.values()),
            "done so far": "\n".join([_SHORTENED, *done]) if done else "",
        }
        return written(found)

    # The messages themselves

    def _append(self, message: Message) -> None:
        if not message.content.isascii():
            message = structs.replace(message, content=mended(message.content))
        self.messages.append(message)
        self._since += _size(message)
        for text in _texts(message):
            self._characters += len(text)
            self._digest.update(f"{text}\0".encode("utf-8", "replace"))

    def _restart(self, messages: Sequence[Message]) -> None:
        text = f"{rules(self.wire)}\n=== catalogue ===\n{self.catalogue or 'There are no skills.'}"
        tools = offered_tools() if self.wire == "tools" else ()
        self.messages, self._digest = [], hashlib.sha256()
        self._counted = self._since = self._characters = 0
        for message in (Message("system", text, tools=tools), *messages):
            self._append(message)

    def _last_calls(self) -> int:
        """Return the index of the last reply that calls tools, 0 if there is none."""
        return max((n for n, message in enumerate(self.messages) if message.calls), default=0)


def _texts(message: Message) -> Iterator[str]:
    yield message.content
    yield from (call.name + call.arguments for call in message.calls)
    yield from map(json.dumps, message.blocks)


def _size(message: Message) -> int:
    """Return an estimate of a message's tokens, including the tools that it offers."""
    tools = msgspec.json.encode(message.tools).decode() if message.tools else ""
    return sum(map(estimate, (*_texts(message), tools)))


def safe(text: str) -> str:
    r"""Return the text with lines escaped that look like the head of a section.

    >>> safe("=== plan ===")
    '\\=== plan ==='
    """
    return _SPOOF.sub(r"\\\1", text) if "===" in text else text


def written(sections: Mapping[str, str]) -> str:
    """Return the sections that are not empty; the caller has made text from outside safe.

    >>> print(written({"request": "do it", "about": "", "plan": "none"}))
    === request ===
    do it
    <BLANKLINE>
    === plan ===
    none
    """
    return "\n\n".join(f"=== {name} ===\n{text}" for name, text in sections.items() if text)


def untrusted(text: str, *, kind: str) -> str:
    """Return text from outside in a frame that its content cannot close.

    >>> print(untrusted("a </untrusted> b", kind="file"))
    <untrusted kind="file">
    a &lt;/untrusted> b
    </untrusted>
    """
    inside = safe(_FRAME.sub(r"&lt;\1\2", text) if "ntrusted" in text.lower() else text)
    return f'<untrusted kind="{kind}">\n{inside}\n</untrusted>'


def shortened(text: str, kept: str, *, most: int = MAX_OBSERVATION_CHARS) -> str:
    """Return the beginning and the end of a long text, with the file that contains all of it."""
    if len(text) <= most:
        return text
    head, tail = text[: most * 3 // 4], text[-most // 4 :]
    place = f"; read_file {kept} has them" if kept else ""
    return f"{head}\n[… {len(text) - most:,} characters left out{place} …]\n{tail}"


def request_section(
    request: str, files: Sequence[str], absent: Sequence[str] = (), similar: Sequence[str] = ()
) -> str:
    """Return a request with the files that it names, those that do not exist, and names like these."""
    told = {
        "files it names": files,
        "files it names that are not here": absent,
        "files with similar names": similar,
    }
    lines = [f"{head}: {json.dumps(names, ensure_ascii=False)}" for head, names in told.items() if names]
    return "\n".join([safe(request), *lines])
