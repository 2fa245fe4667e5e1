"""A server on loopback that speaks the wire formats of both SDKs, well or badly, as it is told."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What one request gets: a function that writes the answer.
Answering = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server: Any = self.server
        server.asked.append((self.path, dict(self.headers), body))
        answers = server.answers
        answers[min(len(server.asked), len(answers)) - 1](self)
        self.close_connection = True

    def do_GET(self) -> None:
        server: Any = self.server
        self.reply(200 if server.models else 404, json.dumps({"data": server.models}).encode())

    def reply(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def stream(self, lines: list[str], *, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked may have heard enough
            for line in lines:
                data = line.encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            if not cut:
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


class Server:
    """What was asked, and where to ask."""

    def __init__(self, httpd: Any) -> None:
        self._httpd = httpd
        self.url = f"http://127.0.0.1:{httpd.server_address[1]}"

    @property
    def models(self) -> list[dict[str, Any]]:
        """What the list of models has."""
        found: list[dict[str, Any]] = self._httpd.models
        return found

    @property
    def asked(self) -> list[tuple[str, dict[str, str], Any]]:
        found: list[tuple[str, dict[str, str], Any]] = self._httpd.asked
        return found


@contextmanager
def serving(*answers: Answering) -> Iterator[Server]:
    httpd: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.asked, httpd.answers, httpd.over, httpd.models = [], answers, threading.Event(), []
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Server(httpd)
    finally:
        httpd.over.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join(timeout=5)


def _event(data: Any, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    )


def openai_reply(
    text: str = "",
    *,
    calls: Sequence[tuple[str, str]] = (),
    finish: str | None = "stop",
    cut: bool = False,
    refusal: str = "",
    more: Sequence[str] = (),
    usage: bool = True,
    done: bool = True,
    size: int = 7,
) -> Answering:
    lines = [_chunk({"role": "assistant", "content": ""})]
    lines += [_chunk({"content": text[n : n + size]}) for n in range(0, len(text), size)]
    for index, (name, arguments) in enumerate(calls):
        head = {
            "index": index,
            "id": f"id{index}-{name}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        lines.append(_chunk({"tool_calls": [head]}))
        for n in range(0, len(arguments), size):
            part = {"index": index, "function": {"arguments": arguments[n : n + size]}}
            lines.append(_chunk({"tool_calls": [part]}))
    if refusal:
        lines.append(_chunk({"refusal": refusal}))
    lines += more
    if cut:
        return lambda handler: handler.stream(lines[:-1], cut=True)
    lines.append(_chunk({}, finish))
    if usage:
        counted = {"prompt_tokens": 11, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
        lines.append(_event({"id": "c", "choices": [], "usage": counted}))
    if done:
        lines.append(_event("[DONE]"))
    return lambda handler: handler.stream(lines)


def openai_whole(message: dict[str, Any], finish: str | None = "stop") -> Answering:
    """The answer of a server that ignores ``stream``."""
    body = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5},
    }
    return lambda handler: handler.reply(200, json.dumps(body).encode())


def anthropic_reply(
    text: str = "",
    *,
    calls: Sequence[tuple[str, str]] = (),
    stop: str | None = None,
    cut: bool = False,
    thinking: str = "",
    error: str = "",
    size: int = 7,
) -> Answering:
    usage = {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    lines = [
        _event({"type": "message_start", "message": message}, "message_start"),
        _event({"type": "ping"}, "ping"),
    ]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "sig"},
        ]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if text:
        pieces = [{"type": "text_delta", "text": text[n : n + size]} for n in range(0, len(text), size)]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for number, (name, arguments) in enumerate(calls):
        parts = [
            {"type": "input_json_delta", "partial_json": arguments[n : n + 7]}
            for n in range(0, len(arguments), 7)
        ]
        blocks.append(({"type": "tool_use", "id": f"id{number}-{name}", "name": name, "input": {}}, parts))
    for index, (block, deltas) in enumerate(blocks):
        start = {"type": "content_block_start", "index": index, "content_block": block}
        lines.append(_event(start, "content_block_start"))
        for delta in deltas:
            found = {"type": "content_block_delta", "index": index, "delta": delta}
            lines.append(_event(found, "content_block_delta"))
        lines.append(_event({"type": "content_block_stop", "index": index}, "content_block_stop"))
    if error:
        lines.append(_event({"type": "error", "error": {"type": error, "message": error}}, "error"))
        return lambda handler: handler.stream(lines)
    if cut:
        return lambda handler: handler.stream(lines, cut=True)
    ended = {"stop_reason": stop or ("tool_use" if calls else "end_turn"), "stop_sequence": None}
    lines += [
        _event({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}, "message_delta"),
        _event({"type": "message_stop"}, "message_stop"),
    ]
    return lambda handler: handler.stream(lines)


def anthropic_whole(content: list[dict[str, Any]], stop: str = "end_turn") -> Answering:
    """The answer of a server that ignores ``stream``."""
    usage = {"input_tokens": 11, "output_tokens": 5}
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "usage": usage,
    }
    return lambda handler: handler.reply(200, json.dumps(body).encode())


def status(code: int, message: str = "no", **headers: str) -> Answering:
    body = json.dumps({"type": "error", "error": {"type": "x", "message": message}}).encode()
    return lambda handler: handler.reply(code, body, **headers)


def garbage() -> Answering:
    return lambda handler: handler.reply(200, b"<html>hello</html>", content_type="text/html")


def silence() -> Answering:
    """No answer for as long as the server is there."""

    def wait(handler: Handler) -> None:
        server: Any = handler.server
        server.over.wait(60)

    return wait
