"""A small MCP client, with a cap on every message and a deadline for every answer."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx
import msgspec

from vademecum.errors import VademecumError
from vademecum.version import VERSION

EXTENSION = "io.modelcontextprotocol/skills"
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
ANSWER_SECONDS = 20.0
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
_META = "io.modelcontextprotocol/"
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER")
_CLIENT = {"name": "vademecum", "version": VERSION}
_ABLE: dict[str, Any] = {"extensions": {EXTENSION: {}}}

Found = TypeVar("Found")


class SourceFailed(VademecumError):
    """A server cannot be reached, does not answer, or sends an invalid answer."""

    code = "source"


class _AnswerIsError(SourceFailed):
    """The server answered with an error."""


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Capabilities(msgspec.Struct):
    extensions: dict[str, Any] | None = None


class _Declared(msgspec.Struct):
    capabilities: _Capabilities


class ServerConnection:
    """One connection to a server that has skills. A subclass transports the messages."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = 0
        self._meta: dict[str, Any] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as unless_it_works:
            unless_it_works.callback(self.close)
            if EXTENSION not in (self._begin().capabilities.extensions or {}):
                raise SourceFailed("The server does not declare the extension for skills.")
            unless_it_works.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[_Message]:
        """Send a message and yield incoming messages until the caller has its answer."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError

    def _begin(self) -> _Declared:
        """Do the handshake, or send the version with every request if the server has no handshake."""
        said = {"protocolVersion": HANDSHAKE, "capabilities": _ABLE, "clientInfo": _CLIENT}
        try:
            found = self.request("initialize", said, _Declared)
        except _AnswerIsError:
            self._meta = {
                f"{_META}protocolVersion": MODERN,
                f"{_META}clientInfo": _CLIENT,
                f"{_META}clientCapabilities": _ABLE,
            }
            return self.request("server/discover", {}, _Declared)
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        next(self.exchange(message, time.monotonic() + self._seconds), None)
        return found

    def request(self, method: str, params: Mapping[str, Any], kind: type[Found]) -> Found:
        """Return the result of a request, converted to ``kind``."""
        self._number += 1
        sent = dict(params) | ({"_meta": self._meta} if self._meta else {})
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": sent}
        deadline = time.monotonic() + self._seconds
        for answer in self.exchange(message, deadline):
            if answer.id == self._number and answer.method is None:
                if answer.result is None:
                    said = str((answer.error or {}).get("message", ""))[:200]
                    raise _AnswerIsError(f"The server answered {method} with an error: {said!r}.")
                try:
                    return msgspec.convert(answer.result, kind)
                except msgspec.ValidationError as error:
                    raise SourceFailed(f"The answer to {method} cannot be used ({error}).") from error
            if time.monotonic() > deadline:
                break
        raise SourceFailed(f"The server did not answer {method} within {self._seconds:.0f} seconds.")


class ServerProcess(ServerConnection):
    """A server that runs as a child process and uses its standard streams."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, cwd: str, seconds: float) -> None:
        super().__init__(seconds)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, as a list of words
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: env[name] for name in _PASSED_ON if name in env},
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SourceFailed(f"{argv[0]!r} cannot be started in {cwd} ({error}).") from error
        self._buffer = bytearray()

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[_Message]:
        """Write one message, and yield the messages that come back."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise SourceFailed("The server ended before it answered.") from error
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
                _check_length(scanned)
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
        """End the process and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError), self._process:  # closes its streams and waits for it
            pass


class WebServer(ServerConnection):
    """A server reached over HTTP; each message is a request."""

    def __init__(self, url: str, *, token: str, seconds: float) -> None:
        super().__init__(seconds)
        self._url = url
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=seconds, trust_env=False)
        self._session: dict[str, str] = {}

    def exchange(self, message: dict[str, Any], deadline: float) -> Iterator[_Message]:
        """Post one message, and yield the messages of the answer."""
        headers = dict(self._session)
        if self._meta and "id" in message:
            headers |= {"Mcp-Method": message["method"], "MCP-Protocol-Version": MODERN}
            if message["method"] == "resources/read":
                headers["Mcp-Name"] = str(message["params"]["uri"])
        try:
            with self._client.stream("POST", self._url, json=message, headers=headers) as answer:
                body = bytearray()
                for piece in answer.iter_bytes():
                    body += piece
                    _check_length(len(body))
                    if time.monotonic() > deadline:
                        raise SourceFailed("The server did not answer in time.")
        except httpx.TimeoutException as error:
            raise SourceFailed("The server did not answer in time.") from error
        except httpx.HTTPError as error:
            raise SourceFailed(f"{self._url} cannot be reached ({error}).") from error
        if session := answer.headers.get("mcp-session-id"):
            self._session = {"Mcp-Session-Id": session, "MCP-Protocol-Version": HANDSHAKE}
        if answer.status_code >= 300 and not body.lstrip().startswith(b"{"):
            raise SourceFailed(f"{self._url} answered with status {answer.status_code}.")
        if "text/event-stream" in answer.headers.get("content-type", ""):
            lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
        else:
            lines = [body]
        yield from (_decoded(line) for line in lines if line.strip())

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(httpx.HTTPError):
            if self._session:
                self._client.delete(self._url, headers=self._session)
        self._client.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_length(length: int) -> None:
    if length > MAX_MESSAGE_BYTES:
        raise SourceFailed(f"The server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes.")


def _decoded(line: bytes | bytearray) -> _Message:
    try:
        return msgspec.json.decode(line, type=_Message)
    except (ValueError, RecursionError) as error:
        raise SourceFailed(f"The server sent something that is not a message ({error}).") from error
