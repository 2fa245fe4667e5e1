"""Serve one client on the standard streams, or any number over HTTP."""

from __future__ import annotations

import hmac
import os
import signal
import socket
from collections.abc import Callable

import anyio
import mcp_types as types
import uvicorn
from anyio.abc import ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from vademecum.errors import ConfigError
from vademecum.integrations.mcp.server import SkillServer
from vademecum.registry.mcp_messages import is_loopback

PATH = "/mcp"
MAX_BODY_BYTES = 16 * 1024 * 1024
MIN_TOKEN_CHARS = 16
_BACKLOG = 128


async def serve_streams(server: SkillServer, *, ended: Callable[[int], None]) -> None:
    """Serve one client until it closes our standard input; call ``ended`` on a signal to stop.

    A thread of the SDK waits for the next line and cannot be woken, so ``ended`` must end the process.
    """

    async def stop() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                ended(number)

    valid, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
    async with stdio_server() as (read, write), anyio.create_task_group() as group:
        group.start_soon(stop)
        group.start_soon(server.watch)
        group.start_soon(_sift, read, write, valid)
        await server.run(messages, write, server.create_initialization_options())
        group.cancel_scope.cancel()


async def _sift(
    read: ReadStream[SessionMessage | Exception],
    write: WriteStream[SessionMessage],
    valid: ObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass on valid messages; reply to anything else with an error of JSON-RPC."""
    async with valid:
        async for item in read:
            if not isinstance(item, Exception):
                await valid.send(item)
                continue
            code, what = types.PARSE_ERROR, "The line is not JSON: send one JSON-RPC 2.0 message a line."
            if isinstance(item, ValidationError) and item.errors()[0]["type"] != "json_invalid":
                code = types.INVALID_REQUEST
                what = "The line is not a JSON-RPC 2.0 message: send one object a line."
            error = types.ErrorData(code=code, message=what)
            await write.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))


async def serve_http(
    server: SkillServer, *, host: str, port: int, token: str, ready: Callable[[str], None]
) -> None:
    """Serve until interrupted; call ``ready`` with the address once clients can connect."""
    if not is_loopback(host) and not token:
        raise ConfigError(
            f"{host} can be reached from elsewhere: set VADE_MCP_TOKEN to a secret that clients send, "
            "or serve on 127.0.0.1."
        )
    if token and len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(f"VADE_MCP_TOKEN is too short: use {MIN_TOKEN_CHARS} characters or more.")
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    hosts = _hosts(host, name, port)
    origins = [f"http://{each}" for each in hosts]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(  # against DNS rebinding
            enable_dns_rebinding_protection=bool(hosts), allowed_hosts=hosts, allowed_origins=origins
        ),
    )
    guarded = _guarded(app, token, origins)
    config = uvicorn.Config(guarded, log_level="warning", timeout_graceful_shutdown=3, lifespan="on")
    async with anyio.create_task_group() as group:
        group.start_soon(server.watch)
        ready(f"http://{name}:{port}{PATH}")
        await uvicorn.Server(config).serve(sockets=[listening])
        group.cancel_scope.cancel()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # "::" includes all of IPv4
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except socket.gaierror as error:
        raise ConfigError(f"{host!r} is not known here ({error.strerror}): use another --host.") from error
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ConfigError(f"{host}:{port} cannot be served ({why}): choose another --port.") from error


def _hosts(host: str, name: str, port: int) -> list[str]:
    """Return the names by which clients reach this server; empty if they are unknown."""
    if is_loopback(host):
        return [f"{each}:{port}" for each in dict.fromkeys(("127.0.0.1", "localhost", "[::1]", name))]
    return [] if host in {"0.0.0.0", "::"} else [f"{name}:{port}"]  # noqa: S104 - compared, not bound


def _guarded(app: ASGIApp, token: str, origins: list[str]) -> ASGIApp:
    """Accept only clients that send the token, if there is one; refuse web pages of other origins."""
    expected = os.fsencode(token)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        scheme, _, given = headers.get("authorization", "").partition(" ")
        said = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
        refusal = None
        if not set(origins).issuperset(headers.getlist("origin")):
            refusal = PlainTextResponse("Pages of other origins may not use this server.\n", status_code=403)
        elif scope["type"] == "http" and token and not hmac.compare_digest(said, expected):
            text, how = "Send the token: Authorization: Bearer ...\n", {"WWW-Authenticate": "Bearer"}
            refusal = PlainTextResponse(text, status_code=401, headers=how)
        await (refusal or app)(scope, receive, send)

    return guarded
