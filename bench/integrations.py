"""The server for other agents: `python -m bench.integrations [--skills N]`. The baseline is an empty one."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from bench.measure import print_table
from bench.trees import plain_tree

VADE = str(Path(sys.executable).with_name("vade"))
CALLS, PAGES, STARTS = 200, 50, 7
# What the SDK itself costs: one tool that answers with as many characters as ours.
EMPTY = """
import sys, anyio, mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
schema = {"type": "object", "properties": {"name": {"type": "string"}}}
body = "x" * int(sys.argv[1])
async def list_tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name="skill", input_schema=schema)])
async def call_tool(context, params):
    return types.CallToolResult(content=[types.TextContent(text=body)])
async def main():
    server = Server("empty", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""


@asynccontextmanager
async def connected(words: list[str], place: Path) -> AsyncIterator[Client]:
    env = {"HOME": str(place / "home"), "PATH": os.environ["PATH"], "VADE_CACHE_DIR": str(place / "cache")}
    server = StdioServerParameters(command=words[0], args=words[1:], cwd=place / "project", env=env)
    async with Client(stdio_client(server), mode="legacy") as client:
        yield client


async def timed(count: int, call: Callable[[], Awaitable[Any]]) -> list[float]:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await call()
        times.append((time.perf_counter() - started) * 1000)
    return times


async def first_page(client: Client) -> None:
    """Ask for the first page of entries: frontmatter and digests of 200 skills."""
    request = types.Request[dict[str, Any], str](method="skills/list", params={})
    await client.session.send_request(request, types.EmptyResult)


async def start(words: list[str], place: Path) -> float:
    """From the start of the process to its answer to the first request, in milliseconds."""
    started = time.perf_counter()
    async with connected(words, place):
        return (time.perf_counter() - started) * 1000


async def calls(ours: list[str], place: Path, skills: int) -> int:
    """Measure calls; gives the length of the body that was loaded."""
    name = min(os.listdir(place / "root"))
    async with connected(ours, place) as client:
        load = client.call_tool
        (body,) = (await load("skill", {"name": name})).content
        tools = (await client.session.list_tools()).model_dump_json()
        listing = await timed(CALLS, client.session.list_tools)
        loading = await timed(CALLS, lambda: load("skill", {"name": name}))
        await first_page(client)  # computes the digests
        pages = await timed(PAGES, lambda: first_page(client))
    length = len(getattr(body, "text", ""))
    async with connected([sys.executable, "-c", EMPTY, str(length)], place) as client:
        echo = await timed(CALLS, lambda: client.call_tool("skill", {"name": name}))
    async with connected([VADE, "mcp"], place) as client:
        few = (await client.session.list_tools()).model_dump_json()
    rows = [
        ["an echo of the same length, empty server", *_both(echo), ""],
        ["tools/list", *_both(listing), "20"],
        ["skill", *_both(loading), ""],
        ["skills/list, first page, warm", *_both(pages), "50"],
        [
            "skill, beyond the echo",
            f"{min(loading) - min(echo):.2f}",
            f"{statistics.median(loading) - statistics.median(echo):.2f}",
            "3",
        ],
    ]
    print_table(
        f"MCP on standard streams, {skills:,} skills", ["", "ms, best", "ms, median", "at most"], rows
    )
    print(f"\nThe list of tools has {len(tools):,} characters with {skills:,} skills, {len(few):,} with 3.")
    return length


def _both(times: list[float]) -> list[str]:
    return [f"{min(times):.2f}", f"{statistics.median(times):.2f}"]


async def starts(ours: list[str], place: Path, skills: int, length: int) -> None:
    """The three take turns, so that what else the machine does meets all of them."""
    ways = {
        "an empty server": [sys.executable, "-c", EMPTY, str(length)],
        "vade mcp, 3 skills": [VADE, "mcp"],
        f"vade mcp, {skills:,} skills": ours,
    }
    taken: dict[str, float] = dict.fromkeys(ways, float("inf"))
    for _ in range(STARTS):
        for title, words in ways.items():
            taken[title] = min(taken[title], await start(words, place))
    floor = taken["an empty server"]
    rows = [[title, f"{ms:.0f}", f"{ms / floor:.2f}", "1.2"] for title, ms in taken.items()]
    rows[0][-1] = ""
    print_table("From the start to the first answer", ["", "ms", "x empty", "at most"], rows)


async def measure(place: Path, skills: int) -> None:
    ours = [VADE, "mcp", "--root", str(place / "root"), "--no-default-roots"]
    length = await calls(ours, place, skills)
    await starts(ours, place, skills, length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=10_000)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as directory:
        place = Path(directory)
        for name in ("project/.git", "home"):
            (place / name).mkdir(parents=True)
        plain_tree(place / "root", words.skills)
        anyio.run(measure, place, words.skills)


if __name__ == "__main__":
    main()
