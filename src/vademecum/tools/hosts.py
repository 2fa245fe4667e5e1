"""Turn a web address into a permitted host and a checked IP address.

The name is resolved here, every address is checked, and the connection goes to a checked address. A name that
resolves differently a moment later gains nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from vademecum.errors import ToolRefused

# Ways to write an IPv4 address inside an IPv6 address.
_TRANSLATED = tuple(
    ipaddress.IPv6Network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96", "2001::/32")
)
_PORTS = {"http": 80, "https": 443}
_NUMERIC = re.compile(r"[0-9a-fx.]*[0-9][0-9a-fx.]*")
_HOST = re.compile(r"[A-Za-z0-9_.:-]+|\*")


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of a chain of redirects: its destination, and the resource for the rules."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def resource(self) -> str:
        """The host as rules name it, with its port if that is not the default."""
        return _spelled(self.host, None if self.port == _PORTS[self.scheme] else self.port)


Resolve = Callable[[str, int], list[str]]
# Raises if a hop is not allowed. Called for the host, and again if its address is private.
Permit = Callable[[Literal["network", "private-network"], Hop], None]


def hop_to(url: str) -> Hop:
    """Return the destination of an address, or raise ``ToolRefused``.

    >>> hop_to("https://Example.org/a").resource, hop_to("http://localhost:8000").resource
    ('example.org', 'localhost:8000')
    """
    parts, host, port = _split(url, "address", url)
    if parts.scheme not in _PORTS:
        raise ToolRefused(f"The address {url[:200]!r} is not http or https: name one that is.", code="url")
    if not _HOST.fullmatch(host):
        raise ToolRefused(f"The address {url[:200]!r} has no host, or a wrong one: correct it.", code="url")
    if parts.username or parts.password:
        text = "An address must not contain a user name or a password: send them in a header."
        raise ToolRefused(text, code="url")
    return Hop(url, parts.scheme, host, port or _PORTS[parts.scheme])


def host_resource(written: str) -> str:
    """Return the resource for the rules of a host in a call: ``host`` or ``host:port``.

    >>> host_resource("API.example.org"), host_resource("LOCALHOST:8000"), host_resource("[::1]")
    ('api.example.org', 'localhost:8000', '[::1]')
    """
    return _spelled(*host_and_port(written))


def host_and_port(written: str) -> tuple[str, int | None]:
    """Return the host and, if the text has one, the port."""
    parts, host, port = _split(f"//{written}", "host", written)
    if not _HOST.fullmatch(host) or parts.path or parts.query or parts.fragment or "@" in written:
        raise ToolRefused(f"{written[:200]!r} is not a host: write host or host:port.", code="url")
    return host, port


def _split(url: str, kind: str, written: str) -> tuple[SplitResult, str, int | None]:
    """Return the parts of an address, its normalized host, and its port."""
    try:
        parts = urlsplit(url)
        return parts, one_spelling((parts.hostname or "").encode("idna").decode()), parts.port
    except ValueError as error:
        raise ToolRefused(
            f"The {kind} {written[:200]!r} is wrong ({error}): correct it.", code="url"
        ) from error


def _spelled(host: str, port: int | None) -> str:
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def one_spelling(host: str) -> str:
    """Return a host as rules name it, in lowercase and with IP addresses in their usual form.

    >>> [one_spelling(host) for host in ("Example.ORG.", "0x7f.1", "2130706433", "::FFFF:7f00:1")]
    ['example.org', '127.0.0.1', '127.0.0.1', '127.0.0.1']
    """
    plain = host.lower().rstrip(".")
    try:
        if _NUMERIC.fullmatch(plain):
            return socket.inet_ntoa(socket.inet_aton(plain))
        address = ipaddress.ip_address(plain)
    except (OSError, ValueError):
        return plain
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def resolved(host: str, port: int) -> list[str]:
    """Return all addresses of a host."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ToolRefused(f"The host {host!r} cannot be found ({error}).", code="unreachable") from error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def is_private(address: str) -> bool:
    """Return whether an address is on this machine, in this network, or otherwise not public.

    >>> [is_private(a) for a in ("127.0.0.1", "::ffff:10.0.0.1", "169.254.169.254", "8.8.8.8")]
    [True, True, True, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _TRANSLATED):
            return True
        found = found.ipv4_mapped or found.sixtofour or found
    return not found.is_global or found.is_multicast


def permitted_address(hop: Hop, *, permit: Permit, resolve: Resolve) -> str:
    """Return the address to connect to, after calling ``permit``; raise what it raises.

    ``permit`` is called before the name is looked up, because the lookup itself sends the name out.
    """
    permit("network", hop)
    addresses = resolve(hop.host, hop.port)
    if any(map(is_private, addresses)):
        permit("private-network", hop)
    return addresses[0]
