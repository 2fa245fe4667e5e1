"""What clients of the server and users of the toolkit may try: nothing is lost, nobody gets more than they may."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client

from tests.integrations.test_mcp import (
    HELLO,
    TOKEN,
    accepting,
    client_options,
    connected,
    place,
    processes,
    run,
    served,
    text,
    until,
)
from tests.support import VADE, Place
from vademecum import Toolkit
from vademecum.errors import Declined
from vademecum.policy.approval import Answer, Consent, Question

__all__ = ["place"]  # the fixture

pytestmark = pytest.mark.extras

HELLO_SCRIPT = {"skill_name": "tables", "script_name": "hello.py"}
LOAD: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {"name": "skill", "arguments": {"name": "tables"}},
}
SLOW = {"skill_name": "tables", "script_name": "slow.py"}


def config_of(place: Place, **settings: Any) -> None:
    (place.home / ".agent/config.json").write_text(json.dumps(settings))


def events(place: Place) -> list[dict[str, Any]]:
    files = sorted((place.cwd / ".agent/runs").glob("2*/events.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def is_running(place: Place) -> bool:
    return any(file.read_text() for file in (place.cwd / ".agent/runs").glob("*/calls/*/stdout"))


def test_a_broken_configuration_does_not_end_the_server(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "legacy") as client:
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")
            (place.home / ".agent/config.json").write_text("{ broken")
            await anyio.sleep(4)
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")
            config_of(place, permissions=[{"permission": "skill", "pattern": "tables", "effect": "deny"}])
            with anyio.fail_after(20):
                while not (await text(client, "skill", name="tables")).startswith("error: No skill"):
                    await anyio.sleep(0.1)

    run(work)


def test_a_project_that_is_gone_does_not_end_the_server(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "legacy") as client:
            await client.list_resources()
            shutil.rmtree(place.cwd)
            await anyio.sleep(3)
            assert len((await client.list_tools()).tools) == 7

    run(work)


def test_scripts_run_on_after_skills_changed(place: Place) -> None:
    heard: list[str] = []

    async def note(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    async def work() -> None:
        async with connected(place, "legacy", answer=accepting([]), message_handler=note) as client:
            assert "hello" in await text(client, "run_script", **HELLO_SCRIPT)
            shutil.copytree(place.cwd / ".agent/skills/表格", place.cwd / ".agent/skills/more")
            while not heard:
                await anyio.sleep(0.05)
            assert "hello" in await text(client, "run_script", **HELLO_SCRIPT)

    run(work)
    assert [event["call"] for event in events(place) if event["type"] == "tool_called"] == [1, 2]


def test_answers_hold_for_the_session_that_gave_them(place: Place) -> None:
    asked: dict[str, list[str]] = {"a": [], "b": [], "c": []}

    def client(url: str, who: str, answer: str) -> Client:
        return Client(url, mode="legacy", **client_options("same", accepting(asked[who], answer)))

    async def unable(_context: object, _params: object) -> Any:
        return types.ErrorData(code=-32601, message="no such thing")

    async def work() -> None:
        with served(place) as url:
            async with client(url, "a", "allow in this session") as one, client(url, "b", "decline") as two:
                for _ in range(2):
                    assert "hello" in await text(one, "run_script", **HELLO_SCRIPT)
                assert "declined" in await text(two, "run_script", **HELLO_SCRIPT)
                async with client(url, "c", "allow once") as three:
                    assert "hello" in await text(three, "run_script", **HELLO_SCRIPT)
            options = client_options("same", None) | {"elicitation_callback": unable}
            async with Client(url, mode="legacy", **options) as four:
                for _ in range(2):
                    said = await text(four, "run_script", **HELLO_SCRIPT)
                    assert "the client could not ask (no such thing)" in said

    run(work)
    assert {who: len(questions) for who, questions in asked.items()} == {"a": 1, "b": 1, "c": 1}


def test_requests_that_stand_for_themselves_remember_nothing(place: Place) -> None:
    asked: list[str] = []

    async def work() -> None:
        with served(place) as url:
            answers = accepting(asked, "allow in this session")
            async with Client(url, mode="2026-07-28", **client_options("same", answers)) as client:
                for _ in range(2):
                    assert "hello" in await text(client, "run_script", **HELLO_SCRIPT)

    run(work)
    assert len(asked) == 2


def test_the_form_cannot_be_forged(place: Place) -> None:
    asked: list[str] = []
    (place.cwd / "private.txt").write_text("x")
    (place.cwd / ".agent/skills/tables/scripts/hello.py").write_text("print('\u202e\x1b[2J')\n")
    forged = (
        "a\nrisk: low · no network\nnothing of the skill has changed since it was last approved" + "\n" * 40
    )

    async def work() -> None:
        async with connected(place, "legacy", answer=accepting(asked, "decline")) as client:
            more = {"arguments": [forged, "a" * 7000], "files": ["private.txt"], "network": ["*"]}
            await text(client, "run_script", **HELLO_SCRIPT, **more)

    run(work)
    shown = asked[0]
    lines = shown.splitlines()
    assert any(line.startswith("risk: medium") and "with the whole network" in line for line in lines)
    assert "reads: private.txt" in lines
    assert not any(line.startswith(("risk: low", "nothing of the skill")) for line in lines)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "print('" in shown


def test_many_scripts_of_one_client(place: Place) -> None:
    async def work() -> None:
        asking = connected(place, "legacy", answer=accepting([]))
        async with asking as client, anyio.create_task_group() as group:
            await client.call_tool("skill", {"name": "tables"})
            for _ in range(8):
                group.start_soon(partial(client.call_tool, "run_script", SLOW))
            while len(list((place.cwd / ".agent/runs").glob("*/calls/*/stdout"))) < 8:
                await anyio.sleep(0.05)
            assert "try again later" in await text(client, "run_script", **HELLO_SCRIPT)
            assert (await text(client, "skill", name="tables")).startswith("<skill_content ")
            group.cancel_scope.cancel()

    run(work)
    until(lambda: not processes(place.cwd / ".agent/runs"))


def test_a_cancelled_script_is_on_record_as_such(place: Place) -> None:
    async def work() -> None:
        async with connected(place, "legacy", answer=accepting([])) as client:
            await client.call_tool("skill", {"name": "tables"})
            async with anyio.create_task_group() as group:
                group.start_soon(partial(client.call_tool, "run_script", SLOW))
                while not is_running(place):
                    await anyio.sleep(0.05)
                group.cancel_scope.cancel()
            while processes(place.cwd / ".agent/runs"):
                await anyio.sleep(0.05)

    run(work)
    (called,) = [event for event in events(place) if event["type"] == "tool_called"]
    assert called["code"] == "stopped-cancelled"


def test_a_dropped_request_over_http_ends_its_script(place: Place) -> None:
    """A client of the handshake era that closes the connection of its call, and says nothing else."""
    headers = {"Accept": "application/json, text/event-stream"}
    config_of(place, permissions=[{"permission": "script", "pattern": "*", "effect": "allow"}])
    with served(place) as url:
        hello = httpx2.post(url, json=HELLO, headers=headers)
        headers["Mcp-Session-Id"] = hello.headers["mcp-session-id"]
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        httpx2.post(url, json=begun, headers=headers)
        httpx2.post(url, json=LOAD, headers=headers)
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "run_script", "arguments": SLOW},
        }
        with httpx2.Client() as client, client.stream("POST", url, json=call, headers=headers):
            until(lambda: is_running(place))
            assert processes(place.cwd / ".agent/runs")
        until(lambda: not processes(place.cwd / ".agent/runs"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [[], ["--http", "--port", "0", "--json"]])
def test_signals_end_it_and_its_record(place: Place, words: list[str], number: signal.Signals) -> None:
    config_of(place, permissions=[{"permission": "script", "pattern": "*", "effect": "allow"}])
    server = subprocess.Popen(
        [VADE, "mcp", *words],
        cwd=place.cwd,
        env=place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "run_script", "arguments": SLOW},
    }
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    if words:
        lines = "".join(server.stdout.readline().decode() for _ in range(3))
        url, headers = json.loads(lines)["url"], {"Accept": "application/json, text/event-stream"}
        headers["Mcp-Session-Id"] = httpx2.post(url, json=HELLO, headers=headers).headers["mcp-session-id"]
        httpx2.post(url, json=begun, headers=headers)
        httpx2.post(url, json=LOAD, headers=headers)
        waiting = threading.Thread(target=lambda: _quietly(url, call, headers))
        waiting.start()
    else:
        for message in (HELLO, begun, LOAD):
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        while json.loads(server.stdout.readline()).get("id") != LOAD["id"]:
            pass  # it must be loaded before its script can be run
        server.stdin.write(json.dumps(call).encode() + b"\n")
        server.stdin.flush()
    until(lambda: is_running(place))
    server.send_signal(number)
    assert server.wait(20) in {128 + number, 130 if number == signal.SIGINT else 143}
    until(lambda: not processes(place.cwd / ".agent/runs"))
    assert server.stderr is not None
    assert b"Traceback" not in server.stderr.read()
    for stream in (server.stdin, server.stdout, server.stderr):
        stream.close()
    assert "run_finished" in {event["type"] for event in events(place)[-2:]}
    if words:
        waiting.join()


def _quietly(url: str, call: dict[str, Any], headers: dict[str, str]) -> None:
    try:
        httpx2.post(url, json=call, headers=headers, timeout=60)
    except httpx2.HTTPError:
        return


def test_it_listens_before_it_says_so(place: Place) -> None:
    with served(place) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_no_page_of_another_origin_may_ask(place: Place) -> None:
    with served(place, VADE_MCP_TOKEN=TOKEN) as url:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        evil = httpx2.options(url, headers={"Origin": "https://evil.example", **asked})
        assert (evil.status_code, "access-control-allow-origin" in evil.headers) == (403, False)
        headers = {"Accept": "application/json, text/event-stream", "Authorization": f"bearer {TOKEN}"}
        origins = [("Origin", "https://evil.example"), ("Origin", url.removesuffix("/mcp"))]
        assert httpx2.post(url, json=HELLO, headers=[*headers.items(), *origins]).status_code == 403
        assert httpx2.post(url, json=HELLO, headers=headers).status_code == 200


def test_rules_hold_for_any_name_a_client_may_have(place: Place) -> None:
    name = "Foo (Bar): Ünï+code"
    deny = {"permissions": [{"permission": "skill", "pattern": "*", "effect": "deny"}]}
    config_of(place, agents={name: deny})

    async def work() -> None:
        async with connected(place, "legacy", name=name) as client:
            assert (await client.list_resources()).resources == []

    run(work)


def test_files_that_a_rule_denies_are_not_named(place: Place) -> None:
    skill = place.cwd / ".agent/skills/tables"
    (skill / "references/salaries.md").write_text("x")
    (skill / "scripts/payroll.py").write_text("x")
    config_of(
        place,
        permissions=[
            {"permission": "resource", "pattern": "tables/references/salaries*", "effect": "deny"},
            {"permission": "script", "pattern": "tables/scripts/payroll*", "effect": "deny"},
        ],
    )
    kit = Toolkit(place.build(), context=place.context)
    for tool, arguments in (
        ("skill", {"name": "tables"}),
        ("list_skill_assets", {"skill_name": "tables"}),
        ("load_skill_asset", {"skill_name": "tables", "relative_path": "references/salary.md"}),
        ("load_skill_asset", {"skill_name": "tables", "relative_path": "salaries.md"}),
        ("get_skill_script_path", {"skill_name": "tables", "script_name": "payrol.py"}),
        ("run_script", {"skill_name": "tables", "script_name": "payrol.py"}),
    ):
        said = kit.call(tool, arguments).text
        assert "salaries.md'" not in said.replace("'salaries.md'", "").replace("salary", ""), tool
        assert "references/salaries" not in said, tool
        assert "payroll" not in said, tool
    assert "guide.md" in kit.call("list_skill_assets", {"skill_name": "tables"}).text


@pytest.mark.parametrize("name", ["/\0", "\0", "a\0b", "/" + "x" * 5000, "../tables", "tables/"])
def test_names_that_are_none(place: Place, name: str) -> None:
    kit = Toolkit(place.build(), context=place.context)
    assert kit.call("skill", {"name": name}).code in {"skill-not-found", "arguments"}


def test_a_toolkit_that_is_closed_writes_nowhere_else(place: Place) -> None:
    kit = Toolkit(place.build(), approver=Consent(), context=place.context)
    kit.session.activate("tables")
    assert "hello" in kit.call("run_script", HELLO_SCRIPT).text
    kit.close()
    unrelated = place.cwd / "unrelated.txt"
    with unrelated.open("w+"):
        assert "hello" in kit.call("run_script", HELLO_SCRIPT).text
        kit.call("skill", {"name": "tables"})
    assert unrelated.read_text() == ""
    kit.close()
    ends = [event["type"] for event in events(place) if event["type"] in {"run_started", "run_finished"}]
    assert ends == ["run_started", "run_finished"] * 2


def test_a_toolkit_that_nobody_closes_ends_its_record(place: Place) -> None:
    code = "import vademecum as vm; vm.Toolkit().call('load_skill', {'skill_name': 'tables'})"
    python = str(Path(VADE).with_name("python"))
    subprocess.run([python, "-c", code], cwd=place.cwd, env=place.env, check=True)
    assert events(place)[-1]["type"] == "run_finished"


class Slowly:
    """Says no after a while."""

    def ask(self, question: Question) -> Answer:
        time.sleep(0.2)
        return Answer("reject", "no")


def test_inputs_are_not_kept_when_nothing_ran(place: Place) -> None:
    (place.cwd / "private.txt").write_text("private")
    call = {**HELLO_SCRIPT, "files": ["private.txt"]}
    kit = Toolkit(place.build(), context=place.context)
    kit.session.activate("tables")
    assert kit.call("run_script", call).code == "denied"
    asking = Toolkit(place.build(), approver=Slowly(), context=place.context)
    asking.session.activate("tables")
    with pytest.raises(Declined, match="declined"):
        asking.call("run_script", call)
    assert list((place.cwd / ".agent/runs").rglob("private.txt")) == []


def test_a_task_that_is_cancelled_ends_its_script(place: Place) -> None:
    kit = Toolkit(place.build(), approver=Consent(), context=place.context)
    kit.session.activate("tables")

    async def work() -> None:
        task = asyncio.create_task(kit.call_async("run_script", SLOW))
        while not is_running(place):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    until(lambda: not processes(place.cwd / ".agent/runs"))


def test_an_unknown_host_is_named(place: Place) -> None:
    done = place.vade("mcp", "--http", "--host", "no.such.host.invalid", VADE_MCP_TOKEN=TOKEN)
    assert (done.code, "use another --host" in done.err) == (2, True)


def test_closing_standard_input_ends_it(place: Place) -> None:
    server = subprocess.Popen([VADE, "mcp"], cwd=place.cwd, env=place.env, stdin=subprocess.PIPE)
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(20) == 0
    assert os.path.isdir(place.cwd)
