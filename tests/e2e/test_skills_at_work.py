"""P1 to P7 as people meet them: the example skills with scripts and commands, from the request to the file."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult

from tests.support import UNDER_TEST, VADE, Place
from tests.tools.package_index import package_index, wheel
from vademecum.sandbox.available import network_by_host_problem, probe

SKILLS = Path(__file__).parents[2] / "examples" / "skills"
TOKEN = "tracker-token-0123456789"
# A package that draws nothing, under the name of one that takes long to install.
DRAWING = """
import struct, zlib

class _Drawn:
    def __getattr__(self, name):
        return lambda *words, **named: None

    def savefig(self, name, **_):
        def part(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
        pixels = zlib.compress(b"\\0\\0")
        with open(name, "wb") as file:
            file.write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", head) + part(b"IDAT", pixels) + part(b"IEND", b""))

def subplots(**_):
    return _Drawn(), _Drawn()
"""


@pytest.fixture
def project(place: Place) -> Place:
    """A project with all example skills in it."""
    (place.cwd / ".git").mkdir(exist_ok=True)
    shutil.copytree(SKILLS, place.cwd / ".agent" / "skills")
    return place


def rules(place: Place, *allowed: tuple[str, str]) -> None:
    """Write the user's rules."""
    written = [{"permission": p, "pattern": pattern, "effect": "allow"} for p, pattern in allowed]
    (place.home / ".agent").mkdir(parents=True, exist_ok=True)
    (place.home / ".agent/config.json").write_text(json.dumps({"permissions": written}))


def over_mcp(place: Place, *calls: tuple[str, dict[str, Any]], **env: str) -> list[Any]:
    """Make calls through ``vade mcp`` with a client that says yes."""
    found = []

    async def answer(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "allow once"})

    async def work() -> None:
        words = ["mcp", "--direct-tools", "--agent", "default"]
        server = StdioServerParameters(command=VADE, args=words, env=place.env | env, cwd=str(place.cwd))
        options: dict[str, Any] = {"elicitation_callback": answer}
        async with Client(stdio_client(server), **options) as client:
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result
                found.append(result)

    anyio.run(work)
    return found


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if hasattr(block, "text"))


def test_links_of_a_directory(project: Place) -> None:
    (project.cwd / "docs/sub").mkdir(parents=True)
    (project.cwd / "docs/a.md").write_text("[fine](sub/b.md), [gone](sub/c.md), [web](https://example.org)\n")
    (project.cwd / "docs/sub/b.md").write_text("[up](../a.md)\n")
    found = project.vade("exec", "--yes", "link-check", "check.py", "docs")
    assert (found.code, found.out) == (
        1,
        "docs/a.md:1: sub/c.md does not exist\n2 files, 4 links, 1 broken\n",
    )
    (project.cwd / "docs/sub/c.md").write_text("here now\n")
    found = project.vade("run", "Check the links in docs", "--yes")
    assert found.code == 0, found
    assert "3 files, 4 links, 0 broken" in found.out
    assert "0 broken" in project.vade("run", "$link-check 检查docs目录里的链接", "--yes").out
    loaded, ran = over_mcp(
        project,
        ("skill", {"name": "link-check"}),
        ("run_script", {"skill": "link-check", "relative_path": "check.py", "args": ["docs"]}),
    )
    assert "# Check links" in text_of(loaded)
    assert "3 files, 4 links, 0 broken" in text_of(ran)


@pytest.fixture
def drawn(project: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """A table to draw, and an index that has the package."""
    with open(project.cwd / "sales.csv", "w", newline="") as file:
        csv.writer(file).writerows([["month", "sold"], ["May", 12], ["June", 15]])
    with package_index() as index:
        files = {"matplotlib/__init__.py": "def use(name):\n    pass\n", "matplotlib/pyplot.py": DRAWING}
        index.add("matplotlib", wheel("matplotlib", "3.9", files=files), version="3.9")
        yield project, {"UV_DEFAULT_INDEX": index.url, "PATH": os.environ["PATH"]}


def picture(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert zlib.crc32(data[12:29]) == struct.unpack(">I", data[29:33])[0]
    return struct.unpack(">II", data[16:24])


@pytest.mark.skipif(importlib.util.find_spec("uv") is None or bool(UNDER_TEST), reason="uv is not installed")
def test_a_chart_from_a_table(drawn: tuple[Place, dict[str, Any]]) -> None:
    place, env = drawn
    refused = place.vade("exec", "csv-chart", "chart.py", "sales.csv", **env)
    assert refused.code == 3
    assert "packages 'csv-chart/matplotlib>=3.8'" in refused.err
    for number in range(3):
        words = ["--yes", "--out", ".", "csv-chart", "chart.py", "sales.csv", "-o", "out/chart.png"]
        found = place.vade("exec", *words, **env)
        assert (found.code, found.out) == (0, "drew sold of 2 rows by month\n"), (number, found.err)
        size = (place.cwd / "out/chart.png").stat().st_size
        assert f"vade: saved out/chart.png ({size} bytes)" in found.err
        picture(place.cwd / "out/chart.png")
    shown = place.vade("exec", "--json", "--yes", "csv-chart", "chart.py", "sales.csv", **env).json
    (output,) = shown["outputs"]
    assert (output["path"], output["output"]) == ("chart.png", "output:1/chart.png")
    picture(Path(output["file"]))
    assert (shown["packages_cached"], "--hash=sha256:" in shown["packages"]) == (True, True)
    saved = place.vade("runs", "outputs", "--out", "kept", "--json").json["outputs"]
    assert [each["saved"] for each in saved] == ["kept/chart.png"]
    picture(place.cwd / "kept/chart.png")
    page = place.cwd / "page.html"
    assert place.vade("runs", "show", shown["run_id"], "--html", str(page)).code == 0
    assert 'src="data:image/png;base64,' in page.read_text()
    asked = place.vade("run", "Draw a chart of sales.csv", "--yes", "--out", "drawn", "--json", **env).json
    assert (asked["status"], asked["outputs"][0]["saved"]) == ("done", "drawn/chart.png"), asked
    _, ran, _ = over_mcp(
        place,
        ("skill", {"name": "csv-chart"}),
        ("run_script", {"skill": "csv-chart", "relative_path": "chart.py", "args": ["sales.csv"]}),
        ("save_output", {"output": "output:1/chart.png", "path": "by-mcp.png"}),
        **env,
    )
    assert "It left output:1/chart.png" in text_of(ran)
    picture(place.cwd / "by-mcp.png")


@contextmanager
def tracker(asked: list[tuple[str, str]]) -> Iterator[int]:
    """An issue tracker on loopback that wants the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization", "")))
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            issues = [{"number": 7, "title": "It breaks", "labels": [{"name": "bug"}]}]
            data = json.dumps(issues if known else {}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_interface_with_a_token(project: Place) -> None:
    usable = next(name for name in ("bubblewrap", "landlock") if probe(name).sandbox is not None)
    if problem := network_by_host_problem(usable):
        pytest.skip(f"network by host does not work here: {problem}")
    asked: list[tuple[str, str]] = []
    with tracker(asked) as port:
        host, address = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"
        words = ["--network", host, "issue-list", "issues.py", address, "me/it"]
        found = project.vade("exec", "--yes", *words)
        assert (found.code, "There is no token" in found.err) == (1, True)
        set_secret = [VADE, "secrets", "set", "TRACKER_TOKEN", "--skill", "issue-list"]
        subprocess.run(set_secret, input=TOKEN, text=True, env=project.env, cwd=project.cwd, check=True)
        found = project.vade("exec", "--yes", *words)  # an address that is not public
        assert (found.code, "The tracker" in found.err) == (1, True)
        assert f"vade: {host} was not reached: deny private-network '{host}'." in found.err
        assert asked == []
        rules(project, ("private-network", host))
        found = project.vade("exec", "--yes", *words)
        assert (found.code, found.out) == (0, "#7 It breaks [bug]\n1 open issues\n"), found.err
        assert asked == [("/repos/me/it/issues?state=open&labels=", f"Bearer {TOKEN}")]
        assert project.vade("exec", "--yes", *words[2:]).code == 1  # without the network
        other = ["--network", "127.0.0.1:9", *words[2:]]
        assert project.vade("exec", "--yes", *other).code == 1  # with another host
        assert len(asked) == 1
        (project.cwd / ".agent/skills/issue-list/scripts/leak.py").write_text(
            "import base64, os\ntoken = os.environ['TRACKER_TOKEN']\n"
            "print(token, base64.b64encode(token.encode()).decode())\nopen('kept', 'w').write(token)\n"
        )
        found = project.vade("exec", "--yes", "--json", "issue-list", "leak.py")
        assert TOKEN not in found.out
        assert found.json["outputs"][0]["secret"] is True
        _, ran = over_mcp(
            project,
            ("skill", {"name": "issue-list"}),
            (
                "run_script",
                {
                    "skill": "issue-list",
                    "relative_path": "issues.py",
                    "args": [address, "me/it"],
                    "network": [host],
                },
            ),
        )
        assert "#7 It breaks [bug]" in text_of(ran)
    kept = [
        path for path in (project.cwd / ".agent/runs").rglob("*") if path.is_file() and path.name != "kept"
    ]
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_release_notes_by_commands_alone(project: Place) -> None:
    shutil.rmtree(project.cwd / ".git")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Add reports by mail"]):
        subprocess.run([*git, *words], cwd=project.cwd, check=True)
    log: dict[str, Any] = {
        "tool": "run_command",
        "arguments": {"argv": ["git", "log", "--no-merges", "--format=%s"]},
    }
    notes = "## 1.0.0\n\n### Added\n- Reports can be sent by mail.\n"
    write = {"tool": "write_file", "arguments": {"path": "CHANGELOG.md", "content": notes}}
    other = {"tool": "run_command", "arguments": {"argv": ["ls"]}}
    turns = [
        {"type": "select_skills", "payload": {"skills": ["release-notes"]}},
        {"type": "call_tool", "payload": log},
        {"type": "call_tool", "payload": other},
        {"type": "call_tool", "payload": write},
        {"type": "final_answer", "payload": {"text": "Reports by mail."}},
    ]
    (project.cwd / "turns.json").write_text(json.dumps([{"action": turn} for turn in turns]))
    refused = project.vade("run", "Write release notes", "--model", "scripted:turns.json")
    assert not (project.cwd / "CHANGELOG.md").exists(), refused
    allowed = ["--allow", "run_command(git log *)", "--allow", "write_file(CHANGELOG.md)"]
    found = project.vade("run", "Write release notes", "--model", "scripted:turns.json", *allowed)
    assert found.out == "Reports by mail.\n", found
    assert (project.cwd / "CHANGELOG.md").read_text() == notes
    events = project.vade("runs", "show", "--json").json["events"]
    called = [(event["tool"], event["code"]) for event in events if event["type"] == "tool_called"]
    assert called == [("run_command", ""), ("run_command", "denied"), ("write_file", "")]
    assert "Add reports by mail" in next(e for e in events if e["type"] == "tool_called")["result"]["text"]
    _, ran = over_mcp(project, ("skill", {"name": "release-notes"}), ("run_command", log["arguments"]))
    assert "Add reports by mail" in text_of(ran)
