"""L2: over thousands of real skills, the trigger evaluation says of search what the search benchmark says."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.evals import filler, libraries
from bench.library import queries, trigger_set, write_library
from bench.search import ranks

from tests.evals.support import write
from tests.support import DATA
from vademecum import Finder, IndexOptions, Root, build_index
from vademecum.evals.evaluator import Evaluator
from vademecum.evals.pool import Processes
from vademecum.evals.reports.summary import summarise
from vademecum.evals.suite import Suite, read_suite
from vademecum.evals.units import Configuration, EvalSettings

if not (DATA / "search").is_dir():
    pytest.skip(f"no search data in {DATA}", allow_module_level=True)


pytestmark = pytest.mark.extras


def test_the_trigger_evaluation_reproduces_the_search_benchmark(tmp_path: Path) -> None:
    names = write_library(tmp_path / "library")
    index = build_index([Root(tmp_path / "library", "extra")], IndexOptions(cache=tmp_path / "cache"))
    suite = read_suite(write(tmp_path / "triggers.json", trigger_set(names)))
    assert (len(index), len(suite.cases), suite.malformed) == (3222, 1006, ())
    some = Suite(suite.name, suite.cases)
    performer = EvalSettings(index, tmp_path / "out")
    evaluation = Evaluator(Processes(2), performer).evaluate(some, [Configuration("default")])
    (column,) = summarise(evaluation).columns
    assert column.triggers is not None
    assert column.errors == column.timeouts == 0
    places = ranks(Finder(index), names, queries())
    assert column.triggers.wanted == len(places)
    assert column.triggers.ranked_first == sum(place == 0 for _, place in places)
    first = {result.case: list(result.ranked[:1]) for result in evaluation.results}
    assert [first[case.id] == list(case.expected.skills_any_of[:1]) for case in some.cases] == [
        place == 0 for _, place in places
    ]
    assert column.triggers.overall.right <= column.triggers.ranked_first
    assert (column.triggers.overall.recall or 0) > 0.4


def test_how_a_library_that_grows_changes_who_takes_whose_request(tmp_path: Path) -> None:
    """The same requests among 10, 1,000 and 10,000 skills: every size holds the wanted ones, none helps search."""
    names = write_library(tmp_path / "library")
    filler(tmp_path / "filler", 10_000 - len(names))
    roots = [Root(tmp_path / "library", "extra"), Root(tmp_path / "filler", "extra")]
    index = build_index(roots, IndexOptions(cache=tmp_path / "cache"))
    entries = trigger_set(names)
    chosen = sorted({entry["skill"] for entry in entries})[:10]
    wanted = [entry for entry in entries if entry["skill"] in chosen]
    suite = read_suite(write(tmp_path / "triggers.json", wanted))
    ways = libraries([10, 1000, 10_000], suite.cases, index)
    assert [(way.name, len(way.skills or ())) for way in ways] == [
        ("10 skills", 10),
        ("1,000 skills", 1000),
        ("10,000 skills", 10_000),
    ]
    assert all(set(chosen) <= set(way.skills or ()) for way in ways)
    performer = EvalSettings(index, tmp_path / "out")
    columns = summarise(Evaluator(Processes(2), performer).evaluate(suite, ways)).columns
    found = [column.triggers for column in columns if column.triggers is not None]
    assert [each.wanted for each in found] == [len(wanted)] * 3
    first = [each.ranked_first for each in found]
    assert first[0] >= first[1] >= first[2] > 0
    assert first[0] > first[2]
    recall = [each.overall.recall or 0.0 for each in found]
    assert recall[0] >= recall[2] > 0
