"""A small client of the protocol with a cap on every message and a deadline for every answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import httpx

from vademecum.errors import VademecumError
from vademecum.integrations.mcp import EXTENSION
from vademecum.version import VERSION

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
ANSWER_SECONDS = 20.0
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
_META = "io.modelcontextprotocol/"
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER")
_CLIENT = {"name": "vademecum", "version": VERSION}
_ABLE: dict[str, Any] = {"extensions": {EXTENSION: {}}}


class SourceFailed(VademecumError):
    """A server cannot be reached, does not answer, or answers with something else."""

    code = "source"


class Transport(Protocol):
    """Carries messages to a server and back."""

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
        """Send a message and yield what comes back until the caller has its answer."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class ServerConnection:
    """One conversation with a server that has skills."""

    def __init__(self, transport: Transport, *, seconds: float = ANSWER_SECONDS) -> None:
        self._transport = transport
        self._seconds = seconds
        self._number = 0
        self._meta: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            declared = self._begin()
        except BaseException:
            self._transport.close()
            raise
        if EXTENSION not in (declared.get("capabilities", {}).get("extensions") or {}):
            self._transport.close()
            raise SourceFailed("The server does not declare the extension for skills.")
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def _begin(self) -> dict[str, Any]:
        """Shake hands, or send the version with every request if the server knows no handshake."""
        said = {"protocolVersion": HANDSHAKE, "capabilities": _ABLE, "clientInfo": _CLIENT}
        try:
            found = self.request("initialize", said)
        except _AnswerIsError:
            self._meta = {
                f"{_META}protocolVersion": MODERN,
                f"{_META}clientInfo": _CLIENT,
                f"{_META}clientCapabilities": _ABLE,
            }
            return self.request("server/discover", {})
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for _ in self._transport.exchange(message, time.monotonic() + self._seconds):
            break
        return found

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a request."""
        self._number += 1
        sent = dict(params) | ({"_meta": self._meta} if self._meta else {})
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": sent}
        deadline = time.monotonic() + self._seconds
        for answer in self._transport.exchange(message, deadline):
            if answer.get("id") == self._number and "method" not in answer:
                if isinstance(result := answer.get("result"), dict):
                    return result
                error = answer.get("error")
                said = error.get("message") if isinstance(error, dict) else None
                raise _AnswerIsError(f"The server answered {method} with an error: {str(said)[:200]!r}.")
            if time.monotonic() > deadline:
                break
        raise SourceFailed(f"The server did not answer {method} within {self._seconds:.0f} seconds.")


class _AnswerIsError(SourceFailed):
    """The server answered with an error."""


class ProcessTransport:
    """A server that is started as a process and speaks on its standard streams."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        kept = {name: env[name] for name in _PASSED_ON if name in env}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, as a list of words
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=kept,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SourceFailed(f"{argv[0]!r} cannot be started ({error}).") from error
        self._buffer = bytearray()

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
        """Write one line, and yield the lines that come back."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise SourceFailed("The server ended.") from error
        while "id" in message:
            yield _decoded(self._line(deadline))

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        scanned = 0
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (end := self._buffer.find(b"\n", scanned)) < 0:
                scanned = len(self._buffer)
                if scanned > MAX_MESSAGE_BYTES:
                    raise SourceFailed(f"The server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes.")
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SourceFailed("The server did not answer in time.")
                piece = os.read(descriptor, 1024 * 1024)
                if not piece:
                    raise SourceFailed("The server ended before it answered.")
                self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def close(self) -> None:
        """End the process with everything that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


class HttpTransport:
    """A server that is reached over HTTP; each message is a request."""

    def __init__(self, url: str, *, token: str = "") -> None:
        self._url = url
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=ANSWER_SECONDS, trust_env=False)
        self._session: dict[str, str] = {}

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
        """Post one message, and yield the messages of the answer."""
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(f"{_META}protocolVersion")
        headers = {"Mcp-Method": message["method"]} if version else {}
        headers |= {"MCP-Protocol-Version": version} if version else {}
        if message["method"] == "resources/read" and version:
            headers["Mcp-Name"] = str(params.get("uri"))
        try:
            with self._client.stream(
                "POST", self._url, json=message, headers={**self._session, **headers}
            ) as answer:
                body = self._read(answer, deadline)
        except httpx.HTTPError as error:
            raise SourceFailed(f"{self._url} cannot be reached ({error}).") from error
        if session := answer.headers.get("mcp-session-id"):
            self._session = {"Mcp-Session-Id": session, "MCP-Protocol-Version": HANDSHAKE}
        if answer.status_code >= 400 and not body.lstrip().startswith(b"{"):
            raise SourceFailed(f"{self._url} answered with status {answer.status_code}.")
        if "text/event-stream" in answer.headers.get("content-type", ""):
            for line in body.splitlines():
                if line.startswith(b"data:") and line[5:].strip():
                    yield _decoded(line[5:])
        elif body.strip():
            yield _decoded(body)

    def _read(self, answer: httpx.Response, deadline: float) -> bytes:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > MAX_MESSAGE_BYTES:
                raise SourceFailed(f"The server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes.")
            if time.monotonic() > deadline:
                raise SourceFailed("The server did not answer in time.")
        return bytes(body)

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(httpx.HTTPError):
            if self._session:
                self._client.delete(self._url, headers=self._session)
        self._client.close()


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SourceFailed("The server sent something that is not JSON.") from error
    if not isinstance(found, dict):
        raise SourceFailed("The server sent something that is not a message.")
    return found
