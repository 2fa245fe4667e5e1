"""What both SDKs have in common: how long a server asks to wait, and errors of the line itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds in ``Retry-After``, if it has any.

    >>> asked_wait({"retry-after": "1.5"}), asked_wait({}), asked_wait({"retry-after": "soon"})
    (1.5, None, None)
    """
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("retry-after", "")))
    return None


def is_of_the_line(error: Exception) -> bool:
    """Whether an error comes from the HTTP client below an SDK, which may bring its own.

    >>> import httpx
    >>> is_of_the_line(httpx.ReadError("cut")), is_of_the_line(ValueError())
    (True, False)
    """
    return type(error).__module__.partition(".")[0].startswith(("httpx", "httpcore", "h11"))


def count(tokens: object) -> int:
    """A number of tokens as a server gave it; 0 where it is none."""
    return tokens if isinstance(tokens, int) else 0


def said(error: Exception) -> str:
    """An error's words on one line, not too many of them."""
    return " ".join(str(error).split())[:300] or type(error).__name__
