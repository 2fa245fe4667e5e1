"""The official conformance suite against `vade mcp`, and clients of two other projects. R1.

Each is fetched into a directory of its own; where that is not possible, its test is skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.interpreters import interpreter
from tests.integrations.test_mcp import served
from tests.support import VADE, Place, write_skill

pytestmark = pytest.mark.extras

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SKILLS = ("enumeration", "manifest", "directory")
# Those that do not ask for the tools of the suite's own server.
OTHERS = {
    "2026-07-28": [
        "completion-complete", "tools-list", "resources-list", "prompts-list", "sep-2164-resource-not-found",
        "dns-rebinding-protection", "server-sse-multiple-streams",
    ],
    "2025-11-25": [
        "server-initialize", "ping", "completion-complete", "tools-list", "resources-list", "prompts-list",
        "dns-rebinding-protection",
    ],
}  # fmt: skip


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the suite, with a Node of its own that is new enough."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm is not installed")
    place = tmp_path_factory.mktemp("conformance")
    words = [npm, "install", "--no-audit", "--no-fund", "node@22", SUITE]
    if subprocess.run(words, cwd=place, capture_output=True, timeout=600, check=False).returncode:
        pytest.skip("the suite cannot be fetched")
    modules = place / "node_modules"
    own = modules / "node/bin/node"
    if not own.exists():
        subprocess.run(
            [node, "installArchSpecificPackage.js"],
            cwd=modules / "node",
            capture_output=True,
            timeout=600,
            check=False,
        )
    if not own.exists():
        pytest.skip("Node 22 cannot be fetched")
    script = json.loads((modules / "@modelcontextprotocol/conformance/package.json").read_text())["bin"]
    path = script if isinstance(script, str) else next(iter(script.values()))
    return [str(own), str(modules / "@modelcontextprotocol/conformance" / path)]


@pytest.fixture
def place(place: Place) -> Place:
    text = "---\nname: alpha\ndescription: Do alpha.\nversion: 1.10\nmetadata:\n  kind: 'x'\n---\n# Alpha\n"
    skill = write_skill(place.cwd / ".agent/skills", "alpha", text)
    (skill / "scripts").mkdir()
    (skill / "scripts/run.py").write_text("print(1)\n")
    write_skill(place.cwd / ".agent/skills", "表格")
    return place


@pytest.mark.parametrize("version", OTHERS)
def test_the_official_suite(place: Place, suite: list[str], version: str, tmp_path: Path) -> None:
    checks = 0
    with served(place) as url:
        for scenario in (*(f"sep-2640-skills-{each}" for each in SKILLS), *OTHERS[version]):
            words = [*suite, "server", "--url", url, "--scenario", scenario, "--force"]
            done = subprocess.run(
                [*words, "--spec-version", version],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            passed = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", done.stdout)
            assert passed, f"{scenario}: {done.stdout[-3000:]}"
            checks += int(passed[1]) if "sep-2640" in scenario else 0
    assert checks == (45 if version == "2026-07-28" else 43)  # two are about attributes of the later version


FASTMCP = """
import asyncio, hashlib, json, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension
async def main():
    server = StdioTransport(sys.argv[1], ["mcp"], cwd=sys.argv[2])
    async with Client(server, extensions=[SkillsClientExtension()]) as client:
        found = {}
        for skill in await client.list_skills():
            for file in skill.resources:
                (content,) = await client.read_resource(str(file.uri))
                data = content.text.encode()
                assert file.digest == "sha256:" + hashlib.sha256(data).hexdigest(), file
                found[str(file.uri)] = len(data) == file.size
        print(json.dumps(found))
asyncio.run(main())
"""
# It lists the skills, asks for each again, verifies every file and installs it.
FAST_AGENT = """
import asyncio, json, sys
from pathlib import Path
from fast_agent.config import Settings
from fast_agent.context import initialize_context
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from fast_agent.skills.mcp_registry import install_mcp_registry_skill, scan_mcp_skill_registry
async def main():
    vade, project, place = sys.argv[1:]
    server = {"command": vade, "args": ["mcp", "--project", project]}
    context = await initialize_context(Settings(mcp={"servers": {"vade": server}}))
    async with MCPAggregator(["vade"], connection_persistence=True, context=context) as client:
        for skill in (await scan_mcp_skill_registry(client, "vade")).skills:
            await install_mcp_registry_skill(client, skill, destination_root=Path(place))
asyncio.run(main())
"""


def client_of(distribution: str, python: str, place: Path) -> str:
    """An environment of that Python with the client in it."""
    environment = place / "venv"
    subprocess.run([python, "-m", "venv", str(environment)], check=True, timeout=120)
    python = str(environment / "bin/python")
    (place / "overrides.txt").write_text("certifi\n")  # a mirror may not have the newest certificates
    words = [sys.executable, "-m", "uv", "pip", "install", "--python", python, "--override", "overrides.txt"]
    done = subprocess.run(
        [*words, distribution], cwd=place, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        pytest.skip(f"{distribution} cannot be installed: {done.stderr[-300:]}")
    return python


def run_client(place: Place, *words: str) -> str:
    done = subprocess.run(
        words, cwd=place.home, env=place.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_fastmcp_is_a_client(place: Place, tmp_path: Path) -> None:
    python = client_of("fastmcp>=4.1", sys.executable, tmp_path)
    found = json.loads(run_client(place, python, "-c", FASTMCP, VADE, str(place.cwd)))
    assert {"skill://alpha/SKILL.md", "skill://alpha/scripts/run.py"} <= set(found)
    assert all(found.values())


def test_fast_agent_is_a_client(place: Place, tmp_path: Path) -> None:
    python = client_of("fast-agent-mcp>=0.10.48", interpreter("3.13"), tmp_path)
    copies = tmp_path / "copies"
    copies.mkdir()
    run_client(place, python, "-c", FAST_AGENT, VADE, str(place.cwd), str(copies))
    assert {"alpha", "file-diff"} <= {copy.name for copy in copies.iterdir()}
    for path in ("SKILL.md", "scripts/run.py"):
        ours = place.cwd / ".agent/skills/alpha" / path
        assert (copies / "alpha" / path).read_bytes() == ours.read_bytes()
