"""A server on loopback that speaks the wire formats of both SDKs, well or badly, as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
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

    def reply(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def stream(self, lines: list[str], *, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
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
    def asked(self) -> list[tuple[str, dict[str, str], Any]]:
        found: list[tuple[str, dict[str, str], Any]] = self._httpd.asked
        return found


@contextmanager
def serving(*answers: Answering) -> Iterator[Server]:
    httpd: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.asked, httpd.answers, httpd.over = [], answers, threading.Event()
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


def openai_reply(text: str, *, finish: str = "stop", cut: bool = False, refusal: str = "") -> Answering:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(
            {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        )

    lines = [chunk({"role": "assistant", "content": ""})]
    lines += [chunk({"content": text[n : n + 7]}) for n in range(0, len(text), 7)]
    if refusal:
        lines.append(chunk({"refusal": refusal}))
    if cut:
        return lambda handler: handler.stream(lines[:-1], cut=True)
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    last = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": usage,
    }
    lines += [chunk({}, finish), _event(last), _event("[DONE]")]
    return lambda handler: handler.stream(lines)


def anthropic_reply(text: str, *, stop: str = "tool_use", cut: bool = False) -> Answering:
    usage = {"input_tokens": 11, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    block = {"type": "tool_use", "id": "t", "name": "turn", "input": {}}
    lines = [
        _event({"type": "message_start", "message": message}, "message_start"),
        _event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start"),
    ]
    for n in range(0, len(text), 7):
        delta = {"type": "input_json_delta", "partial_json": text[n : n + 7]}
        lines.append(
            _event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        )
    if cut:
        return lambda handler: handler.stream(lines, cut=True)
    ended = {"stop_reason": stop, "stop_sequence": None}
    lines += [
        _event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
        _event({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}, "message_delta"),
        _event({"type": "message_stop"}, "message_stop"),
    ]
    return lambda handler: handler.stream(lines)


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
