"""The extension for skills (`io.modelcontextprotocol/skills`), as its conformance suite checks it. R1, U1.

Numbers in comments are those of the suite's 42 checks of a server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from tests.support import Place, write_skill
from vademecum import build_index
from vademecum.integrations.mcp import resources
from vademecum.integrations.mcp.clients import Clients
from vademecum.integrations.mcp.server import SkillServer
from vademecum.policy.engine import Policy
from vademecum.session.publishing import Publications
from vademecum.skill.yaml_subset import frontmatter_values

ERAS = ["legacy", "auto"]
EXTENSION = "io.modelcontextprotocol/skills"
AWKWARD = """\
---
name: alpha
description: "Do alpha: first."
version: 1.10
since: 2026-01-02
metadata:
  port: 0o17
  on: yes
  nested: {list: [1, ~, .5, true], "1.0": x}
unknown: [a, {b: c}]
---
# Alpha
"""


class _Any(types.Result):
    model_config = ConfigDict(extra="allow")


@pytest.fixture
def place(place: Place) -> Place:
    skills = place.cwd / ".agent/skills"
    alpha = write_skill(skills, "alpha", AWKWARD.encode() + b"\r\nkept as it is\r\n")
    write_skill(skills, "表格")
    write_skill(skills, "hidden")
    write_skill(skills, "asked")
    for name, data in {
        "scripts/run.py": b"print('alpha')\n",
        "scripts/deep/er/x y.txt": b"",
        "assets/chart.png": b"\x89PNG\r\n\x1a\n\xff\x00",
        "LICENSE": b"free\n",
        "references/kept.md": b"# Kept\n",
        "references/secret.md": b"# Secret\n",
        ".env": b"TOKEN=1\n",
        "scripts/__pycache__/run.pyc": b"x",
    }.items():
        (alpha / name).parent.mkdir(parents=True, exist_ok=True)
        (alpha / name).write_bytes(data)
    (alpha / "references/out.md").symlink_to("/etc/hostname")
    (alpha / "references/link.md").symlink_to("secret.md")
    rules = [
        {"permission": "skill", "pattern": "hidden", "effect": "deny"},
        {"permission": "skill", "pattern": "asked", "effect": "ask"},
        {"permission": "resource", "pattern": "alpha/references/secret.md", "effect": "deny"},
    ]
    (place.home / ".agent").mkdir()
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": rules}))
    return place


@asynccontextmanager
async def connected(place: Place, era: str) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    clients = Clients(lambda: build_index(context=place.context), context=place.context)
    try:
        async with Client(SkillServer(clients), mode=era) as client:
            yield client
    finally:
        clients.close()


def run(place: Place, era: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def limited() -> None:
        with anyio.fail_after(60):
            async with connected(place, era) as client:
                await work(client)

    anyio.run(limited)


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = types.Request[dict[str, Any], str](method=method, params=params)
    found = await client.session.send_request(request, _Any)
    return found.model_dump(by_alias=True, mode="json", exclude_none=True)


async def refused(client: Client, method: str, **params: Any) -> int:
    with pytest.raises(MCPError) as raised:
        await ask(client, method, **params)
    return raised.value.code


async def all_pages(client: Client) -> tuple[list[dict[str, Any]], list[str]]:
    entries: list[dict[str, Any]] = []
    cursors: list[str] = []
    while True:
        page = await ask(client, "skills/list", **({"cursor": cursors[-1]} if cursors else {}))
        entries += page["skills"]
        if "nextCursor" not in page:
            return entries, cursors
        cursors.append(page["nextCursor"])


@pytest.mark.parametrize("era", ERAS)
def test_what_is_declared_is_kept(place: Place, era: str) -> None:  # R1
    async def work(client: Client) -> None:
        able = client.server_capabilities.model_dump(by_alias=True, exclude_none=True)
        assert able["extensions"] == {EXTENSION: {"directoryRead": True}}  # 1, 2, 37
        assert able["resources"] == {"listChanged": True}  # 3; no `subscribe`, which nothing would keep
        assert able["tools"] == able["prompts"] == {"listChanged": True}
        listed = await ask(client, "skills/list")  # 4, 5
        uri = listed["skills"][0]["uri"]
        got = await ask(client, "skills/get", uri=uri)  # 4, 24
        for result in (listed, got):  # 8, 26
            assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert got["skill"] == listed["skills"][0]  # 25
        assert "nextCursor" not in got  # 27
        for wrong in ("skill://nothing/SKILL.md", "skill://alpha", "skill://ALPHA/SKILL.md", "x", uri + "/"):
            assert await refused(client, "skills/get", uri=wrong) == -32602  # 28
        assert await refused(client, "skills/get") == -32602

    run(place, era, work)


@pytest.mark.parametrize("era", ERAS)
def test_entries_are_complete_and_true(place: Place, era: str) -> None:
    async def work(client: Client) -> None:
        entries, _ = await all_pages(client)
        names = [entry["frontmatter"]["name"] for entry in entries]
        assert names == sorted(set(names))  # 7, 23
        assert {"alpha", "file-diff"} <= set(names)
        for entry in entries:
            assert list(entry) == ["uri", "frontmatter", "resources"]
            name = entry["frontmatter"]["name"]
            assert entry["uri"] == f"skill://{name}/SKILL.md"  # 9, 11, 12, 22
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)  # 21
            assert entry["frontmatter"]["description"]  # 10
            uris = [file["uri"] for file in entry["resources"]]  # 13
            assert entry["uri"] in uris  # 14
            assert len(uris) == len(set(uris))
            assert all(uri.startswith(f"skill://{name}/") for uri in uris)  # 15
            for file in entry["resources"]:
                (content,) = (await client.read_resource(file["uri"])).contents
                data = (
                    content.text.encode()
                    if isinstance(content, types.TextResourceContents)
                    else base64.b64decode(content.blob)
                )
                assert file["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"  # 16
                assert file["size"] == len(data)  # 17
            reserved = [key for key in entry["frontmatter"].get("metadata", {}) if key.startswith("io.model")]
            assert not reserved  # 20
        alpha = next(entry for entry in entries if entry["frontmatter"]["name"] == "alpha")
        assert [file["uri"].removeprefix("skill://alpha/") for file in alpha["resources"]] == [
            "LICENSE", "SKILL.md", "assets/chart.png", "references/kept.md",
            "scripts/deep/er/x%20y.txt", "scripts/run.py",
        ]  # fmt: skip
        assert alpha["frontmatter"] == {  # 31
            "name": "alpha",
            "description": "Do alpha: first.",
            "version": 1.1,
            "since": "2026-01-02",
            "metadata": {"port": 15, "on": "yes", "nested": {"list": [1, None, 0.5, True], "1.0": "x"}},
            "unknown": ["a", {"b": "c"}],
        }

    run(place, era, work)


@pytest.mark.parametrize("era", ERAS)
def test_a_document_is_its_file_byte_by_byte(place: Place, era: str) -> None:
    async def work(client: Client) -> None:
        (content,) = (await client.read_resource("skill://alpha/SKILL.md")).contents
        assert isinstance(content, types.TextResourceContents)  # 29
        file = place.cwd / ".agent/skills/alpha/SKILL.md"
        assert content.text.encode() == file.read_bytes()  # 30
        assert frontmatter_values(content.text.encode())["name"] == "alpha"  # 35
        assert content.mime_type == "text/markdown"  # 32
        assert content.meta is None  # 36
        (listed,) = [r for r in (await client.list_resources()).resources if r.name == "alpha"]  # 33
        assert listed.description == "Do alpha: first."  # 34

    run(place, era, work)


@pytest.mark.parametrize("era", ERAS)
def test_directories(place: Place, era: str) -> None:
    async def children(client: Client, uri: str) -> dict[str, str]:
        found = await ask(client, "resources/directory/read", uri=uri)  # 38, 39
        assert found["ttlMs"] == 0
        assert "nextCursor" not in found  # 42
        return {child["uri"]: child["mimeType"] for child in found["resources"]}

    async def work(client: Client) -> None:
        assert await children(client, "skill://alpha") == {
            "skill://alpha/LICENSE": "text/plain",
            "skill://alpha/SKILL.md": "text/markdown",
            "skill://alpha/assets": "inode/directory",  # 40
            "skill://alpha/references": "inode/directory",
            "skill://alpha/scripts": "inode/directory",
        }
        assert list(await children(client, "skill://alpha/scripts/deep/er")) == [
            "skill://alpha/scripts/deep/er/x%20y.txt"
        ]
        for wrong in ("skill://alpha/SKILL.md", "skill://alpha/none", "skill://nothing", "skill://alpha/.."):
            assert await refused(client, "resources/directory/read", uri=wrong) == -32602  # 41
        wrong = "resources/directory/read"
        assert await refused(client, wrong, uri="skill://alpha", cursor="more") == -32602

    run(place, era, work)


@pytest.mark.parametrize("era", ERAS)
def test_what_a_rule_withholds_is_in_no_answer(place: Place, era: str) -> None:
    async def work(client: Client) -> None:
        entries, _ = await all_pages(client)
        told = json.dumps(entries)
        for word in ("skill://hidden", "skill://asked", "secret.md", "link.md", "out.md", ".env", "pycache"):
            assert word not in told
        for uri in ("skill://hidden", "skill://asked", "skill://表格"):
            assert await refused(client, "skills/get", uri=f"{uri}/SKILL.md") == -32602
            assert await refused(client, "resources/directory/read", uri=uri) == -32602
        unknown = -32002 if era == "legacy" else -32602
        for path in ("references/secret.md", "references/link.md", "references/out.md", ".env", "nothing",
                     "scripts/__pycache__/run.pyc", "../../config.json", "scripts"):  # fmt: skip
            with pytest.raises(MCPError) as raised:
                await client.read_resource(f"skill://alpha/{path}")
            assert raised.value.code == unknown
            assert raised.value.error.data["uri"] == f"skill://alpha/{path}"
        for uri in ("skill://hidden/SKILL.md", "file:///etc/passwd", "skill://alpha"):
            assert await refused(client, "resources/read", uri=uri) == unknown

    run(place, era, work)


def test_pages_and_cursors(place: Place) -> None:
    for number in range(450):
        write_skill(place.cwd / ".agent/skills", f"many-{number:03}")

    async def work(client: Client) -> None:
        entries, cursors = await all_pages(client)  # 6
        assert len(cursors) == len(set(cursors)) == 2
        assert len(entries) == 454
        assert len({entry["uri"] for entry in entries}) == 454  # 7
        for method in ("skills/list", "resources/list", "prompts/list", "tools/list"):
            assert await refused(client, method, cursor="nonsense") == -32602

    run(place, "auto", work)


def test_skills_that_do_not_fit_are_named_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    skills = place.cwd / ".agent/skills"
    many = write_skill(skills, "many-files")
    (many / "assets").mkdir()
    for number in range(512):
        (many / f"assets/{number}").touch()
    large = write_skill(skills, "large")
    with (large / "data.bin").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    write_skill(skills, "endless", "---\nname: endless\ndescription: x\nmore: .inf\n---\n")

    async def work(client: Client) -> None:
        for _ in range(2):
            entries, _ = await all_pages(client)
        assert not {"many-files", "large", "endless"} & {e["frontmatter"]["name"] for e in entries}  # 18, 19
        resources = {resource.name for resource in (await client.list_resources()).resources}
        assert {"many-files", "large", "endless", "表格"} <= resources

    with caplog.at_level(logging.WARNING, logger=resources.__name__):
        run(place, "auto", work)
    said = [record.getMessage() for record in caplog.records]
    assert sorted(re.findall(r"The skill '(.+?)'", "\n".join(said))) == [
        "asked", "endless", "large", "many-files", "表格",
    ]  # fmt: skip


def test_the_tool_lists_the_skills(place: Place) -> None:
    async def work(client: Client) -> None:
        tools = {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}
        assert "name=alpha | source=project | description=Do alpha: first." in tools["skill"]
        assert "name=表格" in tools["skill"]
        assert "hidden" not in tools["skill"]
        assert "name=alpha" not in tools["search_skills"]

    run(place, "auto", work)


def test_digests_are_computed_once_per_change(place: Place) -> None:
    index = build_index(context=place.context)
    skill = index.get("alpha")
    now = [2**62]  # long after the files were written
    known = Publications(lambda: now[0])
    policy = Policy.load(place.context)
    first = known.publish(skill, policy, agent="default")
    assert known.publish(skill, policy, agent="default") is first
    (place.cwd / ".agent/skills/alpha/LICENSE").write_bytes(b"bound\n")
    second = known.publish(skill, policy, agent="default")
    changed = {file.path for file in set(second.files) - set(first.files)}
    assert changed == {"LICENSE"}
