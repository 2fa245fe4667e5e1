"""A model by what a person typed: ``offline``, ``openai:NAME``, ``anthropic:NAME``, ``scripted:FILE``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vademecum.errors import ConfigError, FileRefused
from vademecum.files import read_capped
from vademecum.models.base import Model
from vademecum.nearest import meant, nearest

MAX_CASE_BYTES = 16 * 1024 * 1024
KINDS = ("offline", "mock", "openai", "azure", "anthropic", "bedrock", "vertex", "scripted", "recorded")


def choose_model(wanted: str, params: Mapping[str, Any] | None = None) -> Model:
    """The model of that name.

    >>> choose_model("offline").name
    'offline'
    """
    kind, name = kind_and_name(wanted)
    given = dict(params or {})
    if kind == "mock" and (turns := given.get("turns")):
        from vademecum.models.by_script import Scripted  # noqa: PLC0415

        return Scripted(turns)
    if kind in {"offline", "mock"}:
        from vademecum.models.by_rules import Offline  # noqa: PLC0415 - each when it is asked for

        return Offline()
    if kind == "scripted":
        return _scripted(Path(name))
    if kind == "recorded":
        from vademecum.models.on_tape import Recorded  # noqa: PLC0415

        return Recorded(Path(name), mode="strict")
    return _by_sdk(kind, name, given)


def kind_and_name(wanted: str) -> tuple[str, str]:
    """What was typed, taken apart.

    >>> kind_and_name("openai:gpt-5")
    ('openai', 'gpt-5')
    """
    kind, _, name = wanted.partition(":")
    if kind not in KINDS:
        hint = meant(nearest(kind, KINDS), otherwise=f"there are {', '.join(KINDS)}.")
        raise ConfigError(f"There is no kind of model {kind!r}: {hint}")
    if not name and kind not in {"offline", "mock"}:
        raise ConfigError(f"Which model of {kind!r}? Write it as {kind}:NAME.")
    return kind, name


def _by_sdk(kind: str, name: str, params: dict[str, Any]) -> Model:
    extra = "openai" if kind in {"openai", "azure"} else "anthropic"
    try:
        if extra == "openai":
            import openai  # noqa: PLC0415

            from vademecum.models import openai_sdk as ours  # noqa: PLC0415

            make = openai.AzureOpenAI if kind == "azure" else openai.OpenAI
            return ours.connect(name, make=make, **params)
        import anthropic  # noqa: PLC0415

        from vademecum.models import anthropic_sdk as theirs  # noqa: PLC0415

        clients = {"bedrock": "AnthropicBedrock", "vertex": "AnthropicVertex"}
        return theirs.connect(name, make=getattr(anthropic, clients.get(kind, "Anthropic")), **params)
    except ImportError as error:
        advice = f"pip install 'vademecum[{extra}]'"
        raise ConfigError(f"The model {kind}:{name} needs a package that is not here: {advice}.") from error


def _scripted(file: Path) -> Model:
    from vademecum.models.by_script import Scripted  # noqa: PLC0415

    try:
        found = msgspec.json.decode(read_capped(file, cap=MAX_CASE_BYTES))
        turns = found if isinstance(found, list) else found.get("turns") or found["mock"]["turns"]
        return Scripted(turns)
    except (OSError, FileRefused, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} holds no turns for a scripted model ({error}): write a list.") from error
