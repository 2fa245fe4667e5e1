"""O5: evaluations that are killed, interrupted or take too long: what is finished is kept, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.support import Stage
from tests.evals.support import BASE, Lab, StartedBy, case, final, script, select, tool, write
from tests.support import VADE, Place
from vademecum.evals.pool import Processes
from vademecum.evals.results import read_evaluation
from vademecum.evals.units import plan
from vademecum.models.base import Reply
from vademecum.runs.stored import read_run, run_ids


def _settled(place: Path) -> list[tuple[Any, ...]]:
    found = read_evaluation(place)
    assert found.missing == 0
    return [(r.key, r.case, r.outcome, r.checks, r.skills, r.answer, r.turns) for r in found.results]


@pytest.mark.extras  # twelve seconds
def test_killed_at_twenty_random_points_it_ends_the_same(place: Place, tmp_path: Path) -> None:
    """Each time another part is done; at the end everything is there once, as if nothing had happened."""
    turns = [{"seconds": 0.02, "reply": select("file-diff")}, tool("read_file", path="a.txt"), final("done")]
    cases = [
        {"id": f"c{n}", "input": "x", "files": {"a.txt": "x"}, "mock": {"turns": turns}, "expected": {"output": "done" if n % 3 else "other"}}
        for n in range(100)
    ]  # fmt: skip
    suite = write(tmp_path / "cases.json", cases)
    for name, kills in (("killed", 20), ("whole", 0)):
        words = [sys.executable, "-m", "tests.evals.killing", str(suite), str(tmp_path / name), str(kills)]
        env = {**place.env, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(words, cwd=place.cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert _settled(tmp_path / "killed") == _settled(tmp_path / "whole")
    lines = (tmp_path / "killed/results.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == 100


def interrupted(
    place: Place, suite: Path, out: Path, rooms: Path, *, after: Callable[[], bool]
) -> tuple[int, str]:
    """Run a suite, and stop it as Ctrl-C does once something is so."""
    process = subprocess.Popen(
        [VADE, "eval", "run", str(suite), "--yes", "-j", "2", "--out", str(out)],
        cwd=place.cwd,
        env={**place.env, "TMPDIR": str(rooms)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not after() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_ctrl_c_keeps_what_is_finished(place: Place, tmp_path: Path, rooms: Path) -> None:
    turns = [{"seconds": 0.05, "reply": final("done")}]
    suite = write(
        tmp_path / "cases.json", [{"id": f"c{n}", "input": "x", "mock": {"turns": turns}} for n in range(200)]
    )
    out = tmp_path / "out"
    results = out / "results.jsonl"

    def after() -> bool:
        return results.exists() and results.read_bytes().count(b"\n") >= 5

    code, err = interrupted(place, suite, out, rooms, after=after)
    assert code == 130
    kept = len(results.read_text().splitlines())
    assert 5 <= kept < 200
    assert f"{kept:,} of 200 runs are kept; the same command continues from there" in err
    assert not list(rooms.iterdir())


def test_ctrl_c_ends_what_is_running_and_tidies_up(place: Place, tmp_path: Path, rooms: Path) -> None:
    """A script that would run for a minute, and a model that takes its time: no room, no process, whole records."""
    Stage(place).script("slow", "import time\nprint('here', flush=True)\ntime.sleep(55)\n")
    turns = [select("slow"), script("slow", "scripts/x.py"), final()]
    cases = [
        {"id": "script", "input": "x", "mock": {"turns": turns}},
        {"id": "model", "input": "x", "mock": {"turns": [{"seconds": 50, "reply": final()}]}},
    ]
    suite, out = write(tmp_path / "cases.json", cases), tmp_path / "out"

    def after() -> bool:
        return any(b"here" in file.read_bytes() for file in out.glob("runs/*/calls/*/stdout"))

    assert interrupted(place, suite, out, rooms, after=after)[0] == 130
    assert not list(rooms.iterdir())
    runs = [read_run(out / "runs", run) for run in run_ids(out / "runs")]
    assert [run.status for run in runs] == ["interrupted", "interrupted"]
    held = [call.data for run in runs for call in run.events if call.type == "tool_called"]
    assert [call["code"] for call in held] == ["interrupted"]
    assert (out / "results.jsonl").read_bytes() == b""


def test_time_that_is_over_before_it_begins(lab: Lab, rooms: Path) -> None:
    slow = case("x", {"seconds": 50, "reply": final()}, constraints={"max_seconds": 0.000001})
    result = lab.one(slow)
    assert (result.outcome, result.error) == ("timeout", "It did not finish within 1e-06 s.")
    assert not list(rooms.iterdir())


def is_waiting(runs: Path, *, script: bool) -> bool:
    """Whether a run there waits for its script, or for its model."""
    if script:
        return any(b"here" in file.read_bytes() for file in runs.glob("*/calls/*/stdout"))
    return any(b"model_asked" in file.read_bytes() for file in runs.glob("*/events.jsonl"))


class Endless:
    """A model that does not answer."""

    name = "endless"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
        time.sleep(60)
        return Reply(json.dumps(final()))


class Deaf:
    """A model that does not end when it is told to."""

    name = "deaf"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)


class Deadly:
    """A model that takes its process with it."""

    name = "deadly"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Heavy:
    """A model that a new process needs a second to receive."""

    name = "heavy"

    def __setstate__(self, _: Any) -> None:
        time.sleep(1)

    def __getstate__(self) -> str:
        return "anything, so that it is restored by __setstate__"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Reply:
        return Reply(json.dumps(final("done")))


def test_the_time_of_a_run_begins_when_its_process_has_started(lab: Lab) -> None:
    """A process that starts more slowly than a run may take is neither interrupted nor killed."""
    lab.models["heavy"] = Heavy()
    seconds = chain([0.0], repeat(50.0))
    lab.clock = lambda: next(seconds)
    only = case("x", constraints={"max_seconds": 0.9}, expected={"output": "done"})
    result = lab.one(only, msgspec.structs.replace(BASE, model="heavy"))
    assert (result.outcome, result.error) == ("pass", "")


@pytest.mark.parametrize("what", ["model", "script", "mock"])
def test_what_takes_too_long_is_ended(lab: Lab, rooms: Path, what: str) -> None:
    """Whatever a run waits for when its time is over, it comes back as a time-out, and nothing of it is left."""
    Stage(lab.place).script("slow", "import time\nprint('here', flush=True)\ntime.sleep(55)\n")
    lab.clock = StartedBy(lambda: is_waiting(lab.out / "runs", script=what == "script"))
    lab.models["endless"] = Endless()
    turns: dict[str, list[Any]] = {
        "model": [],
        "script": [select("slow"), script("slow", "scripts/x.py"), final()],
        "mock": [{"seconds": 50, "reply": final()}],
    }
    only = case("x", *turns[what], constraints={"max_seconds": 0.5})
    result = lab.one(only, msgspec.structs.replace(BASE, model="case" if turns[what] else "endless"))
    assert (result.outcome, result.error) == ("timeout", "It did not finish within 0.5 s.")
    assert not list(rooms.iterdir())
    assert read_run(lab.out / "runs", result.run).status in {"failed", "interrupted"}


@pytest.mark.parametrize(
    ("model", "outcome", "said"),
    [
        (Deaf(), "timeout", "It did not finish within 0.5 s."),
        (Deadly(), "error", "Its process ended while it ran (signal 9)."),
    ],
)
def test_a_process_that_does_not_end_or_dies_keeps_nobody_waiting(
    lab: Lab, rooms: Path, model: Any, outcome: str, said: str
) -> None:
    """Its unit says what became of it, another process takes its place, and the others are done."""
    lab.clock = StartedBy(lambda: is_waiting(lab.out / "runs", script=False))
    slow = case("slow", constraints={"max_seconds": 0.5})
    others = [case(f"c{n}", final()) for n in range(4)]
    lab.models["it"] = model
    units = plan([slow], [msgspec.structs.replace(BASE, model="it")], lab.workshop())
    units += plan(others, [BASE], lab.workshop())
    engine = Processes(1, grace=0.2, clock=lab.clock)
    found = list(engine.run(units, lab.workshop()))
    assert [(result.case, result.outcome) for result in found] == [
        ("slow", outcome),
        *((each.id, "pass") for each in others),
    ]
    assert found[0].error == said
    assert not list(rooms.iterdir())
