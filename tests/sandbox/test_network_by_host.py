"""P5: a command with a network by host reaches the hosts that were permitted, and nothing else."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.sandbox.support import Cell
from vademecum.errors import Denied
from vademecum.sandbox.available import network_by_host_problem
from vademecum.sandbox.base import PROXY_PORT, ByProxy
from vademecum.tools.hosts import Hop
from vademecum.tools.proxy import Proxy, Traffic


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[int]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield httpd.server_address[1]
    httpd.shutdown()
    httpd.server_close()
    thread.join(timeout=5)


@pytest.fixture
def proxy(cell: Cell) -> Iterator[Proxy]:
    """A proxy that permits api.test, which is this machine."""
    assert cell.name in {"bubblewrap", "landlock"}
    problem = network_by_host_problem(cell.name)
    if problem:
        pytest.skip(problem)

    def permit(permission: str, hop: Hop) -> None:
        if hop.host != "api.test":
            raise Denied(f"{hop.host} is not permitted.")

    with Proxy(permit=permit, resolve=lambda host, port: ["127.0.0.1"]) as proxy:
        yield proxy


FETCHES = """
    import sys, urllib.request
    for url in sys.argv[1:]:
        try:
            print(urllib.request.urlopen(url, timeout=30).read().decode())
        except Exception as error:
            print(type(error).__name__, error)
    """


def test_a_permitted_host_and_another(cell: Cell, proxy: Proxy, server: int) -> None:
    jail = cell.jail(network=ByProxy(proxy.serve))
    urls = (f"http://api.test:{server}/", f"http://other.test:{server}/", f"http://127.0.0.1:{server}/")
    assert cell.printed(FETCHES, *urls, jail=jail) == [
        "hello",
        "HTTPError HTTP Error 403: Forbidden",
        "HTTPError HTTP Error 403: Forbidden",
    ]
    allowed, *refused = proxy.traffic
    assert (allowed.host, allowed.port, allowed.received > 5) == ("api.test", server, True)
    assert refused == [
        Traffic("other.test", server, refused="other.test is not permitted."),
        Traffic("127.0.0.1", server, refused="127.0.0.1 is not permitted."),
    ]


def test_a_tunnel(cell: Cell, proxy: Proxy, server: int) -> None:
    code = """
        import http.client, sys
        for host in ('api.test', 'other.test'):
            connection = http.client.HTTPConnection('127.0.0.1', 3128)
            connection.set_tunnel(host, int(sys.argv[1]))
            try:
                connection.request('GET', '/')
                print(connection.getresponse().read().decode())
            except OSError as error:
                print(error)
        """
    lines = cell.printed(code, str(server), jail=cell.jail(network=ByProxy(proxy.serve)))
    assert lines == ["hello", "Tunnel connection failed: 403 Forbidden"]


REACHES = """
    import socket, sys
    port = int(sys.argv[1])
    def attempt(what, do):
        try:
            do()
            print(what, 'reached')
        except OSError:
            print(what, 'kept in')
    def connect(family, kind, protocol, address):
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(5)
        sock.connect(address)
        if kind == socket.SOCK_DGRAM:
            sock.send(b'x')
    inet, inet6, stream, datagram = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
    attempt('loopback', lambda: connect(inet, stream, 0, ('127.0.0.1', port)))
    attempt('another host on the port of the proxy', lambda: connect(inet, stream, 0, ('192.0.2.1', 3128)))
    attempt('this machine by its address', lambda: connect(inet, stream, 0, (sys.argv[2], port)))
    attempt('IPv6', lambda: connect(inet6, stream, 0, ('::1', port)))
    attempt('MPTCP', lambda: connect(inet, stream, 262, ('127.0.0.1', port)))
    attempt('UDP', lambda: connect(inet, datagram, 0, ('127.0.0.1', port)))
    attempt('fast open', lambda: socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', port)))
    attempt('name', lambda: socket.getaddrinfo('api.test', 80))
    attempt('raw', lambda: socket.socket(inet, socket.SOCK_RAW, 1))
    attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW))
    attempt('netlink', lambda: socket.socket(16, socket.SOCK_RAW))
    attempt('vsock', lambda: socket.socket(40, stream))
    attempt('unix', lambda: socket.socket(socket.AF_UNIX))
    attempt('bind', lambda: socket.socket(inet, stream).bind(('127.0.0.1', 0)))
    attempt('listen', lambda: socket.socket(inet, stream).listen())
    """


def test_everything_but_the_proxy(cell: Cell, proxy: Proxy, server: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 1))
            own = way.getsockname()[0]
        except OSError:
            own = "127.0.0.1"
    jail = cell.jail(network=ByProxy(proxy.serve))
    lines = cell.printed(REACHES, str(server), own, jail=jail)
    assert len(lines) == 15
    assert [line for line in lines if not line.endswith("kept in")] == []
    assert proxy.traffic == ()


def test_namespaces_cannot_be_left(cell: Cell, proxy: Proxy) -> None:
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        print(libc.unshare(0x40000000), libc.unshare(0x10000000), libc.setns(0, 0))
        status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())
        print(status['CapEff'], status['CapPrm'], status['NoNewPrivs'], status['Seccomp'])
        print([os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in range(3, 20) if os.path.exists(f'/proc/self/fd/{n}')])
        """
    lines = cell.printed(code, jail=cell.jail(network=ByProxy(proxy.serve)))
    assert lines == ["-1 -1 -1", "0000000000000000 0000000000000000 1 2", "[]"]


def test_its_own_files_are_still_its_own(cell: Cell, proxy: Proxy) -> None:
    code = "import os; open('x', 'w').close(); print(os.stat('x').st_uid == os.getuid(), os.getuid(), os.getgid())"
    (line,) = cell.printed(code, jail=cell.jail(network=ByProxy(proxy.serve)))
    assert line == f"True {os.getuid()} {os.getgid()}"


def test_the_proxy_variables(cell: Cell, proxy: Proxy) -> None:
    code = "import os; print({os.environ[name] for name in os.environ if name.lower() in ('http_proxy', 'https_proxy')})"
    wrong = {"https_proxy": "http://evil.test:1", "HTTP_PROXY": "http://evil.test:1"}
    jail = cell.jail(network=ByProxy(proxy.serve), environment=wrong)
    assert cell.printed(code, jail=jail) == [repr({f"http://127.0.0.1:{PROXY_PORT}"})]


def test_limits_and_the_end_hold_there_too(cell: Cell, proxy: Proxy) -> None:
    jail = cell.jail(network=ByProxy(proxy.serve))
    ended = cell.python("import os\nwhile True: os.fork()", jail=jail)
    assert ended.reason in {"processes", "memory"} or ended.exit_code
    started = cell.python(
        "import time; print(1); time.sleep(1000)",
        jail=jail,
        cancelled=lambda: cell.streams.out.stat().st_size > 0,
    )
    assert started.reason == "cancelled"


def test_a_proxy_that_is_never_used_is_closed(cell: Cell, proxy: Proxy) -> None:
    assert cell.run(["/bin/true"], jail=cell.jail(network=ByProxy(proxy.serve))).exit_code == 0
    proxy.close()
    assert proxy.traffic == ()


def test_certificates_can_be_read(cell: Cell, proxy: Proxy) -> None:
    code = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    lines = cell.printed(code, jail=cell.jail(network=ByProxy(proxy.serve)))
    assert lines == [str(len(ssl.create_default_context().get_ca_certs()))]
