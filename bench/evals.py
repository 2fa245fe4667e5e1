"""Evaluating: `python -m bench.evals [--cases N] [--peers PYTHON]`. The baseline is the agent alone."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.library import DATA, trigger_set, write_library
from bench.measure import best, in_process, print_table
from bench.trees import WORDS
from vademecum import Agent, Context, IndexOptions, Root, SkillIndex, build_index
from vademecum.evals.cases import Case
from vademecum.evals.checks.trajectory import Trajectory, parse_constraint
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.pool import Processes
from vademecum.evals.reports.summary import summarise
from vademecum.evals.results import Evaluation
from vademecum.evals.suite import Suite
from vademecum.evals.units import Configuration, EvalSettings
from vademecum.models.scripted_model import Scripted
from vademecum.registry.roots import BUILTIN_ROOT
from vademecum.runs.record import Event

TURNS: list[dict[str, Any]] = [
    {"action": {"type": "select_skills", "payload": {"skills": [{"name": "file-diff"}]}}},
    {"action": {"type": "call_tool", "payload": {"tool": "read_file", "arguments": {"path": "a.txt"}}}},
    {"action": {"type": "final_answer", "payload": {"text": "a.txt says hello"}}},
]
EXPECTED = {
    "skills_any_of": ["file-diff"],
    "trajectory": [{"before": ["load_skill", "read_file"]}, {"never": "write_file"}],
    "output": "hello",
}
ROUNDS = 3
SIZES = (10, 100, 1000, 10_000)


def cases(count: int) -> tuple[Case, ...]:
    return tuple(
        Case.model_validate(
            {
                "id": f"c{n}",
                "input": f"What is in a.txt? ({n})",
                "files": {"a.txt": "hello"},
                "mock": {"turns": TURNS},
                "expected": EXPECTED,
            }
        )
        for n in range(count)
    )


def evaluated(
    index: SkillIndex,
    found: tuple[Case, ...],
    out: Path,
    workers: int,
    ways: list[Configuration] | None = None,
) -> tuple[Evaluation, float]:
    workshop = EvalSettings(index, out, None, {"PATH": os.environ["PATH"]})
    started = time.perf_counter()
    done = Evaluator(Processes(workers), workshop).evaluate(
        Suite("bench", found), ways or [Configuration("default")]
    )
    return done, time.perf_counter() - started


def alone(index: SkillIndex, place: Path, count: int) -> float:
    """The same requests by the agent itself, one after the other, in one place."""
    (place / "home").mkdir(parents=True)
    (place / ".git").mkdir()
    (place / "a.txt").write_text("hello")
    context = Context(place, place / "home", {"PATH": os.environ["PATH"]})
    started = time.perf_counter()
    for n in range(count):
        Agent(Scripted(TURNS), index, context=context).run(f"What is in a.txt? ({n})")
    return count / (time.perf_counter() - started)


# The same shape: a tool call, an answer, a check that it holds a word. It keeps its log in one file.
INSPECT = """
import json, os, sys, tempfile, time
count = int(sys.argv[1])
os.chdir(tempfile.mkdtemp())
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool
@tool
def read_file():
    async def execute(path: str):
        '''Read a file.

        Args:
            path: The file.
        '''
        return "hello"
    return execute
def counted(output):
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it fetches a tokenizer
    return output
def outputs():
    while True:
        yield counted(ModelOutput.for_tool_call("mockllm/model", "read_file", {"path": "a.txt"}))
        yield counted(ModelOutput.from_content("mockllm/model", "a.txt says hello"))
model = get_model("mockllm/model", custom_outputs=outputs())
samples = [Sample(input=f"What is in a.txt? ({n})", target="hello") for n in range(count)]
task = Task(dataset=samples, solver=[use_tools(read_file()), generate()], scorer=includes())
started = time.perf_counter()
(log,) = eval(task, model=model, display="none", log_dir="logs")
seconds = time.perf_counter() - started
assert log.status == "success" and len(log.samples or []) == count, log.error
sys.stdout.write(json.dumps(count / seconds))
"""


def throughput(index: SkillIndex, place: Path, count: int, peers: str | None) -> None:
    base = max(alone(index, place / f"alone{n}", min(count, 300)) for n in range(ROUNDS))
    rows = [["the agent alone, one after the other", f"{base:,.0f}", "1.00", ""]]
    for workers in (1, 2):
        rate = 0.0
        for round_ in range(ROUNDS):
            done, seconds = evaluated(index, cases(count), place / f"out{workers}{round_}", workers)
            assert all(result.outcome == "pass" for result in done.results)
            rate = max(rate, count / seconds)
        least = "100" if workers == 2 else ""
        rows.append([f"vademecum, -j {workers}", f"{rate:,.0f}", f"{rate / base:.2f}", least])
    again = best(lambda: evaluated(index, cases(count), place / "out20", 2), 1)
    rows.append(
        ["vademecum, all results there already", f"{count / again:,.0f}", f"{count / again / base:.2f}", ""]
    )
    if peers:
        rate = max(in_process(INSPECT, str(count), python=peers) for _ in range(ROUNDS))
        rows.append(["Inspect AI, its mock model", f"{rate:,.0f}", f"{rate / base:.2f}", ""])
    print_table(
        f"{count:,} mock cases a second, each in its own copy, with its record",
        ["", "cases/s", "x alone", "at least"],
        rows,
    )


CONSTRAINTS = [
    {"require": "run_script"},
    {"require": {"kind": "run_script", "outcome": "ok"}},
    {"require": {"kind": "run_script", "arguments": {"args.0": "*.txt"}}},
    {"never": "write_file"},
    {"never": "delete_file"},
    {"never": {"kind": "run_script", "arguments": {"args.0": "re:^/etc"}}},
    {"never": {"kind": "tool", "outcome": "denied"}},
    {"forbid": "network_request"},
    {"must_occur": "run_script", "before": "final_answer"},
    {"before": ["run_script:s1/*", "run_script:s2/*"]},
    {"before": ["tool:run_script", "observation"]},
    {"after": "run_script", "then": {"kind": "run_script", "outcome": "ok"}},
    {"after": "run_script:s1/*", "then": "run_script:s2/*"},
    {"before": ["run_script:s1/*", "run_script:s3/*"]},
    {"never": "write_file"},
    {"sequence": ["run_script:s1/*", "run_script:s9/*", "run_script:s7/*"]},
    {"sequence": ["run_script", "run_script"], "mode": "exact"},
    {"sequence": ["run_script:s4/*", "run_script:s1/*"]},
    {"at_most": 1_000_000, "of": "run_script"},
    {"at_least": 5, "of": {"kind": "tool", "name": "re:script$"}},
]


def events(count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        payload = {
            "skill": {"name": f"s{len(found) // 5 % 50}"},
            "relative_path": "scripts/x.py",
            "args": ["a.txt"],
        }
        called = {"tool": "run_script", "parameters": {"arguments": ["a.txt"]}, "ok": True, "code": ""}
        for type_, data in (
            ("model_asked", {"turn": 1}),
            ("model_replied", {"text": "…"}),
            ("action", {"action": "run_script", "payload": payload}),
            ("tool_called", called),
            ("observation", {"code": ""}),
        ):
            found.append(Event(len(found) + 1, 0.0, type_, data))
    return found[:count]


def trajectories() -> None:
    wanted = [parse_constraint(each) for each in CONSTRAINTS]
    rows = []
    first = 0.0
    for count in (25_000, 50_000, 100_000):
        many = events(count)
        taken = best(lambda many=many: seen(wanted, many), 3)  # type: ignore[misc]
        first = first or taken / count
        limit = "2" if count == 100_000 else ""
        rows.append([f"{count:,} events", f"{taken:.2f}", f"{taken / count / first:.2f}", limit])
    print_table("20 constraints over the events of a run", ["", "s", "x an event", "at most"], rows)


def triggers(place: Path, *, sizes: tuple[int, ...]) -> None:
    """The offline model over real skills: all of them, then the same requests in libraries that grow."""
    names = write_library(place / "library")
    filler(place / "filler", max(0, sizes[-1] - len(names)))
    roots = [Root(place / "library", "extra"), Root(place / "filler", "extra")]
    real = build_index(roots[:1], IndexOptions(cache=place / "cache"))
    entries = trigger_set(names)
    whole = tuple(_case(entry, n) for n, entry in enumerate(entries))
    done, seconds = evaluated(real, whole, place / "all", 2)
    rows = [
        _row(f"{len(real):,} real skills, {len(whole):,} requests", done, "default", seconds / len(whole))
    ]
    grown = build_index(roots, IndexOptions(cache=place / "cache"))
    chosen = sorted({entry["skill"] for entry in entries}, key=hash_of)[: sizes[0]]
    few = tuple(case for case in whole if case.expects_skills[0] in chosen)
    ways = libraries(sizes, few, grown)
    done, seconds = evaluated(grown, few, place / "grown", 2, ways)
    rows += [_row(f"{way.name}, {len(few)} requests for 10", done, way.name, None) for way in ways]
    print_table(
        "Which skill takes whose request, offline model",
        ["library", "search first %", "precision %", "recall %", "ms a request"],
        rows,
    )


def seen(wanted: list[Any], events: list[Event]) -> None:
    watched = Trajectory(wanted)
    for event in events:
        watched.see(event)
    watched.verdicts()


def libraries(sizes: Sequence[int], cases: Sequence[Case], index: SkillIndex) -> list[Configuration]:
    """Libraries of several sizes: the skills that cases want come first, then others."""
    wanted = [name for case in cases for name in case.expects_skills]
    ordered = list(dict.fromkeys((*wanted, *sorted((skill.name for skill in index.skills), key=hash_of))))
    return [Configuration(f"{size:,} skills", skills=tuple(ordered[:size])) for size in sizes]


def hash_of(name: str) -> bytes:
    import hashlib

    return hashlib.sha256(name.encode()).digest()


def filler(root: Path, count: int) -> None:
    root.mkdir()
    import random

    chance = random.Random(5)
    for n in range(count):
        (root / f"made-up-{n}").mkdir(parents=True)
        words = " ".join(chance.choices(WORDS, k=20))
        text = f"---\nname: made-up-{n}\ndescription: {words}\n---\n{' '.join(chance.choices(WORDS, k=60))}\n"
        (root / f"made-up-{n}" / "SKILL.md").write_text(text)


def _case(entry: dict[str, Any], n: int) -> Case:
    expected = {"skills_any_of": [entry["skill"]]}
    return Case.model_validate(
        {"id": f"t{n}", "input": entry["query"], "expected": expected, "until": "loaded"}
    )


def _row(title: str, done: Evaluation, name: str, seconds: float | None) -> list[str]:
    column = next(column for column in summarise(done).columns if column.configuration == name)
    assert column.triggers is not None
    found = column.triggers
    precision, recall = found.overall.precision or 0.0, found.overall.recall or 0.0
    first = 100 * found.ranked_first / found.wanted
    spent = seconds if seconds is not None else column.cost.seconds
    return [title, f"{first:.1f}", f"{100 * precision:.1f}", f"{100 * recall:.1f}", f"{1000 * spent:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has inspect-ai")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vade-evals-") as directory:
        place = Path(directory)
        index = build_index([BUILTIN_ROOT], IndexOptions(cache=place / "cache"))
        throughput(index, place, options.cases, options.peers)
        trajectories()
        if DATA.is_dir():
            triggers(place, sizes=tuple(size for size in SIZES if size <= max(100, 10 * options.cases)))
        else:
            print(f"\nNo trigger evaluation: {DATA} is not there (set VADE_SHARED_DATA).")


if __name__ == "__main__":
    main()
