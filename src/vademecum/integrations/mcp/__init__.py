"""Skills over the Model Context Protocol, both ways: the server, and servers as sources."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

from vademecum.context import Context

if TYPE_CHECKING:
    from vademecum.integrations.mcp.source import McpSource

EXTENSION = "io.modelcontextprotocol/skills"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def added_sources(context: Context) -> list[McpSource]:
    """Return the servers that the user added; what speaks to them is imported only if there are any."""
    if not os.path.isdir(context.home / ".agent" / "sources"):
        return []
    from vademecum.integrations.mcp.source import sources  # noqa: PLC0415

    return sources(context)
