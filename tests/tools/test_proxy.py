"""P5: the network of a script, host by host: what the proxy lets through, and what it refuses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from vademecum.errors import Denied
from vademecum.tools.hosts import Hop, resolved
from vademecum.tools.proxy import MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HOSTS, Proxy, Traffic


class Handler(BaseHTTPRequestHandler):
    """Notes what it was asked, and keeps the connection open for more."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str, str, bytes]]] = []

    def answer(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while (line := self.rfile.readline()) != b"0\r\n":
                if not line:
                    return  # the proxy has ended it
                body += self.rfile.read(int(line, 16))
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append((self.command, self.path, self.headers.get("host", ""), body))
        self.send_response(200)
        self.send_header("content-length", "5")
        self.send_header("connection", "keep-alive")
        self.end_headers()
        self.wfile.write(b"hello")

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[int]:
    Handler.asked = []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield httpd.server_address[1]
    httpd.shutdown()
    httpd.server_close()
    thread.join(timeout=5)


class Permitting:
    """Allows some, and notes what it was asked."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.asked: list[str] = []

    def __call__(self, permission: str, hop: Hop) -> None:
        wanted = f"{permission} {hop.host}:{hop.port}"
        self.asked.append(wanted)
        if wanted not in self._allowed and permission not in self._allowed:
            raise Denied(f"{wanted} is denied.")


EVERYTHING = ("network", "private-network")


@contextmanager
def proxied(
    *allowed: str, resolve: Callable[[str, int], list[str]] = lambda host, port: ["127.0.0.1"]
) -> Iterator[tuple[Proxy, Permitting, int]]:
    permit = Permitting(*(allowed or EVERYTHING))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with Proxy(permit=permit, resolve=resolve) as proxy:
        proxy.serve(listener)
        yield proxy, permit, port


def say(port: int, words: bytes, *, then: bytes = b"") -> bytes:
    """Return everything that comes back until the end; what is said ``then`` follows the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(words)
        answer = b""
        try:
            while piece := client.recv(65536):
                answer += piece
                if then:
                    client.sendall(then)
                    then = b""
                if b"hello" in answer:
                    client.shutdown(socket.SHUT_WR)
        except ConnectionResetError:
            pass
        return answer


def get(host: str, path: str = "/x", more: bytes = b"") -> bytes:
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n".encode() + more + b"\r\n"


def test_a_plain_request(server: int) -> None:
    with proxied() as (proxy, permit, port):
        answer = say(port, get(f"api.test:{server}", "/a?b=1", b"X-A: 1\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"hello")
    assert Handler.asked == [("GET", "/a?b=1", f"api.test:{server}", b"")]
    assert permit.asked == [f"network api.test:{server}", f"private-network api.test:{server}"]
    (traffic,) = proxy.traffic
    assert (traffic.host, traffic.port, traffic.refused) == ("api.test", server, "")
    assert (traffic.sent > 40, traffic.received) == (True, len(answer))


def test_a_tunnel(server: int) -> None:
    inside = b"GET /in HTTP/1.1\r\nHost: inside\r\n\r\n"
    with proxied() as (proxy, _, port):
        answer = say(
            port,
            f"CONNECT api.test:{server} HTTP/1.1\r\nHost: other.test\r\n\r\n".encode(),
            then=inside,
        )
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert Handler.asked == [("GET", "/in", "inside", b"")]
    (traffic,) = proxy.traffic
    assert (traffic.host, traffic.port, traffic.sent) == ("api.test", server, len(inside))
    assert traffic.received > 0


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 4\r\n", b"body"),
        (b"Transfer-Encoding: chunked\r\n", b"2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"),
    ],
)
def test_bodies(server: int, head: bytes, body: bytes) -> None:
    expect = b"Expect: 100-continue\r\n"
    request = f"POST http://api.test:{server}/p HTTP/1.1\r\n".encode() + head + expect + b"\r\n"
    with proxied() as (_, _, port):
        assert say(port, request, then=body).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert Handler.asked == [("POST", "/p", f"api.test:{server}", b"body")]


def test_a_host_that_is_not_allowed_is_not_looked_up(server: int) -> None:
    looked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked.append(host)
        return ["127.0.0.1"]

    with proxied(f"network api.test:{server}", "private-network", resolve=resolve) as (proxy, _, port):
        assert b"403 Forbidden" in say(port, get(f"secret-in-a-name.test:{server}"))
        assert b"403 Forbidden" in say(port, b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
        assert b"403 Forbidden" in say(port, f"CONNECT api.test:{server + 1} HTTP/1.1\r\n\r\n".encode())
    assert (looked, Handler.asked) == ([], [])
    assert proxy.traffic[1] == Traffic("evil.test", 443, refused="network evil.test:443 is denied.")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1%eth0",
        "64:ff9b::7f00:1",
        "0.0.0.0",
    ],
)
def test_private_addresses(server: int, address: str) -> None:
    with proxied("network", resolve=lambda host, port: ["93.184.216.34", address]) as (_, permit, port):
        assert b"403 Forbidden" in say(port, get(f"api.test:{server}"))
        assert b"403 Forbidden" in say(port, f"CONNECT api.test:{server} HTTP/1.1\r\n\r\n".encode())
    assert permit.asked[1::2] == [f"private-network api.test:{server}"] * 2
    assert Handler.asked == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"]
)
def test_this_machine_in_every_spelling(server: int, host: str) -> None:
    with proxied("network", resolve=resolved) as (_, _, port):
        answer = say(port, get(f"{host}:{server}"))
        assert answer.startswith((b"HTTP/1.1 403 Forbidden", b"HTTP/1.1 502 Bad Gateway"))
    assert Handler.asked == []


def test_a_name_that_resolves_differently_the_second_time(server: int) -> None:
    """Each connection goes to the address that was checked for it, which is looked up once."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    class Once(Permitting):
        """Allows the private address that it is asked about first."""

        def __call__(self, permission: str, hop: Hop) -> None:
            super().__call__(permission, hop)
            if self.asked.count(f"private-network {hop.host}:{hop.port}") > 1:
                raise Denied("not again")

    listener = socket.create_server(("127.0.0.1", 0))
    with Proxy(permit=Once(*EVERYTHING), resolve=resolve) as proxy:
        proxy.serve(listener)
        port = listener.getsockname()[1]
        assert b"200 OK" in say(port, get(f"api.test:{server}"))
        assert len(answers) == 1
        assert b"403 Forbidden" in say(port, get(f"api.test:{server}"))
    assert len(Handler.asked) == 1


def test_the_host_is_that_of_the_request_line(server: int) -> None:
    request = (
        f"GET http://api.test:{server}/x HTTP/1.1\r\nHost: internal.test\r\nhost: two.test\r\n\r\n".encode()
    )
    with proxied() as (_, _, port):
        assert b"200 OK" in say(port, request)
    assert Handler.asked == [("GET", "/x", f"api.test:{server}", b"")]


@pytest.mark.parametrize(
    "body", [b"", b"Content-Length: 2\r\n\r\nab", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
)
def test_one_request_on_a_connection(server: int, body: bytes) -> None:
    second = b"GET /admin HTTP/1.1\r\nHost: internal.test\r\n\r\n"
    first = f"GET http://api.test:{server}/x HTTP/1.1\r\n".encode() + (body or b"\r\n")
    with proxied() as (_, _, port):
        assert say(port, first + second).count(b"200 OK") == 1
        assert say(port, first, then=second).count(b"200 OK") == 1
        assert say(port, first + get(f"api.test:{server}")).count(b"200 OK") == 1
    assert {path for _, path, _, _ in Handler.asked} == {"/x"}
    assert len(Handler.asked) == 3


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: x\r\n chunked\r\n",
        b"Content-Length: +1\r\n",
        b"Content-Length: 1, 1\r\n",
        b"X: a\nHost: internal.test\r\n",
        b"X: a\rHost: internal.test\r\n",
        b"X: a\0b\r\n",
        b": x\r\n",
        b"no colon\r\n",
    ],
)
def test_heads_that_could_be_read_in_two_ways(server: int, lines: bytes) -> None:
    with proxied() as (_, _, port):
        assert say(port, get(f"api.test:{server}", more=lines)).startswith(b"HTTP/1.1 400 Bad Request")
    assert Handler.asked == []


@pytest.mark.parametrize(
    "first",
    [
        b"GET /x HTTP/1.1",
        b"GET https://api.test/ HTTP/1.1",
        b"GET ftp://api.test/ HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET http://a@api.test/ HTTP/1.1",
        b"GET http://api.test\\@evil.test/ HTTP/1.1",
        b"GET http://api.test:x/ HTTP/1.1",
        b"GET http://api.test:99999/ HTTP/1.1",
        b"GET  http://api.test/ HTTP/1.1",
        b"GET http://api.test/ HTTP/2.0",
        b"GET http://api.test/",
        b"CONNECT api.test HTTP/1.1",
        b"CONNECT api.test:443/x HTTP/1.1",
        b"CONNECT http://api.test:443 HTTP/1.1",
        b"CONNECT a@api.test:443 HTTP/1.1",
        b"\x16\x03\x01\x02\x00",
        b"",
    ],
)
def test_first_lines_that_are_refused(first: bytes) -> None:
    with proxied() as (_, permit, port):
        assert say(port, first + b"\r\n\r\n").startswith(b"HTTP/1.1 400 Bad Request")
    assert permit.asked == []


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"-1\r\n", b"2\r\nabc\r\n", b"0\r\nTrailer: x\r\n\r\n", b"f" * 2000]
)
def test_chunks_that_are_refused(server: int, body: bytes) -> None:
    request = f"POST http://api.test:{server}/p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with proxied() as (_, _, port):
        assert b"400 Bad Request" in say(port, request + body)
    assert Handler.asked == []


def test_headers_for_the_proxy_are_not_passed_on() -> None:
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, _ = listener.accept()
        heard.append(client.recv(65536))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
        client.close()

    thread = threading.Thread(target=answer)
    thread.start()
    host = f"api.test:{listener.getsockname()[1]}"
    more = b"Connection: X-Secret, close\r\nX-Secret: 1\r\nProxy-Authorization: x\r\nUpgrade: h2c\r\nX-Kept: 1\r\n"
    with proxied() as (_, _, port):
        assert b"hello" in say(port, get(host, more=more))
    thread.join()
    listener.close()
    assert heard == [f"GET /x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nx-kept: 1\r\n\r\n".encode()]


def test_a_head_has_a_cap() -> None:
    words = get("api.test", more=b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n")
    with proxied() as (_, permit, port):
        say(port, words)
        assert permit.asked == []


def test_the_number_of_connections_has_a_cap(server: int) -> None:
    with proxied() as (_, _, port):
        idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(MAX_CONNECTIONS)]
        late = socket.create_connection(("127.0.0.1", port), timeout=0.5)
        late.sendall(get(f"api.test:{server}"))
        with pytest.raises(TimeoutError):
            late.recv(100)
        idle.pop().close()
        late.settimeout(30)
        assert b"200 OK" in late.recv(100)
        late.close()
        for each in idle:
            each.close()


def test_the_number_of_hosts_has_a_cap() -> None:
    with proxied("nothing") as (proxy, permit, port):
        for n in range(MAX_HOSTS + 2):
            assert b"403 Forbidden" in say(port, f"CONNECT h{n}.test:1 HTTP/1.1\r\n\r\n".encode())
        assert len(proxy.traffic) == len(permit.asked) == MAX_HOSTS


def test_a_host_that_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    with proxied() as (_, _, port):
        assert b"502 Bad Gateway" in say(port, get(f"api.test:{closed}"))
        assert b"502 Bad Gateway" in say(port, f"CONNECT api.test:{closed} HTTP/1.1\r\n\r\n".encode())


def test_closing_ends_everything(server: int) -> None:
    with proxied() as (proxy, _, port):
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
        client.sendall(f"CONNECT api.test:{server} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        proxy.close()
        assert client.recv(100) == b""
        client.close()
        with pytest.raises(OSError, match=r"refused|reset"):
            say(port, get("api.test"))
    assert [thread for thread in threading.enumerate() if thread.name == "vademecum-proxy"] == []
