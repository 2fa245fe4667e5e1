"""The example agents, run as a person would, against a loopback server that speaks the wire format."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support import PYTHON, Place

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def model(replies: list[dict[str, Any]], asked: list[dict[str, Any]]) -> Iterator[str]:
    """A server that gives the replies in turn, and keeps what it was asked."""
    waiting = iter(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append({"path": self.path, "headers": dict(self.headers), "body": json.loads(body)})
            data = json.dumps(next(waiting)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(place: Place, example: str, **env: str) -> str:
    words = [PYTHON, str(EXAMPLES / example), "Compare a.txt with b.txt"]
    done = subprocess.run(
        words, cwd=place.cwd, env=place.env | env, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_openai(place: Place) -> None:
    def call(number: int, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        }
        return {"choices": [{"message": message}]}

    replies: list[dict[str, Any]] = [
        call(1, "search_skills", {"query": "compare files"}),
        call(2, "skill", {"name": "file-diff"}),
        call(3, "skill", {"name": "no-such-skill"}),
        {"choices": [{"message": {"role": "assistant", "content": "They differ."}}]},
    ]
    asked: list[dict[str, Any]] = []
    with model(replies, asked) as url:
        assert (
            run(place, "openai_agent.py", OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="k") == "They differ."
        )
    assert [request["path"] for request in asked] == ["/v1/chat/completions"] * 4
    assert asked[0]["headers"]["Authorization"] == "Bearer k"
    assert "<name>\nfile-diff\n</name>" in asked[0]["body"]["messages"][0]["content"]
    results = [message["content"] for message in asked[-1]["body"]["messages"] if message["role"] == "tool"]
    assert json.loads(results[0])[0]["name"] == "file-diff"
    assert results[1].startswith('<skill_content name="file-diff"')
    assert results[2].startswith("No skill is called 'no-such-skill'")


def test_anthropic(place: Place) -> None:
    replies: list[dict[str, Any]] = [
        {
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "load_skill", "input": {"skill_name": "file-diff"}},
            ]
        },
        {
            "content": [
                {
                    "type": "tool_use",
                    "id": "t2",
                    "name": "get_skill_script_path",
                    "input": {"skill_name": "file-diff", "script_name": "compare.py"},
                }
            ]
        },
        {"content": [{"type": "text", "text": "They differ."}]},
    ]
    asked: list[dict[str, Any]] = []
    with model(replies, asked) as url:
        assert (
            run(place, "anthropic_agent.py", ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="k") == "They differ."
        )
    assert asked[0]["headers"]["X-Api-Key"] == "k"
    last = asked[-1]["body"]["messages"]
    assert last[2]["content"][0]["content"].startswith('<skill_content name="file-diff"')
    assert (
        last[4]["content"][0]["is_error"],
        "run_script runs it in a sandbox" in last[4]["content"][0]["content"],
    ) == (
        True,
        True,
    )


def test_each_is_under_sixty_lines() -> None:
    for name in ("openai_agent.py", "anthropic_agent.py"):
        assert len((EXAMPLES / name).read_text().splitlines()) < 60
