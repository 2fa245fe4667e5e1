"""D1 to D3 on real skills: thresholds a little below what `bench/search.py` measures.

The sample of the repository is searched each time, the thousands of skills of the larger set with the heavy tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.library import SAMPLE, queries, write_library

from tests.support import DATA
from vademecum import Finder, IndexOptions, build_index

LARGE = DATA / "search"
is_there = pytest.mark.skipif(not LARGE.is_dir(), reason=f"no search data in {DATA}")
SETS = [
    pytest.param(SAMPLE / "search", id="sample"),
    pytest.param(LARGE, id="large", marks=[pytest.mark.extras, is_there]),
]
Found = tuple[Path, Finder, dict[str, str]]


@pytest.fixture(scope="module", params=SETS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    root: Path = tmp_path_factory.mktemp("library")
    names = write_library(root, request.param)
    return request.param, Finder(build_index(root, IndexOptions())), names


@pytest.mark.parametrize(
    ("file", "kind", "first", "among_ten"),
    [
        ("queries.jsonl", "", 0.76, 0.975),
        ("queries-zh.jsonl", "", 0.70, 0.92),
        ("queries-hard.jsonl", "typo", 0.90, 0.97),
    ],
)
def test_ranking(found: Found, file: str, kind: str, first: float, among_ten: float) -> None:
    data, finder, names = found
    asked = [query for query in queries(file, data) if query.get("kind", "") == kind or not kind]
    ranks = []
    for query in asked:
        hits = [hit.name for hit in finder.search(query["query"], 10)]
        gold = {names[each] for each in query["gold"]}
        ranks.append(next((place for place, name in enumerate(hits) if name in gold), 10))
    assert sum(rank == 0 for rank in ranks) / len(ranks) >= first
    assert sum(rank < 10 for rank in ranks) / len(ranks) >= among_ten


def test_requests_that_no_skill_answers_are_refused(found: Found) -> None:
    data, finder, _ = found
    refused = [not finder.find(query["query"], 1).fits for query in queries("queries-none.jsonl", data)]
    assert sum(refused) / len(refused) >= 0.9


def test_most_requests_are_answered_and_nearly_all_of_these_rightly(found: Found) -> None:
    data, finder, names = found
    right = []
    for query in queries("queries.jsonl", data)[::4]:
        answer = finder.find(query["query"], 1)
        if answer.fits:
            right.append(answer.hits[0].name in {names[each] for each in query["gold"]})
    assert len(right) / len(queries("queries.jsonl", data)[::4]) >= 0.5
    assert sum(right) / len(right) >= 0.85
