"""Give a script the network host by host: an HTTP proxy that asks before it connects.

It accepts plain requests (``GET http://host/…``), one per connection, and ``CONNECT host:port``. For each, it
asks the caller's ``permit``, looks up the name, checks the address, and connects only to that address. It
cannot see which name is used inside TLS.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Self

from vademecum.errors import ToolRefused, VademecumError
from vademecum.tools.hosts import Hop, Permit, Resolve, hop_to, permitted_address, resolved

MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 64
MAX_HOSTS = 1000
MAX_CHUNK_LINE_BYTES = 1024
IDLE_SECONDS = 120.0
CONNECT_SECONDS = 20.0
CLOSE_SECONDS = 1.0

_PIECE = 256 * 1024
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_AUTHORITY = re.compile(rb"((?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})")
_PLAIN_URL = re.compile(rb"http://((?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)(/.*)?(\?.*)?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
# Headers for one connection only, and those that this proxy sets.
_OWN = frozenset(
    b"host connection proxy-connection proxy-authorization keep-alive te trailer upgrade expect".split()
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes sent to and received from one host and port; ``refused`` is why it was refused, if it was."""

    host: str
    port: int
    sent: int = 0
    received: int = 0
    refused: str = ""


class Proxy:
    """A proxy for one command; use it as a context manager.

    Pass ``Jail(network=ByProxy(proxy.serve))`` to ``run_command``. ``permit`` raises a ``VademecumError`` to
    refuse a host. It is called again, for ``private-network``, if the host has an address that is not public.
    Several threads call it, one at a time. ``traffic`` lists every requested host, also while the command
    runs.

    >>> with Proxy(permit=lambda permission, hop: None) as proxy:
    ...     proxy.traffic
    ()
    """

    def __init__(self, *, permit: Permit, resolve: Resolve = resolved) -> None:
        self._permit = permit
        self._resolve = resolve
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._traffic: dict[tuple[str, int], Traffic] = {}
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Return the traffic of each host, in the order of their first requests."""
        with self._lock:
            return tuple(self._traffic.values())

    def serve(self, listener: socket.socket) -> None:
        """Accept connections on a listening socket, in a thread, until ``close``."""
        listener.settimeout(None)
        self._start(self._accept, listener)

    def close(self) -> None:
        """End all connections; nothing is forwarded afterwards."""
        with self._lock:
            self._closed = True
            held, threads = list(self._open), list(self._threads)
        for sock in held:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + CLOSE_SECONDS  # a thread may be looking a name up
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, run: Callable[[socket.socket], None], sock: socket.socket) -> None:
        thread = threading.Thread(target=run, args=(sock,), name="vademecum-proxy", daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    @contextlib.contextmanager
    def _kept(self, sock: socket.socket) -> Iterator[None]:
        """Let ``close`` end a socket while it is in use, then close it."""
        with sock:
            with self._lock:
                if self._closed:
                    raise ConnectionAbortedError
                self._open.add(sock)
            try:
                yield
            finally:
                with self._lock:
                    self._open.discard(sock)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError), self._kept(listener):  # until it is closed
            while True:
                self._slots.acquire()
                client, _ = listener.accept()
                self._start(self._handle, client)

    def _handle(self, client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), self._kept(client):
                client.settimeout(IDLE_SECONDS)
                try:
                    self._answer(client)
                except _Refusal as refusal:
                    client.sendall(refusal.response)
        finally:
            self._slots.release()

    def _answer(self, client: socket.socket) -> None:
        with client.makefile("rb") as reader:
            request = _request_in(_head(reader))
            with self._connected(request.hop) as server:
                if request.head is None:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    client.settimeout(0)  # do not wait for data after the head
                    self._send(server, reader.peek(), request.hop)
                    client.settimeout(IDLE_SECONDS)
                    self._relay(client, server, request.hop, both_ways=True)
                    return
                if request.expects:
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._send(server, request.head, request.hop)
                for piece in request.body(reader):
                    self._send(server, piece, request.hop)
                # Read nothing more from the client: a second request has no permission.
                self._relay(client, server, request.hop, both_ways=False)

    @contextlib.contextmanager
    def _connected(self, hop: Hop) -> Iterator[socket.socket]:
        self._count(hop)
        try:
            with self._asking:
                address = permitted_address(hop, permit=self._permit, resolve=self._resolve)
        except VademecumError as error:
            self._count(hop, refused=str(error))
            missing = isinstance(error, ToolRefused)  # the name cannot be found
            raise _Refusal(502 if missing else 403, str(error)) from error
        try:
            server = socket.create_connection((address, hop.port), CONNECT_SECONDS)
        except OSError as error:
            raise _Refusal(502, f"{hop.resource} did not answer ({error}).") from error
        with self._kept(server):
            server.settimeout(IDLE_SECONDS)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield server

    def _count(self, hop: Hop, *, sent: int = 0, received: int = 0, refused: str = "") -> None:
        with self._lock:
            key = (hop.host, hop.port)
            if key not in self._traffic and len(self._traffic) >= MAX_HOSTS:
                raise _Refusal(403, f"This script asked for more than {MAX_HOSTS:,} hosts.")
            old = self._traffic.get(key) or Traffic(*key)
            self._traffic[key] = Traffic(
                *key, old.sent + sent, old.received + received, refused or old.refused
            )

    def _send(self, server: socket.socket, data: bytes | memoryview, hop: Hop) -> None:
        if data:
            server.sendall(data)
            self._count(hop, sent=len(data))

    def _relay(self, client: socket.socket, server: socket.socket, hop: Hop, *, both_ways: bool) -> None:
        """Forward bytes until both ends close or the client is gone; if not ``both_ways``, to it only."""
        poll, buffer = select.poll(), memoryview(bytearray(_PIECE))
        poll.register(server, select.POLLIN)
        poll.register(client, select.POLLIN if both_ways else select.POLLRDHUP)
        left = {server.fileno(), client.fileno()} if both_ways else {server.fileno()}
        while left:
            ready = [number for number, _ in poll.poll(IDLE_SECONDS * 1000)]
            if not set(ready) & left:
                return
            for number in ready:
                source, target = (server, client) if number == server.fileno() else (client, server)
                size = source.recv_into(buffer) if number in left else 0
                if size == 0:
                    poll.unregister(number)
                    left.discard(number)
                    target.shutdown(socket.SHUT_WR)
                    continue
                target.sendall(buffer[:size])
                received = size if source is server else 0
                self._count(hop, sent=size - received, received=received)


class _Refusal(Exception):
    """A request that the proxy answers itself."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        words = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
        body = f"{reason}\n".encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {status} {words}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        )
        self.response = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _head(reader: BufferedReader) -> list[bytes]:
    """Return the lines up to the empty one, without their ends."""
    lines, left = [], MAX_HEAD_BYTES
    while line := _line(reader, left):
        left -= len(line) + 2
        lines.append(line)
    return lines or [b""]


def _line(reader: BufferedReader, cap: int) -> bytes:
    """Return one line without its end, which must be CR LF."""
    line = reader.readline(cap)
    if not line:
        raise ConnectionResetError
    if not line.endswith(b"\r\n"):
        raise _Refusal(400, f"A line does not end as in HTTP, or is longer than {cap:,} bytes.")
    return line[:-2]


def _exactly(reader: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield exactly ``size`` bytes, in pieces."""
    while size:
        piece = reader.read1(min(size, _PIECE))
        if not piece:
            raise ConnectionResetError
        size -= len(piece)
        yield piece


@dataclass(frozen=True, slots=True)
class _Request:
    """The destination of a request and its head; a ``CONNECT`` has no head."""

    hop: Hop
    head: bytes | None = None
    length: int = 0
    chunked: bool = False
    expects: bool = False

    def body(self, reader: BufferedReader) -> Iterator[bytes]:
        """Yield the pieces of the body; it ends where its length or its chunks say."""
        if not self.chunked:
            yield from _exactly(reader, self.length)
            return
        size = -1
        while size != 0:
            found = _CHUNK_SIZE.fullmatch(_line(reader, MAX_CHUNK_LINE_BYTES))
            if found is None:
                raise _Refusal(400, "A chunk of the request is malformed.")
            size = int(found[1], 16)
            begin = b"%x\r\n" % size
            if size:
                yield begin
                yield from _exactly(reader, size)
                begin = b""
            if _line(reader, MAX_CHUNK_LINE_BYTES):  # trailers are refused as well
                raise _Refusal(400, "A chunk of the request is malformed.")
            yield begin + b"\r\n"


def _request_in(head: list[bytes]) -> _Request:
    """Return the request in a head, or refuse an ambiguous one."""
    first, *lines = head
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise _Refusal(400, "The first line is not an HTTP request.")
    method, target, version = found.groups()
    matched = [_HEADER.fullmatch(line) for line in lines]
    headers = [(each[1].lower(), each[2].strip(b" \t")) for each in matched if each is not None]
    if len(headers) < len(lines):
        raise _Refusal(400, "A header line is malformed.")
    url = _AUTHORITY.fullmatch(target) if method == b"CONNECT" else _PLAIN_URL.fullmatch(target)
    if url is None:
        text = "A request to a proxy begins with http:// and a host, or is CONNECT with a host and a port."
        raise _Refusal(400, text)
    scheme = "https" if method == b"CONNECT" else "http"
    try:
        hop = hop_to(f"{scheme}://{url[1].decode('ascii')}")
    except (ToolRefused, UnicodeError) as error:
        raise _Refusal(400, str(error)) from error
    if method == b"CONNECT":
        return _Request(hop)
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or codings not in ([], [b"chunked"]):
        raise _Refusal(400, "The length of the body is given in more than one way.")
    if lengths and not (lengths[0].isdigit() and len(lengths[0]) < 16):
        raise _Refusal(400, "The length of the body is not a number.")
    named = (value.split(b",") for name, value in headers if name == b"connection")
    dropped = _OWN.union(word.strip().lower() for words in named for word in words)
    dropped -= {b"content-length", b"transfer-encoding"}
    lines = [
        b" ".join((method, (url[2] or b"/") + (url[3] or b""), version)),
        *(b"host: " + hop.resource.encode(), b"connection: close"),
        *(b"%s: %s" % each for each in headers if each[0] not in dropped),
    ]
    expects = any(name == b"expect" for name, _ in headers)
    sent = b"\r\n".join([*lines, b"", b""])
    return _Request(hop, sent, int(lengths[0]) if lengths else 0, bool(codings), expects)
