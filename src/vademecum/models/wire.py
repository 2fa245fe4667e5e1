"""What both SDKs have in common: how long a server asks to wait, and errors of the line itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vademecum.errors import ModelRefused, ModelReplyWrong, ModelUnavailable

TOO_MANY_REQUESTS, SERVER_ERROR = 429, 500


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


@contextmanager
def translated(sdk: Any, client: Any) -> Iterator[None]:
    """Say in our words what one of the two SDKs raises; they have the same names for it."""
    server = f"The model's server ({client.base_url})"
    try:
        yield
    except sdk.APIResponseValidationError as error:
        raise ModelReplyWrong(f"The server's answer is no reply of a model: {said(error)}.") from error
    except sdk.APIStatusError as error:
        code = error.status_code
        if code == TOO_MANY_REQUESTS or code >= SERVER_ERROR:
            raise ModelUnavailable(
                f"{server} cannot answer now ({code}): {said(error)}.",
                wait=asked_wait(error.response.headers),
            ) from error
        raise ModelRefused(
            f"{server} refuses ({code}): {said(error)}. Check key, model and address."
        ) from error
    except sdk.APIConnectionError as error:
        raise ModelUnavailable(f"{server} cannot be reached ({said(error)}).") from error
    except (sdk.APIError, ValueError, TypeError, AttributeError) as error:
        raise ModelReplyWrong(f"The server's answer is no reply of a model: {said(error)}.") from error
    except Exception as error:
        if not is_of_the_line(error):
            raise
        raise ModelUnavailable(f"{server} broke off ({said(error)}).") from error
