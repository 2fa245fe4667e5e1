"""`vade mcp` with the official client, over both transports and both eras of the protocol. E2, E3, F3, F7."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.support import VADE, Place, write_skill
from vademecum.session.schemas import LISTED_BUDGET

ERAS = ["legacy", "2026-07-28"]
# Those that wait for seconds do so once in the ordinary tests.
SLOWLY = ["legacy", pytest.param("2026-07-28", marks=pytest.mark.extras)]
TOKEN = "a-secret-of-some-length"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


@pytest.fixture
def place(place: Place) -> Place:
    skills = place.cwd / ".agent/skills"
    for name in ("tables", "secret-tables", "表格"):
        write_skill(
            skills, name, f"---\nname: {name}\ndescription: Sum up tables in {name}.\n---\n# {name}\n"
        )
        for directory in ("scripts", "references"):
            (skills / name / directory).mkdir()
        (skills / name / "references/guide.md").write_text("# One\nfirst\n# Two\nsecond\n")
    scripts = skills / "tables/scripts"
    (scripts / "hello.py").write_text("import sys; print('hello', *sys.argv[1:])")
    (scripts / "slow.py").write_text("import time; print('begun', flush=True); time.sleep(60)")
    (scripts / "steady.py").write_text(
        "import os, time\nwhile not os.path.exists('go-on'):\n    time.sleep(0.05)"
    )
    write_skill(
        skills,
        "by-hand",
        "---\nname: by-hand\ndescription: For people.\ndisable-model-invocation: true\n---\nBy hand.\n",
    )
    rules = [{"permission": "skill", "pattern": "secret-*", "effect": "deny"}]
    settings = {
        "agents": {"careful": {"permissions": [{"permission": "skill", "pattern": "*", "effect": "deny"}]}}
    }
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules, **settings}))
    return place


Answers = Callable[[types.ElicitRequestFormParams], types.ElicitResult]


@asynccontextmanager
async def connected(
    place: Place, era: str, *words: str, name: str = "a-client", answer: Answers | None = None, **more: Any
) -> AsyncIterator[Client]:
    """A client of a server that was started for it."""
    command = StdioServerParameters(command=VADE, args=["mcp", *words], cwd=place.cwd, env=place.env)
    async with Client(stdio_client(command), mode=era, **client_options(name, answer), **more) as client:
        yield client


def client_options(name: str, answer: Answers | None) -> dict[str, Any]:
    async def elicit(_context: object, params: Any) -> types.ElicitResult:
        assert answer is not None
        return answer(params)

    about = types.Implementation(name=name, version="1")
    return {"client_info": about, "elicitation_callback": elicit if answer else None}


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        with anyio.fail_after(60):
            await work()

    anyio.run(limited)


def accepting(asked: list[str], answer: str = "allow once") -> Answers:
    def respond(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": answer, "reason": "not today"})

    return respond


async def text(client: Client, tool: str, **arguments: Any) -> str:
    if tool == "run_script":  # of a skill that is loaded
        await client.call_tool("skill", {"name": arguments["skill_name"]})
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return ("error: " if result.is_error else "") + content.text


@pytest.mark.parametrize("era", ERAS)
def test_tools_resources_and_prompts(place: Place, era: str) -> None:
    async def work() -> None:
        async with connected(place, era) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [
                "skill", "unload_skill", "search_skills", "load_skill_asset",
                "get_skill_script_path", "list_skill_assets", "run_script",
            ]  # fmt: skip
            found = json.loads(await text(client, "search_skills", query="sum up a table", n=10))
            assert {"tables", "表格"} <= {hit["name"] for hit in found}
            assert "secret-tables" not in json.dumps(found)
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")
            again = await text(client, "skill", name="tables")
            assert again.startswith("<skill_content ")  # what was said before may be compacted by now
            asset = {"skill_name": "表格", "relative_path": "references/guide.md", "section_hint": "Two"}
            assert "second" in await text(client, "load_skill_asset", **asset)
            script = {"skill_name": "tables", "script_name": "hello.py"}
            said = await text(client, "get_skill_script_path", **script)
            assert said.endswith("run_script runs it in a sandbox.")
            for hidden in ("secret-tables", "by-hand", "nothing"):
                said = await text(client, "skill", name=hidden)
                assert said.replace(hidden, "X").startswith("error: No skill is called 'X'")
            resources = (await client.list_resources()).resources
            assert {"tables", "表格", "file-diff"} <= {resource.name for resource in resources}
            assert not {"secret-tables", "by-hand"} & {resource.name for resource in resources}
            (chinese,) = [resource for resource in resources if resource.name == "表格"]
            (content,) = (await client.read_resource(chinese.uri)).contents
            assert isinstance(content, types.TextResourceContents)
            assert "# 表格" in content.text
            (content,) = (await client.read_resource("skill://tables/references/guide.md")).contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text.startswith("# One")
            prompts = (await client.list_prompts()).prompts
            assert {"tables", "by-hand"} <= {prompt.name for prompt in prompts}
            assert "secret-tables" not in {prompt.name for prompt in prompts}
            (message,) = (await client.get_prompt("by-hand", {"request": "this file"})).messages
            assert isinstance(message.content, types.TextContent)
            assert "By hand." in message.content.text
            assert message.content.text.endswith("\n\nthis file")
            template = types.ResourceTemplateReference(uri="skill://{name}/{+path}")
            completed = await client.complete(template, {"name": "name", "value": "tab"})
            assert completed.completion.values == ["tables"]

    run(work)


@pytest.mark.parametrize("era", ERAS)
def test_a_script_runs_after_its_approval(place: Place, era: str) -> None:
    asked: list[str] = []

    async def work() -> None:
        async with connected(place, era, answer=accepting(asked)) as client:
            call = {"skill_name": "tables", "script_name": "hello.py", "arguments": ["you"]}
            said = await text(client, "run_script", **call)
            assert "exit code 0" in said
            assert "hello you" in said
            assert "hello you" in await text(client, "run_script", **call)

    run(work)
    assert "script tables/scripts/hello.py" in asked[0]
    assert "import sys; print('hello'" in asked[0]
    assert len(asked) == 2  # once is once
    (record,) = place.vade("runs", "list", "--json").json["runs"]
    types_ = [
        event["type"] for event in place.vade("runs", "show", record["run_id"], "--json").json["events"]
    ]
    assert types_.count("tool_called") >= 2
    assert {"approval_asked", "approval_answered", "run_finished"} <= set(types_)


def test_a_chart_is_seen(place: Place) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    drawing = f"open('a.png', 'wb').write({png!r}); open('b.pdf', 'wb').write(b'%PDF-1.7'); open('c.txt', 'w').write('x')"
    (place.cwd / ".agent/skills/tables/scripts/chart.py").write_text(drawing)

    async def work() -> None:
        async with connected(place, "legacy", answer=accepting([])) as client:
            await client.call_tool("skill", {"name": "tables"})
            result = await client.call_tool("run_script", {"skill": "tables", "relative_path": "chart.py"})
            _, picture, document = result.content
            assert isinstance(picture, types.ImageContent)
            assert (picture.mime_type, base64.b64decode(picture.data)) == ("image/png", png)
            assert isinstance(document, types.EmbeddedResource)
            assert document.resource.mime_type == "application/pdf"

    run(work)


@pytest.mark.parametrize("era", SLOWLY)
def test_a_no_is_a_no(place: Place, era: str) -> None:
    asked: list[str] = []

    async def work() -> None:
        async with connected(place, era, answer=accepting(asked, "decline")) as client:
            call = {"skill_name": "tables", "script_name": "hello.py"}
            assert "not today" in await text(client, "run_script", **call)
            assert (await text(client, "run_script", **call)).startswith("error: ")
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")

    run(work)
    assert len(asked) == 1  # nobody is asked the same twice


@pytest.mark.parametrize("era", SLOWLY)
def test_nobody_to_ask(place: Place, era: str) -> None:
    async def work() -> None:
        async with connected(place, era) as client:
            call = {"skill_name": "tables", "script_name": "hello.py", "arguments": ["a b"]}
            said = await text(client, "run_script", **call)
            assert said.startswith("error: ask script 'tables/scripts/hello.py'")
            assert said.endswith("(refused).")  # why is said to people, on standard error

    run(work)


def test_rules_by_the_name_of_the_client(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "legacy", name="careful") as client:
            assert (await client.list_resources()).resources == []
            assert (await text(client, "skill", name="tables")).startswith("error: No skill")
        async with connected(place, "legacy", "--agent", "default", name="careful") as client:
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")

    run(work)


@pytest.mark.parametrize("era", SLOWLY)
def test_clients_hear_of_new_skills(place: Place, era: str) -> None:
    heard: list[str] = []

    async def note(message: Any) -> None:
        heard.append(getattr(message, "method", type(message).__name__))

    async def changed(client: Client) -> None:
        write_skill(place.cwd / ".agent/skills", "brand-new")
        while not all(any(kind in one.lower() for one in heard) for kind in ("resources", "prompts")):
            await anyio.sleep(0.05)
        assert "brand-new" in {
            resource.name for resource in (await client.list_resources(cache_mode="refresh")).resources
        }

    async def work() -> None:
        async with connected(place, era, message_handler=note) as client:
            await client.list_resources()
            if era == "legacy":
                await changed(client)
                return
            listening = client.listen(resources_list_changed=True, prompts_list_changed=True)
            async with listening as events, anyio.create_task_group() as group:

                async def listen() -> None:
                    async for event in events:
                        heard.append(type(event).__name__)

                group.start_soon(listen)
                await changed(client)
                group.cancel_scope.cancel()

    run(work)


def test_a_skill_that_came_just_now_is_found(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "legacy") as client:
            assert (await text(client, "skill", name="late")).startswith("error: ")
            write_skill(place.cwd / ".agent/skills", "late")
            with anyio.fail_after(20):
                while (await text(client, "skill", name="late")).startswith("error: "):
                    await anyio.sleep(0.05)

    run(work)


def test_a_skill_that_went_between_list_and_load(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "2026-07-28") as client:
            (uri,) = [r.uri for r in (await client.list_resources()).resources if r.name == "tables"]
            (place.cwd / ".agent/skills/tables/SKILL.md").unlink()
            said = await text(client, "skill", name="tables")
            assert said.startswith("error: ")
            assert "tables" in said
            with pytest.raises(MCPError, match="tables"):
                await client.read_resource(uri, cache_mode="refresh")
            assert (await text(client, "skill", name="file-diff")).startswith("<skill_content ")

    run(work)


@pytest.mark.parametrize("era", SLOWLY)
def test_progress_of_a_long_script(place: Place, era: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        for directory in (place.cwd / ".agent/runs").glob("*/calls/*/work"):
            (directory / "go-on").touch()

    async def work() -> None:
        async with connected(place, era, answer=accepting([])) as client:
            call = {"skill_name": "tables", "script_name": "steady.py"}
            await client.call_tool("skill", {"name": "tables"})
            result = await client.call_tool("run_script", call, progress_callback=note)
            assert not result.is_error

    run(work)
    assert told[0] == (1, "tables/steady.py: 1 s")


@pytest.mark.parametrize("era", SLOWLY)
def test_wrong_calls(place: Place, era: str) -> None:
    """Wrong arguments are a result, so that the model can correct them; what does not exist is an error."""
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("skill", {"name": 7}, r"The arguments of skill are wrong \(name: Expected `str`"),
        ("skill", {}, "name: it is missing"),
        ("search_skills", {"query": "x", "n": 0}, "n: Expected `int` >= 1"),
        ("search_skills", {"query": "x" * 10_000_000}, "query: Expected `str` of length <= 20000"),
    ]

    async def work() -> None:
        async with connected(place, era) as client:
            for tool, arguments, words in wrong:
                assert re.match(f"error: .*{words}", await text(client, tool, **arguments), re.DOTALL)
            for tool in ("no_such_tool", "write_file"):
                with pytest.raises(MCPError, match=f"There is no tool '{tool}': there are skill, ") as raised:
                    await client.call_tool(tool, {})
                assert raised.value.code == types.INVALID_PARAMS
            with pytest.raises(MCPError, match="No skill is called"):
                await client.get_prompt("nothing")
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")

    run(work)


def test_lines_that_are_no_messages(place: Place) -> None:
    lines = [
        b"{not json\n",
        b'{"a": 1}\n',
        b"[]\n",
        b"\xff\xfe\n",
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
    ]
    with subprocess.Popen(
        [VADE, "mcp"], cwd=place.cwd, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"".join(lines))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in lines]
        server.stdin.close()
        assert server.wait(10) == 0
    assert sorted(answer["error"]["code"] for answer in answers if "error" in answer) == [
        -32700,
        -32700,
        -32600,
        -32600,
    ]
    assert all(
        answer["error"]["message"].startswith("The line is ") for answer in answers if "error" in answer
    )
    assert [answer["id"] for answer in answers if "result" in answer] == [1]


def processes(marker: Path) -> list[str]:
    """The processes that work below a directory now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(marker).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def until(holds: Callable[[], object]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize("how", ["leaves", "cancels", "kills"])
def test_nothing_is_left_of_a_script_whose_client_is_gone(place: Place, how: str) -> None:
    runs = place.cwd / ".agent/runs"

    def is_running() -> bool:
        return any(file.read_text() for file in runs.glob("*/calls/*/stdout"))

    async def work() -> None:
        async with (
            connected(place, "legacy", answer=accepting([])) as client,
            anyio.create_task_group() as group,
        ):
            call = partial(client.call_tool, "run_script", {"skill_name": "tables", "script_name": "slow.py"})
            await client.call_tool("skill", {"name": "tables"})
            group.start_soon(call)
            while not is_running():
                await anyio.sleep(0.05)
            assert processes(place.cwd / ".agent/runs")
            if how == "kills":
                (server,) = [pid for pid in children() if "mcp" in Path(f"/proc/{pid}/cmdline").read_text()]
                os.kill(server, signal.SIGKILL)
            group.cancel_scope.cancel()
        if how == "cancels":
            await anyio.sleep(0)

    run(work)
    until(lambda: not processes(place.cwd / ".agent/runs"))


def children() -> list[int]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def test_after_a_cancelled_script_the_server_goes_on(place: Place) -> None:
    runs = place.cwd / ".agent/runs"

    async def work() -> None:
        async with connected(place, "legacy", answer=accepting([])) as client:
            await client.call_tool("skill", {"name": "tables"})
            async with anyio.create_task_group() as group:
                call = {"skill_name": "tables", "script_name": "slow.py"}
                group.start_soon(partial(client.call_tool, "run_script", call))
                while not any(file.read_text() for file in runs.glob("*/calls/*/stdout")):
                    await anyio.sleep(0.05)
                group.cancel_scope.cancel()
            while processes(runs):
                await anyio.sleep(0.05)
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")

    run(work)


@contextmanager
def served(place: Place, *words: str, **env: str) -> Iterator[str]:
    """A server over HTTP, and its address."""
    server = subprocess.Popen(
        [VADE, "mcp", "--http", "--port", "0", "--json", *words],
        cwd=place.cwd,
        env=place.env | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield json.JSONDecoder().raw_decode(_first_document(server))[0]["url"]
    finally:
        server.send_signal(signal.SIGINT)
        _, complaints = server.communicate(timeout=60)
    assert "Traceback" not in complaints


def _first_document(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    found = ""
    while not found.rstrip().endswith("}"):
        line = server.stdout.readline()
        assert line, server.communicate()[1]
        found += line
    return found


@pytest.mark.parametrize("era", ERAS)
def test_several_clients_over_http(place: Place, era: str) -> None:
    asked: list[str] = []

    async def one(url: str, name: str, done: list[str]) -> None:
        async with Client(url, mode=era, **client_options(name, accepting(asked))) as client:
            for n in range(5):
                if name == "careful":
                    assert (await text(client, "skill", name="tables")).startswith("error: ")
                    continue
                call = {"skill_name": "tables", "script_name": "hello.py", "arguments": [f"{name}-{n}"]}
                assert f"hello {name}-{n}" in await text(client, "run_script", **call)
        done.append(name)

    async def work() -> None:
        done: list[str] = []
        with served(place) as url:
            async with anyio.create_task_group() as group:
                for name in ("first", "second", "careful"):
                    group.start_soon(one, url, name, done)
        assert sorted(done) == ["careful", "first", "second"]

    run(work)
    assert len(asked) == 10


def test_who_may_come_over_http(place: Place) -> None:
    accepted = {"Accept": "application/json, text/event-stream"}
    with served(place, VADE_MCP_TOKEN=TOKEN) as url:

        def post(**headers: str) -> int:
            more = {name.replace("_", "-"): value for name, value in headers.items()}
            return httpx2.post(url, json=HELLO, headers={**accepted, **more}).status_code

        assert post() == 401
        assert post(Authorization="Bearer wrong") == 401
        assert post(Authorization=f"Bearer {TOKEN}") == 200
        assert post(Authorization=f"Bearer {TOKEN}", Origin="https://evil.example") == 403
        assert post(Authorization=f"Bearer {TOKEN}", Origin=url.removesuffix("/mcp")) == 200
        assert post(Authorization=f"Bearer {TOKEN}", Host="evil.example") == 421

        async def work() -> None:
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"})
            async with http, Client(streamable_http_client(url, http_client=http)) as client:
                assert len((await client.list_tools()).tools) == 7

        run(work)


def test_bad_bodies_over_http(place: Place) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with served(place) as url:
        assert httpx2.post(url, content=b"{not json", headers=headers).status_code == 400
        assert httpx2.post(url, content=b" " * (17 * 1024 * 1024), headers=headers).status_code == 413
        assert httpx2.post(url, content=b"[" * 100_000, headers=headers).status_code == 400
        assert httpx2.post(url, json=HELLO, headers=headers).status_code == 200


def test_elsewhere_only_with_a_token(place: Place) -> None:
    done = place.vade("mcp", "--http", "--host", "0.0.0.0", "--port", "0")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "vade: 0.0.0.0 can be reached from elsewhere: set VADE_MCP_TOKEN to a secret that clients send, "
        "or serve on 127.0.0.1.\n"
    )
    done = place.vade("mcp", "--http", "--port", "0", VADE_MCP_TOKEN="short")
    assert (done.code, "too short" in done.err) == (2, True)


def test_the_list_of_tools_keeps_to_its_budget(place: Place) -> None:
    sizes = []

    async def work() -> None:
        async with connected(place, "legacy") as client:
            sizes.append(len((await client.list_tools()).model_dump_json()))

    run(work)
    for n in range(300):
        write_skill(place.cwd / ".agent/skills", f"more-{n}")

    async def pages() -> None:
        async with connected(place, "legacy") as client:
            sizes.append(len((await client.list_tools()).model_dump_json()))
            first = await client.list_resources()
            second = await client.list_resources(cursor=first.next_cursor)
            names = [resource.name for resource in (*first.resources, *second.resources)]
            assert len(names) == len(set(names)) == 305
            assert second.next_cursor is None

    run(pages)
    assert sizes[0] < sizes[1] < sizes[0] + LISTED_BUDGET


def test_two_threads_of_one_kit(place: Place) -> None:
    """The record of a client takes entries from several calls at once."""
    from vademecum.integrations.mcp.clients import Client, Clients
    from vademecum.tools.calls import UseSkill

    clients = Clients(place.build, context=place.context)

    def work() -> None:
        for _ in range(50):
            with clients.session(Client("busy", 1)) as session:
                session.call(UseSkill("tables"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clients.close()
    (run_,) = (place.cwd / ".agent/runs").glob("2*/events.jsonl")
    events = [json.loads(line) for line in run_.read_text().splitlines()]
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events].count("skill_loaded") == 200


CONFIGURATIONS = re.findall(
    r"^```(json|toml) title=[^\n]*\n(.*?)^```$",
    (Path(__file__).parents[2] / "docs/mcp.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("number", range(6))
def test_configurations_of_clients_start_the_server(place: Place, number: int) -> None:
    """Claude Code, Codex, Gemini CLI, VS Code, Cursor, opencode, as the documentation shows them."""
    kind, written = CONFIGURATIONS[number]
    document = json.loads(written) if kind == "json" else tomllib.loads(written)
    (servers,) = document.values()
    entry = servers["vademecum"]
    words = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]

    async def work() -> None:
        server = StdioServerParameters(command=words[0], args=words[1:], cwd=place.cwd, env=place.env)
        async with Client(stdio_client(server)) as client:
            assert len((await client.list_tools()).tools) == 7

    assert words[0] == "vade"
    words[0] = VADE  # as the client finds it on its path
    run(work)


def test_all_configurations_are_there() -> None:
    assert len(CONFIGURATIONS) == 6
