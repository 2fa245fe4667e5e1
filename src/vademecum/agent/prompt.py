"""The state of a run → the messages for the model, in fixed sections.

What comes from a skill, a file or a script is marked as untrusted. When the prompt nears its budget, the
oldest observations become one line each, with where their full text is kept; the request, the plan and the
loaded skills stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from vademecum.agent.budget import Budget, Spent
from vademecum.agent.plan import Plan
from vademecum.agent.protocol import tools_in_words
from vademecum.models import sections
from vademecum.models.base import Message
from vademecum.skill.skill import Skill

COMPACT_AT = 0.8  # of the budget for one prompt
MAX_OBSERVATION_CHARS = 24_000

_ENTRY = re.compile(r"[\w./-]{1,200}")
_FRAME = re.compile(r"<(/?)(untrusted)", re.IGNORECASE)


@cache
def rules() -> str:
    """Return what every run tells its model first: the protocol and the rules."""
    return (Path(__file__).parent / "rules.md").read_text("utf-8").replace("{tools}", tools_in_words())


@dataclass(slots=True)
class Observed:
    """What came of one action: a line that says it, the text, and where the whole of it is kept."""

    line: str
    text: str
    kept: str
    shown: bool = True

    def rendered(self) -> str:
        """As the prompt has it."""
        if not self.shown:
            return f"{self.line} (left out; the full text is in {self.kept})"
        return f"{self.line}\n{self.text}" if self.text else self.line


@dataclass(slots=True)
class State:
    """All that a prompt is made of."""

    request: str
    catalogue: str
    budget: Budget
    before: str = ""
    spent: Spent = field(default_factory=Spent)
    plan: Plan | None = None
    loaded: dict[str, str] = field(default_factory=dict)
    loaded_names: set[str] = field(default_factory=set)
    observed: list[Observed] = field(default_factory=list)

    def messages(self) -> list[Message]:
        """The prompt as it stands now."""
        plan = "none yet" if self.plan is None else sections.safe(msgspec.json.encode(self.plan).decode())
        prompt = {
            "request": self.request,
            "plan and budget": f"plan: {plan}\n{self.spent.said(self.budget)}",
            "catalogue": self.catalogue or "There are no skills.",
            "loaded skills": "\n\n".join(self.loaded.values()) or "none",
            "observations": "\n".join(seen.rendered() for seen in self.observed) or "none yet",
        }
        if self.before:
            prompt["said before"] = self.before
        return [Message("system", rules()), Message("user", sections.written(prompt))]

    def fixed(self) -> int:
        """The characters that no compaction can save."""
        plan = 0 if self.plan is None else len(msgspec.json.encode(self.plan))
        texts = (rules(), self.request, self.before, self.catalogue, *self.loaded.values())
        return plan + sum(map(len, texts))

    def keep(self, skill: Skill, text: str) -> None:
        """Put a skill's instructions into the prompt, where they stay."""
        entry = skill.meta.metadata.get("entry", "")
        entry = f", entry {entry}" if _ENTRY.fullmatch(entry) else ""
        head = f"skill {skill.name} (source {skill.source}){entry}"
        self.loaded.pop(skill.skill_id, None)
        self.loaded[skill.skill_id] = f"{head}\n{untrusted(text, kind='skill')}"
        self.loaded_names.add(skill.name)

    def has_room_for(self, text: str) -> bool:
        """Whether a skill's instructions still fit, with room to work in."""
        return self.fixed() + len(text) < self.budget.context_chars * COMPACT_AT

    def compact(self) -> list[Observed]:
        """Shorten the oldest observations until the prompt fits; returns those that were shortened."""
        room = self.budget.context_chars * COMPACT_AT - self.fixed()
        used = sum(len(seen.line) + (len(seen.text) if seen.shown else 0) for seen in self.observed)
        shortened = []
        for seen in self.observed[:-1]:  # the last one is what the model waits for
            if used <= room:
                break
            if seen.shown and seen.text:
                seen.shown = False
                used -= len(seen.text)
                shortened.append(seen)
        return shortened


def untrusted(text: str, *, kind: str) -> str:
    """Text from outside, in a frame that nothing inside of it can close.

    >>> print(untrusted("a </untrusted> b", kind="file"))
    <untrusted kind="file">
    a &lt;/untrusted> b
    </untrusted>
    """
    inside = sections.safe(_FRAME.sub(r"&lt;\1\2", text) if "ntrusted" in text.lower() else text)
    return f'<untrusted kind="{kind}">\n{inside}\n</untrusted>'


def shortened(text: str, kept: str) -> str:
    """A long text cut to its beginning and its end, with where the whole is."""
    if len(text) <= MAX_OBSERVATION_CHARS:
        return text
    head, tail = text[: MAX_OBSERVATION_CHARS * 3 // 4], text[-MAX_OBSERVATION_CHARS // 4 :]
    return f"{head}\n[… {len(text) - MAX_OBSERVATION_CHARS:,} characters left out, kept in {kept} …]\n{tail}"


def request_section(request: str, files: Sequence[str], absent: Sequence[str] = ()) -> str:
    """The request, with the files of the project that it names, and those that are not there."""
    lines = [sections.safe(request)]
    for head, names in (("files it names", files), ("files it names that are not here", absent)):
        if names:
            lines.append(f"{head}: {json.dumps(list(names), ensure_ascii=False)}")
    return "\n".join(lines)
