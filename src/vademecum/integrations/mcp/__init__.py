"""Skills over the Model Context Protocol, both ways: the server, and servers as sources."""

import ipaddress

EXTENSION = "io.modelcontextprotocol/skills"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
