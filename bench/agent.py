"""What the agent itself costs: `python -m bench.agent`. The model is scripted and takes no time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.measure import best, print_table
from vademecum import Agent, Budget, Context, build_index
from vademecum.agent.replay import replay
from vademecum.models import choose_model
from vademecum.models.scripted_model import Scripted
from vademecum.policy.engine import Policy
from vademecum.runs.record import Event
from vademecum.runs.stored import read_run

TURNS = 60
TEXT = "a line of an ordinary file\n" * 40


def turns(place: Path) -> list[list[str]]:
    """The cost of one turn, of the first ones and the last ones of a long run that reads files."""
    (place / "notes.txt").write_text(TEXT)
    action = {"type": "call_tool", "payload": {"tool": "read_file", "arguments": {"path": "notes.txt"}}}
    final = {"type": "final_answer", "payload": {"text": "done"}}
    context = Context(place, place / "home", {"PATH": os.environ["PATH"]})
    index = build_index(context=context)
    whole: list[list[float]] = []
    for _ in range(5):
        times: list[float] = []

        def note(event: Event, times: list[float] = times) -> None:
            if event.type == "model_asked":
                times.append(time.perf_counter())

        model = Scripted([{"action": action}] * TURNS + [{"action": final}])
        agent = Agent(model, index, context=context, budget=Budget(TURNS + 1, TURNS + 1), listener=note)
        agent.run("read it")
        whole.append([after - before for before, after in itertools.pairwise(times)])
    least = [min(column) * 1000 for column in zip(*whole, strict=True)]
    rows = []
    for name, part in (("2 to 6", least[1:6]), ("46 to 50", least[45:50])):
        rows.append([f"turns {name}", f"{sum(part) / len(part):.2f}", f"{part[0] / least[1]:.2f}", "1"])
    return rows


def prefixes(place: Path, count: int, protocol: str) -> list[str]:
    """How much of each request repeats the one before, over twelve turns against a server on loopback."""
    project = place / f"{count}-{protocol}"
    (project / ".git").mkdir(parents=True)
    for number in range(count - 4):
        skill = project / f".agent/skills/skill-{number:04}"
        skill.mkdir(parents=True)
        words = f"Does the kind of work that has the number {number}, with files, tables and reports of it."
        (skill / "SKILL.md").write_text(f"---\nname: skill-{number:04}\ndescription: {words}\n---\nDo it.\n")
    (project / "notes.txt").write_text(TEXT * 2)
    requests: list[dict[str, Any]] = []
    with serving(requests, protocol) as url:
        context = Context(project, place / "home", {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "none"})
        params = {"base_url": url, "protocol": protocol}
        model = choose_model("openai:bench", params, context=context)
        Agent(model, build_index(context=context), context=context).run("Read the notes, several times.")
    texts = [_as_read(request) for request in requests]
    pairs = [(before, _shared(before, after)) for before, after in itertools.pairwise(texts)]
    least = min(len(shared) / len(before) for before, shared in pairs)
    sent, repeated = sum(map(len, texts)), sum(len(shared) for _, shared in pairs)
    fresh = (sent - repeated) // len(texts)
    name = f"{count:,} skills, {'native tools' if protocol == 'tools' else 'JSON'}"
    return [name, f"{len(texts)}", f"{least:.1%}", f"{repeated / sent:.1%}", f"{fresh:,}"]


def _shared(one: str, other: str) -> str:
    ends = itertools.chain(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), [len(one)]
    )
    return one[: next(ends)]


def _as_read(request: dict[str, Any]) -> str:
    """A request in the order in which a provider reads it: tools and schema, then the messages."""
    head = [request.get("tools"), request.get("response_format")]
    return json.dumps(head) + "".join(json.dumps(message) for message in request["messages"])


@contextmanager
def serving(requests: list[dict[str, Any]], protocol: str) -> Iterator[str]:
    """A server that reads a file in eleven turns, and answers in the twelfth."""
    arguments = {"path": "notes.txt"}
    action = {"type": "call_tool", "payload": {"tool": "read_file", "arguments": arguments}}
    final = {"action": {"type": "final_answer", "payload": {"text": "Read."}}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            last = len(requests) == 12
            if protocol == "json":
                message: dict[str, Any] = {"content": json.dumps(final if last else {"action": action})}
            elif last:
                message = {"content": "Read."}
            else:
                function = {"name": "read_file", "arguments": json.dumps(arguments)}
                message = {"content": None, "tool_calls": [{"id": f"c{len(requests)}", "function": function}]}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with answering(Handler) as url:
        yield url


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1"
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def first_character(place: Path) -> list[list[str]]:
    """From a server's first piece of an answer to the moment at which it is shown."""
    sent: list[float] = []
    (place / ".git").mkdir(parents=True)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.flush()
            time.sleep(0.05)
            sent.append(time.perf_counter())
            for words in ("A", "nswer"):
                body = json.dumps({"choices": [{"delta": {"content": words}}]})
                self.wfile.write(f"data: {body}\n\n".encode())
                time.sleep(0.02)

        def log_message(self, *_: object) -> None:
            return

    took = []
    context = Context(place, place / "home", {"PATH": os.environ["PATH"]})
    index = build_index(context=context)
    with answering(Handler) as url:
        model = choose_model("openai:bench", {"base_url": url}, context=_with_key(context))
        for _ in range(10):
            shown: list[float] = []

            def note(event: Event, shown: list[float] = shown) -> None:
                if event.type == "answer_piece":
                    shown.append(time.perf_counter())

            Agent(model, index, context=context, listener=note).run("Answer.")
            took.append((shown[0] - sent[-1]) * 1000)
    return [["first character shown after it was sent", f"{min(took):.1f}", f"{sorted(took)[5]:.1f}", "20"]]


def _with_key(context: Context) -> Context:
    return replace(context, env={**context.env, "OPENAI_API_KEY": "none"})


def replaying(place: Path) -> list[list[str]]:
    runs = place / ".agent" / "runs"
    run_id = sorted(name for name in os.listdir(runs) if not name.startswith("."))[-1]
    events = read_run(runs, run_id).events
    many = tuple(Event(n, e.time, e.type, e.data) for n, e in enumerate((events * 10)[:1000], 1))
    context = Context(place, place / "home", {})
    index, policy = build_index(context=context), Policy.load(context)
    lines = b"".join(
        json.dumps({"n": e.number, "time": e.time, "type": e.type, **e.data}).encode() + b"\n" for e in many
    )
    copy = runs / "20990101-000000-0000000"
    copy.mkdir()
    (copy / "events.jsonl").write_bytes(lines)

    def whole() -> None:
        replay(read_run(runs, copy.name), index, policy)

    plain = best(lambda: [json.loads(line) for line in lines.splitlines()], 5) * 1000
    taken = best(whole, 5) * 1000
    return [
        ["1,000 events, plain JSON", f"{plain:.1f}", "1.00", ""],
        ["read and replayed", f"{taken:.1f}", f"{taken / plain:.2f}", "50"],
    ]


def command(place: Path) -> list[list[str]]:
    for name, text in (("a.txt", "a\nb\n"), ("b.txt", "a\nc\n")):
        (place / name).write_text(text)
    vade = str(Path(sys.executable).with_name("vade"))
    env = {"HOME": str(place / "home"), "PATH": os.environ["PATH"]}

    def run() -> None:
        words = [vade, "run", "Compare a.txt with b.txt", "--yes", "--quiet"]
        subprocess.run(words, cwd=place, env=env, check=True, stdout=subprocess.DEVNULL)

    def bare() -> None:
        script = Path(__file__).parents[1] / "src/vademecum/builtin/file-diff/scripts/compare.py"
        subprocess.run(
            [sys.executable, str(script), "a.txt", "b.txt"], cwd=place, check=False, stdout=subprocess.DEVNULL
        )

    run()
    floor, taken = best(bare, 5) * 1000, best(run, 7) * 1000
    return [
        ["the script alone", f"{floor:.0f}", "1.00", ""],
        ["vade run, offline, warm", f"{taken:.0f}", f"{taken / floor:.2f}", "250"],
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as directory:
        place = Path(directory)
        (place / "home").mkdir()
        (place / ".git").mkdir()
        print_table("One turn of a run, record on", ["", "ms", "x second turn", "at most"], turns(place))
        rows = [prefixes(place, count, protocol) for count in (4, 70, 1000) for protocol in ("tools", "json")]
        print_table(
            "Requests of one run that repeat the one before: at least 99 % of each, 85 % of all",
            ["", "requests", "least of one", "of all characters", "new characters a turn"],
            rows,
        )
        print_table(
            "A streamed answer", ["", "least ms", "median", "at most"], first_character(place / "streamed")
        )
        print_table("Replay", ["", "ms", "x plain", "at most"], replaying(place))
        print_table(
            "The whole command, sandbox and record included",
            ["", "ms", "x script", "at most"],
            command(place),
        )


if __name__ == "__main__":
    main()
