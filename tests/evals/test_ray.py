"""L2: the same units on a Ray that really runs here."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool
from vademecum.errors import ConfigError
from vademecum.evals.cases import Case
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.on_ray import OnRay
from vademecum.evals.pool import EvalEngine, Processes
from vademecum.evals.results import CaseResult
from vademecum.evals.suite import Suite
from vademecum.evals.units import Configuration, EvalSettings
from vademecum.models.base import Reply
from vademecum.runs.stored import read_run, run_ids


@pytest.fixture
def _ray() -> None:
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("CI"):
            pytest.fail("ray is not installed")
        pytest.skip("ray is not installed: make test-extras brings it")


class Deadly:
    """A model that kills or stops the process it runs in."""

    name = "deadly"

    def reply(self, messages: Any, *, schema: Any, on_text: Any = None) -> Reply:
        asked = str(messages[-1].content)
        if "killed" in asked:
            os.kill(os.getpid(), signal.SIGKILL)
        if "frozen" in asked:
            os.kill(os.getpid(), signal.SIGSTOP)
        return Reply(json.dumps(final("好")))


def evaluate(
    lab: Lab, out: Path, cases: list[Case], engine: EvalEngine, way: Configuration = BASE, **more: Any
) -> list[CaseResult]:
    workshop = EvalSettings(lab.place.build(), out, None, {"PATH": os.environ["PATH"]}, lab.models)
    suite = Suite("suite", tuple(cases))
    return list(Evaluator(engine, workshop, **more).evaluate(suite, [way]).results)


pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("_ray"),
    pytest.mark.filterwarnings("default"),
]


def test_ray_gives_what_processes_give(lab: Lab, tmp_path: Path) -> None:
    # Written before the skill is loaded, whose `allowed-tools` does not name writing.
    turns = [tool("write_file", path="a.txt", content="x"), select("file-diff"), final("好")]
    expected = {"skills_any_of": ["file-diff"], "output": {"contains": "好", "files": [{"path": "a.txt"}]}}
    cases = [
        case(f"c{n}", *turns, expected=expected, constraints={"max_turns": 2 if n % 4 == 0 else 9})
        for n in range(12)
    ]
    found = {}
    engines: dict[str, EvalEngine] = {"local": Processes(2), "ray": OnRay(2)}
    for name, engine in engines.items():
        results = evaluate(lab, tmp_path / name, cases, engine)
        found[name] = [(r.key, r.case, r.outcome, r.checks, r.skills, r.answer, r.turns) for r in results]
    assert found["ray"] == found["local"]
    assert [outcome for _, _, outcome, *_ in found["ray"]] == [
        "fail" if n % 4 == 0 else "pass" for n in range(12)
    ]


def test_ray_ends_what_takes_too_long_and_loses_nothing_with_a_worker(lab: Lab, tmp_path: Path) -> None:
    """Time-outs, a process that is killed, or that only stops: the others are done all the same."""
    lab.models["deadly"] = Deadly()
    slow = case("slow", {"seconds": 50, "reply": final()}, constraints={"max_seconds": 0.3})
    cases = [
        *(case(name, input=name, constraints={"max_seconds": 120}) for name in ("killed", "good", "fine")),
        case("frozen", input="frozen", constraints={"max_seconds": 0.3}),
    ]
    way = msgspec.structs.replace(BASE, model="deadly", seconds=1.0)
    found = evaluate(lab, tmp_path / "out", cases, OnRay(2), way)
    assert [(r.case, r.outcome) for r in found] == [
        ("killed", "error"),
        ("good", "pass"),
        ("fine", "pass"),
        ("frozen", "timeout"),
    ]
    assert "signal 9" in found[0].error
    late = evaluate(lab, tmp_path / "late", [slow, case("good", final())], OnRay(2))
    assert [r.outcome for r in late] == ["timeout", "pass"]
    assert late[0].error.startswith("It did not finish within 0.3 s")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for rooms whose name is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="vr-", dir="/tmp", ignore_cleanup_errors=True) as place:
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


def test_an_interruption_ends_workers_cleanly(lab: Lab, tmp_path: Path, short: Path) -> None:
    cases = [case("quick", final()), case("slow", {"seconds": 50, "reply": final()})]

    def progress(*, done: int, total: int, result: CaseResult | None) -> None:
        if result is not None:
            while not (runs := run_ids(tmp_path / "out/runs")) or len(runs) < 2:
                time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(lab, tmp_path / "out", cases, OnRay(2), progress=progress)
    runs = [read_run(tmp_path / "out/runs", run) for run in run_ids(tmp_path / "out/runs")]
    assert sorted(run.status for run in runs) == ["done", "interrupted"]
    assert not list(short.glob("vade-eval-*"))
    assert not (tmp_path / "out/results.jsonl").read_text().count("slow")


def test_more_workers_than_there_are_is_said(lab: Lab, tmp_path: Path) -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        with pytest.raises(
            ConfigError, match="The cluster has 1 CPUs, and 2 workers need one each: use -j 1"
        ):
            evaluate(lab, tmp_path / "out", [case("a", final()), case("b", final())], OnRay(2))
    finally:
        ray.shutdown()
