"""Messages → Reply: who decides. Each adapter is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vademecum.models.base import Model
    from vademecum.models.by_script import Scripted, Turn
    from vademecum.models.on_tape import Mode


def offline() -> Model:
    """The default: rules, no network, no key.

    >>> offline().name
    'offline'
    """
    from vademecum.models.by_rules import Offline  # noqa: PLC0415 - each when it is asked for

    return Offline()


def scripted(turns: Sequence[Turn], *, piece: int = 0) -> Scripted:
    """A model that says what it is told, whole or in pieces of a size."""
    from vademecum.models.by_script import Scripted  # noqa: PLC0415

    return Scripted(turns, piece=piece)


def openai(name: str, **params: Any) -> Model:
    """A model behind the OpenAI protocol; ``base_url`` names another server, ``timeout`` its patience."""
    from vademecum.models.choose import choose_model  # noqa: PLC0415

    return choose_model(f"openai:{name}", params)


def anthropic(name: str, **params: Any) -> Model:
    """One of Anthropic's models."""
    from vademecum.models.choose import choose_model  # noqa: PLC0415

    return choose_model(f"anthropic:{name}", params)


def recorded(tape: Path | str, inner: Model | None = None, *, mode: Mode = "replay") -> Model:
    """A model whose replies are kept in a file, and come from it from then on."""
    from vademecum.models.on_tape import Recorded  # noqa: PLC0415

    return Recorded(Path(tape), inner, mode=mode)
