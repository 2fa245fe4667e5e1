"""G1: ``network_request``: allowed hosts, public addresses, redirects one by one, caps."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from vademecum.errors import Denied, ToolRefused
from vademecum.tools import network
from vademecum.tools.calls import NetworkRequest, Observation
from vademecum.tools.hosts import Hop, hop_to, is_private
from vademecum.tools.network import network_request


class Handler(BaseHTTPRequestHandler):
    """Answers by path, and notes what it was asked."""

    asked: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append(
            (self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        match self.path.split("?")[0]:
            case "/redirect":
                self.reply(302, b"", location=self.path.partition("?")[2])
            case "/loop":
                self.reply(302, b"", location="/loop")
            case "/big":
                self.reply(200, b"x" * 11_000_000)
            case "/bomb":
                self.reply(200, gzip.compress(b"x" * 50_000_000), **{"content-encoding": "gzip"})
            case "/binary":
                self.reply(200, b"\0\1\2")
            case _:
                self.reply(200, b"hello \xe2\x80\x8bthere")

    do_GET = do_POST = do_HEAD = answer  # noqa: N815

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return

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
        wanted = f"{permission} {hop.resource}"
        self.asked.append(wanted)
        if not any(wanted.startswith(text) for text in self._allowed):
            raise Denied(f"deny {wanted}.")


EVERYTHING = ("network", "private-network")


def send(tmp_path: Path, url: str, *allowed: str, **more: object) -> Observation:
    permit = Permitting(*(allowed or EVERYTHING))
    call = NetworkRequest(url, **more)  # type: ignore[arg-type]
    return network_request(
        call, permit=permit, keep=tmp_path / "answer", resolve=lambda host, port: ["127.0.0.1"]
    )


def test_an_answer(tmp_path: Path, server: int) -> None:
    seen = send(tmp_path, f"http://api.test:{server}/x?y=1", headers={"X-A": "1"}, method="POST", body="ask")
    assert seen.text.splitlines()[0] == f"HTTP 200 from http://api.test:{server}/x?y=1"
    assert seen.text.endswith("hello there")  # without the hidden character
    assert (tmp_path / "answer").read_bytes() == b"hello \xe2\x80\x8bthere"
    ((method, path, headers, body),) = Handler.asked
    assert (method, path, headers["host"], headers["x-a"], body) == (
        "POST",
        "/x?y=1",
        f"api.test:{server}",
        "1",
        b"ask",
    )


def test_private_addresses_are_asked_for_apart(tmp_path: Path, server: int) -> None:
    with pytest.raises(Denied, match="private-network api"):
        send(tmp_path, f"http://api.test:{server}/", "network")
    assert Handler.asked == []


def test_a_host_that_is_not_allowed_is_not_even_looked_up(tmp_path: Path) -> None:
    looked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked.append(host)
        return ["127.0.0.1"]

    with pytest.raises(Denied):
        network_request(
            NetworkRequest("http://evil.test/"),
            permit=Permitting("network good"),
            keep=tmp_path / "a",
            resolve=resolve,
        )
    assert looked == []


def test_each_redirect_is_asked_for(tmp_path: Path, server: int) -> None:
    url = f"http://a.test:{server}/redirect?http://b.test:{server}/end"
    seen = send(tmp_path, url, headers={"Authorization": "Bearer x", "X-Keep": "1"})
    assert "from http://b.test" in seen.text
    assert [("authorization" in headers, headers["x-keep"]) for _, _, headers, _ in Handler.asked] == [
        (True, "1"),
        (False, "1"),
    ]
    with pytest.raises(Denied, match="deny network b"):
        send(tmp_path, url, "network a.test", "private-network")
    for target in ("file:///etc/passwd", "ftp://a.test/", "http://user:pass@a.test/"):
        with pytest.raises(ToolRefused):
            send(tmp_path, f"http://a.test:{server}/redirect?{target}")
    with pytest.raises(ToolRefused, match="redirects more than 5 times"):
        send(tmp_path, f"http://a.test:{server}/loop")


def test_a_post_is_not_repeated_elsewhere(tmp_path: Path, server: int) -> None:
    send(tmp_path, f"http://a.test:{server}/redirect?/end", method="POST", body="secret")
    assert [(method, body) for method, _, _, body in Handler.asked] == [("POST", b"secret"), ("GET", b"")]


def test_answers_are_capped(tmp_path: Path, server: int) -> None:
    for path in ("/big", "/bomb"):
        seen = send(tmp_path, f"http://a.test:{server}{path}")
        assert (seen.facts["cut"], seen.facts["bytes"]) == (True, network.MAX_ANSWER_BYTES)
        assert len(seen.text) < 21_000
    assert "[3 bytes that are not text]" in send(tmp_path, f"http://a.test:{server}/binary").text


def test_a_slow_answer_has_a_deadline(tmp_path: Path, server: int) -> None:
    times = iter([0.0, *[1000.0] * 10])
    with pytest.raises(ToolRefused, match="took longer than 30 seconds"):
        network_request(
            NetworkRequest(f"http://a.test:{server}/"),
            permit=Permitting(*EVERYTHING),
            keep=tmp_path / "a",
            resolve=lambda host, port: ["127.0.0.1"],
            clock=lambda: next(times),
        )


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ToolRefused, match="did not answer"):
        send(tmp_path, "http://a.test:1/")


@pytest.mark.parametrize(
    "url", ["", "x", "file:///etc/passwd", "http://", "http://a:99999/", "http://a.test/\n", "http://u:p@h/"]
)
def test_wrong_addresses(tmp_path: Path, url: str) -> None:
    if url.endswith("\n"):
        assert hop_to(url).host == "a.test"
        return
    with pytest.raises(ToolRefused):
        send(tmp_path, url)


@pytest.mark.parametrize("name", ["Host", "transfer-encoding", "Content-Length"])
def test_headers_that_are_ours(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolRefused, match="cannot be set"):
        send(tmp_path, "http://a.test/", headers={name: "x"})


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("0.0.0.0", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("192.168.0.1", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("2002:7f00:1::", True),
        ("224.0.0.1", True),
        ("93.184.216.34", False),
        ("2606:2800:220:1::1", False),
    ],
)
def test_which_addresses_are_private(address: str, private: bool) -> None:
    assert is_private(address) is private
