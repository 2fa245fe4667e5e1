"""Messages → Reply: who decides. Each adapter is imported when it is first asked for.

>>> import vademecum as vm
>>> vm.models.offline().name
'offline'
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vademecum.models.base import Model
    from vademecum.models.recorded_model import Mode
    from vademecum.models.scripted_model import Scripted, Turn

__all__ = ["anthropic", "offline", "openai", "recorded", "scripted"]


def offline() -> Model:
    """Return the default model: rules, no network, no key.

    >>> offline().name
    'offline'
    """
    from vademecum.models.offline_model import Offline  # noqa: PLC0415 - each when it is asked for

    return Offline()


def scripted(turns: Sequence[Turn], *, piece: int = 0) -> Scripted:
    """Return a model that says what it is told, whole or in pieces of a size.

    >>> from vademecum.models.base import Message
    >>> model = scripted(["first", "second"])
    >>> [model.reply([Message("user", "Well?")], schema={}).text for _ in range(3)]
    ['first', 'second', 'second']
    """
    from vademecum.models.scripted_model import Scripted  # noqa: PLC0415

    return Scripted(turns, piece=piece)


def openai(name: str, **params: Any) -> Model:
    """Return a model behind the OpenAI protocol; ``base_url`` names another server, ``timeout`` its patience.

    Needs the extra ``openai``, and ``OPENAI_API_KEY`` in the environment or kept by ``vade secrets``.

    >>> import os
    >>> os.environ["OPENAI_API_KEY"] = "for a server of one's own, anything"
    >>> openai("qwen3", base_url="http://localhost:11434/v1").name
    'openai:qwen3'
    """
    from vademecum.models.choose import choose_model  # noqa: PLC0415

    return choose_model(f"openai:{name}", params)


def anthropic(name: str, **params: Any) -> Model:
    """Return one of Anthropic's models.

    Needs the extra ``anthropic``, and ``ANTHROPIC_API_KEY`` in the environment or kept by ``vade secrets``.

    >>> import os
    >>> os.environ["ANTHROPIC_API_KEY"] = "..."
    >>> anthropic("claude-sonnet-4-5", max_tokens=2000).name
    'anthropic:claude-sonnet-4-5'
    """
    from vademecum.models.choose import choose_model  # noqa: PLC0415

    return choose_model(f"anthropic:{name}", params)


def recorded(tape: Path | str, inner: Model | None = None, *, mode: Mode = "replay") -> Model:
    """Return a model whose replies are kept in a file, and come from it from then on.

    >>> from vademecum.models.base import Message
    >>> asked = [Message("user", "Well?")]
    >>> recorded("tape.jsonl", scripted(["first", "second"])).reply(asked, schema={}).text
    'first'
    >>> recorded("tape.jsonl").reply(asked, schema={}).text  # without a model: from the file
    'first'
    """
    from vademecum.models.recorded_model import Recorded  # noqa: PLC0415

    return Recorded(Path(tape), inner, mode=mode)
