"""What the agent itself costs: `python -m bench.agent`. The model is scripted and takes no time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import best, print_table
from vademecum import Agent, Budget, Context, build_index
from vademecum.agent.replay import replay
from vademecum.models.by_script import Scripted
from vademecum.policy.engine import Policy
from vademecum.runs.reading import read_run
from vademecum.runs.record import Event

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
        ["vade run, offline, warm", f"{taken:.0f}", f"{taken / floor:.2f}", "500"],
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vade-bench-") as directory:
        place = Path(directory)
        (place / "home").mkdir()
        (place / ".git").mkdir()
        print_table("One turn of a run, record on", ["", "ms", "x second turn", "at most"], turns(place))
        print_table("Replay", ["", "ms", "x plain", "at most"], replaying(place))
        print_table(
            "The whole command, sandbox and record included",
            ["", "ms", "x script", "at most"],
            command(place),
        )


if __name__ == "__main__":
    main()
