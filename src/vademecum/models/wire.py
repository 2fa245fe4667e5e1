"""Shared by both SDKs: read a streamed reply, classify faults, remember what a server accepts."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from vademecum.errors import (
    ModelFailed,
    ModelOverflow,
    ModelRefused,
    ModelReplyWrong,
    ModelUnavailable,
    VademecumError,
)
from vademecum.files import read_capped, write_atomic
from vademecum.masking import Secrets

SERVER_ERROR = 500
MAX_REMEMBERED_BYTES = 1024 * 1024
MAX_BODY_CHARS = 32 * 1024 * 1024
_TOO_LONG_REPLY = (
    'data: {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, '
    '"choices": [{"finish_reason": "length"}]}'
)
REMEMBERED_SECONDS = 7 * 86_400  # servers are upgraded
TOO_LONG = re.compile(
    r"context.?(?:length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|reduce the length|exceeds? the (?:available |model'?s? )?context|输入(?:长度)?(?:过|太|超)长|上下文",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"overload|rate.?limit|too many requests|try again|temporar|unavailable|capacity|timed? ?out"
    r"|server.?error|api_error|internal error|busy|繁忙|限流",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient.?(?:quota|balance|credit)|billing|余额不足|欠费", re.IGNORECASE)

# Servers' names for the length of a model's context.
_LENGTHS = (
    *("context_length", "max_model_len", "max_context_length", "context_window", "max_input_tokens"),
    *("n_ctx", "n_ctx_train"),
)


class Habits(Struct, frozen=True):
    """The features that one server refuses for one model, and its limit for a reply."""

    without: frozenset[str] = frozenset()
    max_tokens: int = 0
    seen: float = 0.0


def _remembered(memory: Path | None) -> dict[str, Habits]:
    """Return the habits of every known server; ignore an unreadable cache."""
    with contextlib.suppress(OSError, VademecumError, msgspec.DecodeError):
        if memory is not None:
            data = read_capped(memory, cap=MAX_REMEMBERED_BYTES)
            return msgspec.json.decode(data, type=dict[str, Habits])
    return {}


def fault(
    words: str, *, server: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> ModelFailed:
    """Return the error that a server's words mean.

    >>> type(fault("prompt is too long: 9 > 8", server="s", status=400)).__name__
    'ModelOverflow'
    >>> type(fault("overloaded_error", server="s")).__name__
    'ModelUnavailable'
    """
    told = f"{server} refuses ({status}): {words}"
    if status == 413 or (status < SERVER_ERROR and status != 429 and TOO_LONG.search(words)):
        return ModelOverflow(f"{told}. The conversation is too long for the model.")
    if _NO_MONEY.search(words):
        return ModelRefused(f"{told}. Check the account.")
    if status in {408, 409, 425, 429} or status >= SERVER_ERROR or (status == 200 and _BUSY.search(words)):
        wait = None
        with contextlib.suppress(ValueError):
            wait = max(0.0, float((headers or {}).get("retry-after", "")))
        return ModelUnavailable(f"{server} cannot answer now ({status}): {words}.", wait=wait)
    return ModelRefused(f"{told}. Check key, model and address.")


def count(tokens: object) -> int:
    """Return a server's number of tokens, 0 if it is not a number."""
    return tokens if isinstance(tokens, int) else 0


def _lines(response: Any) -> Iterator[str]:
    """Yield the lines of a body, up to a cap."""
    characters, rest = 0, ""
    for piece in response.iter_text():
        characters += len(piece)
        if characters > MAX_BODY_CHARS:
            yield _TOO_LONG_REPLY
            return
        rest += piece
        if "\n" in piece:
            *lines, rest = rest.split("\n")
            yield from lines
    yield rest


class ServedModel:
    """One model of one server. The key comes from the environment or stored secrets, and is never written.

    ``caches`` is the directory that stores the habits of servers.
    """

    sdk: Any
    models = "/models"

    def __init__(
        self, name: str, model: str, client: Any, *, caches: Path | None = None, **params: Any
    ) -> None:
        self.name = name
        self._model = model
        self._client = client.with_options(max_retries=0)  # the loop itself waits, asks again and records it
        self._memory = caches and caches / "models.json"
        self._server = f"{client.base_url} {model}"
        known = _remembered(self._memory).get(self._server, Habits())
        self._habits = known if time.time() - known.seen < REMEMBERED_SECONDS else Habits()
        self._params = params
        self.streamed = False  # whether the last reply came in pieces

    @property
    def _host(self) -> str:
        """The name of the server in messages."""
        return f"The model's server ({self._client.base_url})"

    def _words(self, error: Exception | str) -> str:
        """Return an error's text on one line, shortened and without the client's key."""
        secrets = Secrets({})
        keys = (getattr(self._client, name, None) for name in ("api_key", "auth_token", "_azure_ad_token"))
        secrets.add(key for key in keys if isinstance(key, str) and key)
        words = " ".join(str(error).split())
        return secrets.mask_values(words)[:400] or type(error).__name__

    def context_length(self) -> int | None:
        """Return the model's context length in tokens, if the server's list of models has it."""
        try:
            listed = self._client.get(self.models, cast_to=object)
            rows = listed.get("data") or listed.get("models") or []
            (row,) = [each for each in rows if self._model in (each.get("id"), each.get("name"))]
        except Exception:  # noqa: BLE001 - a server that tells nothing is no fault, whatever it does instead
            return None
        told = {**meta, **row} if isinstance(meta := row.get("meta"), dict) else row
        return next((told[key] for key in _LENGTHS if count(told.get(key)) > 0), None)

    def _learn(self, **accepted: Any) -> None:
        """Remember what the server accepts; ignore a cache that cannot be written."""
        self._habits = structs.replace(self._habits, seen=time.time(), **accepted)
        if self._memory is not None:
            known = _remembered(self._memory) | {self._server: self._habits}
            with contextlib.suppress(OSError, VademecumError):
                self._memory.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self._memory, msgspec.json.encode(known))

    def _parts(self, create: Callable[..., Any], sent: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request, and yield the objects of the reply: its events, or its whole body.

        An endless reply is cut; the last object then says so in the form of both protocols.
        """
        response = create(**{**sent, **self._params}).http_response
        try:
            lines = _lines(response)
            self.streamed = "event-stream" in response.headers.get("content-type", "")
            if not self.streamed:
                body = list(lines)
                with contextlib.suppress(ValueError):
                    found = json.loads("\n".join(body))
                    if isinstance(found, dict):
                        yield self._faultless(found)
                        return
                if not any(line.startswith("data:") for line in body):
                    text = f"The answer of {self._client.base_url} is not a reply of a model"
                    raise ModelReplyWrong(f"{text}: check the address.")
                lines = iter(body)
            yield from map(self._faultless, self._events(lines))
        finally:
            response.close()

    def _events(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or not data:
                continue
            if data == "[DONE]":
                return
            try:
                found = json.loads(data)
            except ValueError as error:
                raise ModelUnavailable(f"{self._host} sent an event that is not JSON.") from error
            if isinstance(found, dict):
                yield found

    def _faultless(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return an object of a reply; raise if it is an error."""
        error = found.get("error")
        if not error and found.get("type") != "error" and found.get("object") != "error":
            return found
        error = error or found
        words = json.dumps(error, ensure_ascii=False) if isinstance(error, dict) else str(error)
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and code >= 400 else 200
        raise fault(self._words(words), server=self._host, status=status)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate the errors of both SDKs, which have the same names."""
        try:
            yield
        except VademecumError:
            raise
        except self.sdk.APIStatusError as error:
            told = {"status": error.status_code, "headers": error.response.headers}
            raise fault(self._words(error), server=self._host, **told) from error
        except self.sdk.APIConnectionError as error:
            raise ModelUnavailable(f"{self._host} cannot be reached ({self._words(error)}).") from error
        except TypeError as error:
            raise ModelRefused(f"The model's settings are wrong: {self._words(error)}.") from error
        except (self.sdk.APIError, ValueError, AttributeError) as error:
            raise ModelReplyWrong(f"The answer is not a reply of a model: {self._words(error)}.") from error
        except Exception as error:
            # The HTTP client below an SDK can raise its own errors.
            if not type(error).__module__.partition(".")[0].startswith(("httpx", "httpcore", "h11")):
                raise
            raise ModelUnavailable(f"{self._host} broke off ({self._words(error)}).") from error
