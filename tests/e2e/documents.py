"""What the tests of the documentation share: its pages, what stands in their blocks, and how a page is followed."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.forks import forks

TOP = Path(__file__).parents[2]
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_PLAIN = re.compile(r"vade [^|&;<>$`*~()]+")
_QUESTION = re.compile(r"or \[n\]o: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Fence:
    """A block of a page: what kind it is, the file that it is if it has a title, and its text."""

    kind: str
    file: str
    text: str

    @property
    def without_comments(self) -> tuple[str, str, str]:
        """What both languages must have alike: comments in a program may be in the page's own."""
        text = as_shown(self.text, Path("/nonexistent"))
        if self.kind in {"python", "yaml", "toml"} and not self.file:
            text = re.sub(r" *(?<!\S)# .*", "", text)
        return self.kind, self.file, text


@dataclass
class Step:
    """What a reader does next: writes a file, or runs a command and sees what is shown below it."""

    command: str = ""
    shown: str = ""
    file: str = ""

    @property
    def answers(self) -> list[str]:
        """What the reader types where the command asks."""
        return _QUESTION.findall(self.shown)


def text_of(page: str) -> str:
    return (TOP / page).read_text("utf-8")


def prose_of(page: str) -> str:
    return _FENCE.sub("", text_of(page))


@cache
def fences(page: str) -> list[Fence]:
    found = []
    for info, text in _FENCE.findall(text_of(page)):
        title = _TITLE.search(info)
        found.append(Fence(info.split(" ")[0], title[1] if title else "", text))
    return found


def python_blocks(page: str) -> list[str]:
    return [fence.text for fence in fences(page) if fence.kind == "python" and not fence.file]


def steps(page: str) -> list[Step]:
    found: list[Step] = []
    for fence in fences(page):
        if fence.file:
            found.append(Step(file=fence.file, shown=fence.text))
        if fence.kind != "console":
            continue
        for line in fence.text.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append(Step(line[2:].rstrip("\n")))
            else:
                found[-1].shown += line
    return found


def pages() -> list[str]:
    """The English pages: all there are, so that a new one is tested without a word here."""
    found = [path.relative_to(TOP).as_posix() for path in sorted(TOP.glob("docs/**/*.md"))]
    return [
        "README.md",
        *(name for name in found if not name.endswith(".zh.md") and not name.startswith("docs/decisions/")),
    ]


def chinese(page: str) -> str:
    return "README.zh-CN.md" if page == "README.md" else f"{page.removesuffix('.md')}.zh.md"


def headings(page: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", prose_of(page), re.MULTILINE)]


def rows(page: str) -> list[int]:
    """How many cells each row of each table has."""
    tables = re.findall(r"^\|.*\|$", prose_of(page), re.MULTILINE)
    return [len(re.findall(r"(?<!\\)\|", row)) for row in tables]


def links(page: str) -> set[str]:
    """Where the links of a page lead; the places inside a page bear the names of its own language."""
    return set(re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose_of(page)))


def as_shown(text: str, home: Path) -> str:
    """A text without what is different each time and everywhere."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    text = re.sub(r"(sha256|key):[0-9a-f]{12,}", r"\1:DIGEST", text)
    text = re.sub(r"[^\s'\"]*/vademecum/builtin", "builtin", text.replace(str(home), "~"))
    text = re.sub(r"sandbox: .*", "sandbox: here", text)
    text = re.sub(r"[✓!] packages: .*", "packages: here", text)  # uv may not be installed
    text = re.sub(r"\d+\.\d+ s\b", "0.05 s", text)
    text = re.sub(r"(?m)^ +\d+\.\d\d(?=  \S )", "   0.05", text)
    text = re.sub(r"since \d{4}-\d\d-\d\d", "since today", text)
    text = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{7}\b", "RUN", text)
    return re.sub(r"on Python \S+ \(\w+\)", "on Python 3 (here)", text)


def perform(step: Step, *, cwd: Path, env: dict[str, str], forked: bool = False) -> str:
    """Do one step as a reader does it, and return what the terminal showed.

    ``forked`` saves the start of an interpreter where a command is nothing but ``vade`` and its words.
    """
    if step.file:
        file = cwd / step.file.replace("~", env["HOME"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(step.shown, "utf-8")
        return step.shown
    if step.answers:
        return _at_a_terminal(step, cwd=cwd, env=env)
    if forked and _PLAIN.fullmatch(step.command):
        words = shlex.split(step.command)[1:]
        _, out, err = forks().run(words, cwd=str(cwd), env=env, timeout=60)
        return _in_order(step, out, err, Path(env["HOME"]))
    words = ["bash", "-c", step.command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return _in_order(step, done.stdout, done.stderr, Path(env["HOME"]))


def _in_order(step: Step, out: str, err: str, home: Path) -> str:
    """Both streams as a page shows them: a warning comes before the answer, a remark after it."""
    warned = as_shown(err + out, home) == as_shown(step.shown, home)
    return err + out if warned else out + err


def _at_a_terminal(step: Step, *, cwd: Path, env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", step.command],
        cwd=cwd,
        env={**env, "TERM": "dumb", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, waiting = b"", list(step.answers)
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if waiting and seen.count(b"or [n]o: ") > len(step.answers) - len(waiting):
            os.write(ours, f"{waiting.pop(0)}\n".encode())
    os.close(ours)
    process.wait(timeout=60)
    text = seen.decode().replace("\r\n", "\n")
    return re.sub(r"[^\n]*\r?\x1b\[K", "", text)


@contextmanager
def language_model() -> Iterator[dict[str, str]]:
    """A server that speaks both wire formats: it loads a skill, then answers. Gives the environment for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(_reply(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _reply(path: str, body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    if path.endswith("/messages"):
        asked = isinstance(last["content"], str)
        use = {"type": "tool_use", "id": "t1", "name": "skill", "input": {"name": "file-diff"}}
        content = [use] if asked else [{"type": "text", "text": "They differ in one line."}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "tool_use" if asked else "end_turn", "stop_sequence": None, "usage": usage,
        }  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": "They differ in one line."}
    if last["role"] == "user":
        function = {"name": "skill", "arguments": '{"name": "file-diff"}'}
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "r1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
