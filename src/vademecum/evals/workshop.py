"""Provide what units are run with: skills, rules and models, each made once in a process."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from vademecum.errors import ModelFailed, ModelRefused, ModelReplyWrong, ModelUnavailable
from vademecum.evals.cases import Mock
from vademecum.evals.plan import Configuration
from vademecum.masking import Secrets
from vademecum.models.base import Message, Model, OnText, Reply, needs_ranking, wire_of
from vademecum.models.choose import choose_model
from vademecum.models.recorded_model import Recorded
from vademecum.models.scripted_model import Scripted, Turn
from vademecum.policy.engine import Policy, allowing, default_rules
from vademecum.registry.index import SkillIndex
from vademecum.session.view import View


@dataclass(frozen=True, slots=True)
class Workshop:
    """The skills, the directory of the results, the project that is copied, and the environment."""

    index: SkillIndex
    out: Path
    project: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Stock:
    """Make what the units of one process share: skills, rules and models, each once."""

    def __init__(self, workshop: Workshop, models: Mapping[str, Model] | None = None) -> None:
        self.workshop = workshop
        self._made: dict[str, Model] = dict(models or {})
        self._shared: dict[Configuration, tuple[SkillIndex, Policy, View]] = {}
        self._secrets = Secrets(workshop.env)

    def parts(self, configuration: Configuration) -> tuple[SkillIndex, Policy, View]:
        """Return the skills of a configuration, the default rules, and the view of both.

        Configuration near the results is ignored: the rules of a project come with its copy.
        """
        if configuration not in self._shared:
            index = restricted(self.workshop.index, configuration.skills)
            policy = Policy(default_rules(), run=allowing(configuration.allow))
            self._shared[configuration] = (index, policy, View(index, policy))
        return self._shared[configuration]

    def model(self, name: str, tape: str = "") -> Model:
        """Return a model by its name; with ``tape``, one whose replies are recorded there."""
        key = f"{name}\0{tape}" if tape else name
        if key not in self._made:
            made = self._made.get(name) or choose_model(name)
            self._made[key] = Recorded(Path(tape), made, mode="replay") if tape else made
        return self._made[key]

    def masked(self, text: str) -> str:
        """Return a text without secrets, as the record has it."""
        return self._secrets.mask(text)


def restricted(index: SkillIndex, names: tuple[str, ...] | None) -> SkillIndex:
    """Return the index with only these skills, and a hash of its own."""
    if names is None:
        return index
    wanted = set(names)
    fewer = index.restricted([skill for skill in index.skills if skill.name in wanted])
    digest = hashlib.sha256("\0".join([index.hash, *sorted(wanted)]).encode("utf-8", "replace")).hexdigest()
    report = structs.replace(fewer.report, hash=f"sha256:{digest}")
    return dataclasses.replace(fewer, report=report, options=dataclasses.replace(fewer.options, cache=None))


_ERRORS = {"unavailable": ModelUnavailable, "refused": ModelRefused, "wrong": ModelReplyWrong}


class Crash(Exception):
    """An unexpected failure of a mock model."""


class MockModel:
    """Reply what the case says. ``{"seconds": 2, "reply": …}`` waits first, ``{"error": …}`` fails.

    >>> model = MockModel(Mock(turns=[{"error": "refused", "message": "I will not."}]))
    >>> model.reply([], schema={})
    Traceback (most recent call last):
    ...
    vademecum.errors.ModelRefused: I will not.
    """

    name = "mock"

    def __init__(self, mock: Mock) -> None:
        self._turns = mock.turns
        self._scripted = Scripted([_said(turn) for turn in mock.turns], piece=mock.piece)

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Return the next turn; after the last one, the last one again."""
        turn = self._turns[min(len(self._scripted.seen), len(self._turns) - 1)]
        if isinstance(turn, Mapping) and isinstance(turn.get("seconds"), int | float):
            time.sleep(float(turn["seconds"]))
        if isinstance(turn, Mapping) and turn.get("error") == "crash":
            raise Crash(str(turn.get("message", "the mock crashed")))
        return self._scripted.reply(messages, schema=schema, on_text=on_text)


def _said(turn: Any) -> Turn:
    if not isinstance(turn, Mapping):
        return str(turn)
    if "error" in turn:
        kind = _ERRORS.get(str(turn["error"]), ModelReplyWrong)
        failure: ModelFailed = kind(str(turn.get("message", f"the mock is {turn['error']}")))
        return failure
    if "reply" in turn:
        return _said(turn["reply"])
    return {key: value for key, value in turn.items() if key != "seconds"}


class Steady:
    """Ask a recorded model with prompts that contain no path and no duration of this very run.

    Otherwise a recorded reply would not be found again.
    """

    def __init__(self, inner: Model, replaced: Callable[[str], str]) -> None:
        self.name, self.wire, self.needs_ranking = inner.name, wire_of(inner), needs_ranking(inner)
        self._inner = inner
        self._replaced = replaced

    def reply(
        self, messages: Sequence[Message], *, schema: Mapping[str, Any], on_text: OnText | None = None
    ) -> Reply:
        """Return the reply to the prompt as it always is."""
        steady = [structs.replace(message, content=self._replaced(message.content)) for message in messages]
        return self._inner.reply(steady, schema=schema, on_text=on_text)
