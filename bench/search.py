"""Finding the right skill: how often, how fast: `python -m bench.search [--choose] [--large N]`.

Quality is measured on real requests with the skills that answer them (VADE_SHARED_DATA). `--choose` shows how
the weights of the fields were chosen: for each set of requests, those that did best on all the other sets.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from bench.library import DATA, library, queries, write_library
from bench.measure import best, print_table, whole_process
from bench.trees import WORDS
from vademecum import Finder, IndexOptions, build_index, refresh_index
from vademecum.search.engine import WEIGHTS, Engine, Text

GRID = {"name": (0.0, 0.25, 0.5, 0.75, 1.0), "description": (1.0,), "body": (0.25, 0.5, 0.75, 1.0, 1.25)}


class Judge:
    """An engine that holds the real skills, and the requests to try it on."""

    def __init__(self, *, bodies: bool) -> None:
        found = library()
        self._numbers = {skill.id: number for number, skill in enumerate(found)}
        self._engine = Engine(None)
        texts = [Text(skill.name, skill.description, skill.body if bodies else "") for skill in found]
        started = time.perf_counter()
        self._engine.update(remove=[], add=enumerate(texts))
        self.build_ms = (time.perf_counter() - started) * 1000 / len(found)
        self._queries = [
            (q["set"], self._engine.terms(q["query"]), self._numbers[q["gold"][0]]) for q in queries()
        ]

    def ranks(self, weights: Mapping[str, float]) -> list[tuple[str, int | None]]:
        """For each request its set, and the place of the right skill among the first ten."""
        self._engine._weights = weights
        places = []
        for name, terms, gold in self._queries:
            found = [number for _, number in self._engine.best(terms, 10)][:10]
            places.append((name, found.index(gold) if gold in found else None))
        return places


def rates(places: list[tuple[str, int | None]]) -> tuple[float, float]:
    hits = sum(place == 0 for _, place in places)
    return 100 * hits / len(places), 100 * sum(place is not None for _, place in places) / len(places)


def quality() -> None:
    rows = []
    for title, bodies, least in (
        ("with bodies", True, "75 / 96"),
        ("names and descriptions only", False, "65 / 90"),
    ):
        judge = Judge(bodies=bodies)
        hit, recall = rates(judge.ranks(WEIGHTS))
        rows.append([title, f"{hit:.1f}", f"{recall:.1f}", least, f"{judge.build_ms:.2f}"])
    print_table(
        f"1,006 real requests, 3,222 real skills, weights {WEIGHTS}",
        ["", "Hit@1 %", "Recall@10 %", "at least", "ms a skill"],
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
    texts = [query["query"] for query in queries()]
    times = []
    for text in texts:
        started = time.perf_counter()
        finder.search(text, 5)
        times.append(time.perf_counter() - started)
    changed = min(one_changed(root, options) for _ in range(5))
    vade = str(Path(sys.executable).with_name("vade"))
    words = [vade, "search", "compare two files", "--root", str(root), "--no-default-roots", "--json"]
    os.environ["VADE_CACHE_DIR"] = str(directory / "command")
    whole_process(*words)()
    command = best(whole_process(*words), 7)
    rows = [
        ["a query, median", f"{statistics.median(times) * 1000:.3f}", "1"],
        ["building, a skill", f"{build:.3f}", "1.5"],
        ["one changed skill", f"{changed * 1000:.1f}", "50"],
        ["vade search, whole command", f"{command * 1000:.1f}", "150"],
    ]
    print_table(f"{len(index):,} real skills with bodies", ["", "ms", "at most"], rows)


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
    engine = Engine(None)
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
    rows = [["a query of nine words, median", f"{statistics.median(times) * 1000:.3f}", "5"]]
    print_table(f"{count:,} synthetic skills", ["", "ms", "at most"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--large", type=int, default=100_000)
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"\nNo search benchmark: {DATA} is not there (set VADE_SHARED_DATA).")
        return
    quality()
    if options.choose:
        choose()
    with tempfile.TemporaryDirectory(prefix="vade-search-") as name:
        speed(Path(name))
    large(options.large)


if __name__ == "__main__":
    main()
