"""Finding the right skill: how often, how fast: `python -m bench.search [--choose] [--large N]`.

Quality is measured on real requests with the skills that answer them: those of VADE_SHARED_DATA, or a sample
that comes with the repository (`VADE_SHARED_DATA=bench/sample`). `--choose` shows how the weights of the
fields were chosen: for each set of requests, those that did best on all the other sets.
How sure search is: `python -m bench.fitting`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.library import DATA, SAMPLE, library, queries, write_library
from bench.measure import best, print_table, whole_process
from bench.trees import WORDS
from vademecum import Finder, IndexOptions, build_index, refresh_index
from vademecum.search.text_index import WEIGHTS, Text, TextIndex

LATIN = re.compile("[A-Za-z]")
GRID = {"name": (0.0, 0.25, 0.5, 0.75, 1.0), "description": (1.0,), "body": (0.25, 0.5, 0.75, 1.0, 1.25)}


class Judge:
    """An engine that holds the real skills, and the requests to try it on."""

    def __init__(self, *, bodies: bool) -> None:
        found = library()
        self._numbers = {skill.id: number for number, skill in enumerate(found)}
        self._engine = TextIndex(None)
        texts = [Text(skill.name, skill.description, skill.body if bodies else "") for skill in found]
        started = time.perf_counter()
        self._engine.update(remove=[], add=enumerate(texts))
        self.build_ms = (time.perf_counter() - started) * 1000 / len(found)

    def ranks(
        self, weights: Mapping[str, float], asked: Sequence[dict[str, Any]] | None = None
    ) -> list[tuple[str, int | None]]:
        """Return for each request its set, and the place of the right skill among the first ten."""
        self._engine._weights = weights
        places = []
        for query in queries() if asked is None else asked:
            name, gold = query["set"], {self._numbers[each] for each in query["gold"]}
            terms = self._engine.terms(query["query"])
            found = [number for _, number in self._engine.best(terms, 10)][:10]
            places.append((name, next((n for n, each in enumerate(found) if each in gold), None)))
        return places


def rates(places: list[tuple[str, int | None]]) -> tuple[float, float]:
    hits = sum(place == 0 for _, place in places)
    return 100 * hits / len(places), 100 * sum(place is not None for _, place in places) / len(places)


def ranks(
    finder: Finder, names: Mapping[str, str], asked: Sequence[dict[str, Any]]
) -> list[tuple[str, int | None]]:
    """Return the same of the whole search, as `vade search` and the agent use it."""
    places = []
    for query in asked:
        gold = {names[each] for each in query["gold"]}
        found = [hit.name for hit in finder.find(query["query"], 10).hits]
        places.append((query["set"], next((n for n, each in enumerate(found) if each in gold), None)))
    return places


def quality(directory: Path) -> None:
    rows = []
    judge = Judge(bodies=True)
    names = write_library(directory)
    finder = Finder(build_index(directory, IndexOptions()))
    hard, chinese = queries("queries-hard.jsonl"), queries("queries-zh.jsonl")
    for title, asked, least in (
        ("English", queries(), "76 / 97.5"),
        ("Chinese for English skills", chinese, "70 / 92"),
        ("… without Latin letters", [q for q in chinese if not LATIN.search(q["query"])], "50 / 78"),
        ("typos", [q for q in hard if q["kind"] == "typo"], "72 / 98"),
        ("paraphrases", [q for q in hard if q["kind"] == "paraphrase"], "15 / 35"),
    ):
        hit, recall = rates(ranks(finder, names, asked))
        rows.append([title, f"{len(asked):,}", f"{hit:.1f}", f"{recall:.1f}", least])
    hit, recall = rates(Judge(bodies=False).ranks(WEIGHTS))
    rows.append(
        [
            "English, names and descriptions only",
            f"{len(queries()):,}",
            f"{hit:.1f}",
            f"{recall:.1f}",
            "65 / 90",
        ]
    )
    if DATA.parent.resolve() == SAMPLE:  # the least figures are for the larger library
        rows = [row[:-1] for row in rows]
    count = len(library())
    print_table(
        f"Requests for {count:,} real skills, weights {WEIGHTS}, {judge.build_ms:.2f} ms to index a skill",
        ["", "requests", "Hit@1 %", "Recall@10 %", "at least"][: len(rows[0])],
        rows,
    )


def choose() -> None:
    """Leave one set out: weights found on the others, judged on it."""
    judge = Judge(bodies=True)
    tried: dict[tuple[float, ...], dict[str, list[int]]] = {}
    for values in itertools.product(*GRID.values()):
        by_set: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name, place in judge.ranks(dict(zip(GRID, values, strict=True))):
            by_set[name][0] += place == 0
            by_set[name][1] += 1
        tried[values] = by_set
    rows, right, total = [], 0, 0
    for left_out in next(iter(tried.values())):
        chosen = max(
            tried,
            key=lambda values: sum(score[0] for name, score in tried[values].items() if name != left_out),
        )
        hits, count = tried[chosen][left_out]
        right, total = right + hits, total + count
        rows.append([left_out, f"{count}", str(chosen), f"{100 * hits / count:.1f}"])
    overall = max(tried, key=lambda values: sum(score[0] for score in tried[values].values()))
    rows.append(
        [
            "all, each judged by the others",
            f"{total}",
            f"best on all: {overall}",
            f"{100 * right / total:.1f}",
        ]
    )
    print_table(
        "Weights (name, description, body) by leaving one set out",
        ["set", "requests", "weights", "Hit@1 %"],
        rows,
    )


def speed(directory: Path) -> None:
    root, options = directory / "real", IndexOptions(cache=directory / "cache")
    write_library(root)
    time.sleep(2.1)
    index = build_index(root, options)
    started = time.perf_counter()
    finder = Finder(index)
    build = (time.perf_counter() - started) * 1000 / len(index)
    english = timed(finder.search, [query["query"] for query in queries()])
    judged = timed(finder.find, [query["query"] for query in queries()])
    requests = [query["query"] for query in queries("queries-zh.jsonl")]
    first_chinese = timed(finder.search, requests[:1])
    chinese = timed(finder.search, requests)
    changed = min(one_changed(root, options) for _ in range(5))
    vade = str(Path(sys.executable).with_name("vade"))
    words = [vade, "search", "compare two files", "--root", str(root), "--no-default-roots", "--json"]
    os.environ["VADE_CACHE_DIR"] = str(directory / "command")
    whole_process(*words)()
    command = best(whole_process(*words), 7)
    rows = [
        ["a query in English, median", f"{english:.3f}", "0.5"],
        ["… with the answer whether it fits", f"{judged:.3f}", "1"],
        ["a query in Chinese, median", f"{chinese:.3f}", "1"],
        ["the first query in Chinese", f"{first_chinese:.1f}", "40"],
        ["building, a skill", f"{build:.3f}", "1.5"],
        ["one changed skill", f"{changed * 1000:.1f}", "50"],
        ["vade search, whole command", f"{command * 1000:.1f}", "150"],
    ]
    print_table(f"{len(index):,} real skills with bodies", ["", "ms", "at most"], rows)


def timed(ask: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return the median time of a query in milliseconds."""
    times = []
    for text in texts:
        started = time.perf_counter()
        ask(text)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def one_changed(root: Path, options: IndexOptions) -> float:
    document = min(root.iterdir()) / "SKILL.md"
    document.write_text(document.read_text("utf-8") + f"\nchanged {random.random()}\n", "utf-8")
    index = refresh_index(build_index(root, options), [document])
    started = time.perf_counter()
    finder = Finder(index)
    assert finder.updated == 2, finder.updated
    return time.perf_counter() - started


def large(count: int) -> None:
    chance = random.Random(3)
    vocabulary = [f"{a}{b}" for a in WORDS for b in WORDS]
    engine = TextIndex(None)
    texts = (
        Text(
            chance.choice(vocabulary),
            " ".join(chance.choices(vocabulary, k=30)),
            " ".join(chance.choices(WORDS, k=60)),
        )
        for _ in range(count)
    )
    engine.update(remove=[], add=enumerate(texts))
    times = []
    for _ in range(200):
        terms = engine.terms(" ".join([*chance.choices(vocabulary, k=6), *chance.choices(WORDS, k=3)]))
        started = time.perf_counter()
        engine.best(terms, 5)
        times.append(time.perf_counter() - started)
    rows = [["a query of nine words, median", f"{statistics.median(times) * 1000:.3f}", "3"]]
    print_table(f"{count:,} synthetic skills", ["", "ms", "at most"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--large", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vade-search-") as name:
        quality(Path(name))
    if options.choose:
        choose()
    with tempfile.TemporaryDirectory(prefix="vade-search-") as name:
        speed(Path(name))
    large(options.large)


if __name__ == "__main__":
    main()
