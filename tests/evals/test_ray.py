"""L2: the same units on a Ray that really runs here."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool
from vademecum.evals.engines import Threads
from vademecum.evals.evaluating import Evaluator
from vademecum.evals.on_ray import OnRay
from vademecum.evals.performing import Performer
from vademecum.evals.reading import Suite
from vademecum.evals.workshop import Workshop

pytestmark = pytest.mark.extras


@pytest.fixture
def _ray() -> None:
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("CI"):
            pytest.fail("ray is not installed")
        pytest.skip("ray is not installed: make test-extras brings it")


@pytest.mark.usefixtures("_ray")
@pytest.mark.filterwarnings("default")
def test_ray_gives_what_threads_give(lab: Lab, tmp_path: Path) -> None:
    turns = [select("file-diff"), tool("write_file", path="a.txt", content="x"), final("好")]
    expected = {"skills_any_of": ["file-diff"], "output": {"contains": "好", "files": [{"path": "a.txt"}]}}
    cases = [
        case(f"c{n}", *turns, expected=expected, constraints={"max_turns": 2 if n % 4 == 0 else 9})
        for n in range(12)
    ]
    suite = Suite("suite", "", tuple(cases))
    found = {}
    for name, engine in (("threads", Threads(2)), ("ray", OnRay(2))):
        performer = Performer(
            Workshop(lab.place.build(), tmp_path / name, None, {"PATH": os.environ["PATH"]})
        )
        results = Evaluator(engine, performer).evaluate(suite, [BASE]).results
        found[name] = [(r.key, r.case, r.outcome, r.checks, r.skills, r.answer, r.turns) for r in results]
    assert found["ray"] == found["threads"]
    assert [outcome for _, _, outcome, *_ in found["ray"]] == [
        "fail" if n % 4 == 0 else "pass" for n in range(12)
    ]
