"""L2: over thousands of real skills, the trigger evaluation says of search what the search benchmark says."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.library import trigger_set, write_library
from bench.search import Judge

from tests.evals.support import write
from tests.support import DATA
from vademecum import IndexOptions, Root, build_index
from vademecum.evals.engines import Threads
from vademecum.evals.evaluating import Evaluator
from vademecum.evals.performing import Performer
from vademecum.evals.plan import Configuration
from vademecum.evals.reading import Suite, read_suite
from vademecum.evals.summary import summarise
from vademecum.evals.workshop import Workshop
from vademecum.search.engine import WEIGHTS

if not (DATA / "search").is_dir():
    pytest.skip(f"no search data in {DATA}", allow_module_level=True)


pytestmark = pytest.mark.extras


def test_the_trigger_evaluation_reproduces_the_search_benchmark(tmp_path: Path) -> None:
    names = write_library(tmp_path / "library")
    index = build_index([Root(tmp_path / "library", "extra")], IndexOptions(cache=tmp_path / "cache"))
    suite = read_suite(write(tmp_path / "triggers.json", trigger_set(names)))
    assert (len(index), len(suite.cases), suite.malformed) == (3222, 1006, ())
    some = Suite(suite.name, suite.place, suite.cases)
    performer = Performer(Workshop(index, tmp_path / "out"))
    evaluation = Evaluator(Threads(2), performer).evaluate(some, [Configuration("default")])
    (column,) = summarise(evaluation).columns
    assert column.triggers is not None
    assert column.errors == column.timeouts == 0
    places = Judge(bodies=True).ranks(WEIGHTS)
    assert column.triggers.wanted == len(places)
    assert column.triggers.ranked_first == sum(place == 0 for _, place in places)
    assert column.triggers.overall.right <= column.triggers.ranked_first
    assert (column.triggers.overall.recall or 0) > 0.4
