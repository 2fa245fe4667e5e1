"""The network of a script, host by host: an HTTP proxy that asks before it connects anywhere.

It takes plain requests (``GET http://host/…``), one for each connection, and ``CONNECT host:port``. For each,
the caller's ``permit`` is asked, then the name is looked up, the address checked, and only that address
connected to. It cannot see which name is used inside TLS.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
_WAKE_SECONDS = 0.2
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_AUTHORITY = re.compile(rb"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_PLAIN_URL = re.compile(rb"http://((?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)(/.*)?(\?.*)?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
# Headers for one connection only, and those that this proxy decides.
_OWN = frozenset(
    b"host connection proxy-connection proxy-authorization keep-alive te trailer upgrade expect".split()
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes sent to and received from one host and port; ``refused`` is the reason of a refusal."""

    host: str
    port: int
    sent: int = 0
    received: int = 0
    refused: str = ""


class Proxy:
    """A proxy for one command; use it as a context manager.

    Give ``Jail(network=ByProxy(proxy.serve))`` to ``run_command``. ``permit`` raises a ``VademecumError`` to
    refuse a host, and is asked once more, for ``private-network``, if the host has an address that is not
    public. It is called from several threads, but only from one at a time. ``traffic`` lists every host that
    was asked for, also while the command runs.

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
        if self._keep(listener):
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

    def _keep(self, sock: socket.socket) -> bool:
        """Remember a socket, so that ``close`` can end it; if that was already called, close it now."""
        with self._lock:
            if not self._closed:
                self._open.add(sock)
                return True
        sock.close()
        return False

    def _drop(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.discard(sock)
        sock.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            while True:
                while not self._slots.acquire(timeout=_WAKE_SECONDS):
                    if self._closed:
                        return
                client, _ = listener.accept()
                if not self._keep(client):
                    return
                self._start(self._handle, client)
        except OSError:
            return  # it was closed
        finally:
            self._drop(listener)

    def _handle(self, client: socket.socket) -> None:
        try:
            client.settimeout(IDLE_SECONDS)
            self._answer(client)
        except OSError:
            return
        except _Refusal as refusal:
            with contextlib.suppress(OSError):
                client.sendall(refusal.response)
        finally:
            self._drop(client)
            self._slots.release()

    def _answer(self, client: socket.socket) -> None:
        reader = _Reader(client)
        request = _request_in(reader.head())
        with self._connected(request.hop) as server:
            if request.head is None:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._send(server, reader.rest(), request.hop)
                self._relay(client, server, request.hop, both_ways=True)
                return
            if request.expects:
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._send(server, request.head, request.hop)
            for piece in request.body(reader):
                self._send(server, piece, request.hop)
            # Nothing more is taken from the client: a second request would be one that nobody asked about.
            self._relay(client, server, request.hop, both_ways=False)

    @contextlib.contextmanager
    def _connected(self, hop: Hop) -> Iterator[socket.socket]:
        address = self._permitted(hop)
        try:
            server = socket.create_connection((address, hop.port), CONNECT_SECONDS)
        except OSError as error:
            raise _Refusal(502, f"{hop.resource} did not answer ({error}).") from error
        if not self._keep(server):
            raise _Refusal(502, "The proxy was closed.")
        try:
            server.settimeout(IDLE_SECONDS)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield server
        finally:
            self._drop(server)

    def _permitted(self, hop: Hop) -> str:
        self._count(hop)
        try:
            with self._asking:
                return permitted_address(hop, permit=self._permit, resolve=self._resolve)
        except ToolRefused as error:  # the name cannot be found
            self._count(hop, refused=str(error))
            raise _Refusal(502, str(error)) from error
        except VademecumError as error:
            self._count(hop, refused=str(error))
            raise _Refusal(403, str(error)) from error

    def _count(self, hop: Hop, *, sent: int = 0, received: int = 0, refused: str = "") -> None:
        with self._lock:
            key = (hop.host, hop.port)
            if key not in self._traffic and len(self._traffic) >= MAX_HOSTS:
                raise _Refusal(403, f"This script asked for more than {MAX_HOSTS:,} hosts.")
            old = self._traffic.get(key) or Traffic(*key)
            self._traffic[key] = replace(
                old,
                sent=old.sent + sent,
                received=old.received + received,
                refused=refused or old.refused,
            )

    def _send(self, server: socket.socket, data: bytes | memoryview, hop: Hop) -> None:
        if data:
            server.sendall(data)
            self._count(hop, sent=len(data))

    def _relay(self, client: socket.socket, server: socket.socket, hop: Hop, *, both_ways: bool) -> None:
        """Pass bytes on, until all ways have ended or the client is gone; one way is from the server only."""
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
                if source is server:
                    self._count(hop, received=size)
                else:
                    self._count(hop, sent=size)


class _Refusal(Exception):
    """A request that is answered by the proxy itself."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        words = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
        body = f"{reason}\n".encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {status} {words}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        )
        self.response = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Reader:
    """Bytes of a client, in the units of HTTP, each with a cap."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._data = b""

    def head(self) -> bytes:
        """Return the lines up to the empty one."""
        return self._up_to(b"\r\n\r\n", MAX_HEAD_BYTES)

    def line(self) -> bytes:
        """Return one line with its end."""
        return self._up_to(b"\r\n", MAX_CHUNK_LINE_BYTES)

    def exactly(self, size: int) -> Iterator[bytes]:
        """Return so many bytes, in pieces."""
        while size:
            piece, self._data = self._data[:size], self._data[size:]
            if not piece:
                self._more(_PIECE)
                continue
            size -= len(piece)
            yield piece

    def rest(self) -> bytes:
        """Return what was read beyond the last unit."""
        rest, self._data = self._data, b""
        return rest

    def _up_to(self, end: bytes, cap: int) -> bytes:
        while (found := self._data.find(end, 0, cap)) < 0:
            if len(self._data) >= cap:
                raise _Refusal(400, f"A line or a head is longer than {cap:,} bytes.")
            self._more(4096)
        taken, self._data = self._data[: found + len(end)], self._data[found + len(end) :]
        return taken

    def _more(self, size: int) -> None:
        piece = self._client.recv(size)
        if not piece:
            raise ConnectionResetError
        self._data += piece


@dataclass(frozen=True, slots=True)
class _Request:
    """Where a request goes and what is sent there; a ``CONNECT`` has no head."""

    hop: Hop
    head: bytes | None = None
    length: int = 0
    chunked: bool = False
    expects: bool = False

    def body(self, reader: _Reader) -> Iterator[bytes]:
        """Return the pieces of the body; it ends where its length or its chunks say."""
        if not self.chunked:
            yield from reader.exactly(self.length)
            return
        size = -1
        while size != 0:
            found = _CHUNK_SIZE.fullmatch(reader.line())
            if found is None:
                raise _Refusal(400, "A chunk of the request is malformed.")
            size = int(found[1], 16)
            begin = b"%x\r\n" % size
            if size:
                yield begin
                yield from reader.exactly(size)
                begin = b""
            if reader.line() != b"\r\n":  # trailers are refused as well
                raise _Refusal(400, "A chunk of the request is malformed.")
            yield begin + b"\r\n"


def _request_in(head: bytes) -> _Request:
    """Return the request in a head, or refuse what could be read in two ways."""
    first, *lines = head[:-4].split(b"\r\n")
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise _Refusal(400, "The first line is not an HTTP request.")
    method, target, version = found.groups()
    matched = [_HEADER.fullmatch(line) for line in lines]
    headers = [(each[1].lower(), each[2].strip(b" \t")) for each in matched if each is not None]
    if len(headers) < len(lines):
        raise _Refusal(400, "A header line is malformed.")
    if method == b"CONNECT":
        if not _AUTHORITY.fullmatch(target):
            raise _Refusal(400, "CONNECT needs a host and a port.")
        return _Request(_hop(b"https://" + target))
    url = _PLAIN_URL.fullmatch(target)
    if url is None:
        raise _Refusal(400, "A request to a proxy begins with http:// and a host, or is CONNECT.")
    hop = _hop(b"http://" + url[1])
    path = (url[2] or b"/") + (url[3] or b"")
    length, chunked = _framing(headers)
    dropped = _OWN | {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    framing = {b"content-length", b"transfer-encoding"}
    kept = [b"%s: %s" % each for each in headers if each[0] not in dropped - framing]
    own = [b"host: " + hop.resource.encode(), b"connection: close"]
    lines = [b" ".join((method, path, version)), *own, *kept]
    expects = any(name == b"expect" for name, _ in headers)
    return _Request(hop, b"\r\n".join([*lines, b"", b""]), length, chunked, expects)


def _framing(headers: list[tuple[bytes, bytes]]) -> tuple[int, bool]:
    """Return the length of the body, and whether it comes in chunks; never both."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or codings not in ([], [b"chunked"]):
        raise _Refusal(400, "The length of the body is given in more than one way.")
    if lengths and not (lengths[0].isdigit() and len(lengths[0]) < 16):
        raise _Refusal(400, "The length of the body is not a number.")
    return int(lengths[0]) if lengths else 0, bool(codings)


def _hop(url: bytes) -> Hop:
    try:
        return hop_to(url.decode("ascii"))
    except (ToolRefused, UnicodeError) as error:
        raise _Refusal(400, str(error)) from error
