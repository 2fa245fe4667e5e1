"""How sure search is: `python -m bench.fitting [--write]` fits the model and prints what it reaches.

Learned are requests with the skills that answer them, the same requests with those skills taken out of the
library, and requests that no skill answers; each also with sentences around it that have nothing to do with
it. Figures are cross-validated: a request is judged by a model that has not seen it, nor another one for the
same skill.
`--write` writes `search/rarity.txt` first, from the real skills, and prints the coefficients.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bench.library import DATA, library, queries, write_library
from bench.measure import print_table
from vademecum import BUILTIN_ROOT, Finder, IndexOptions, SkillIndex, build_index
from vademecum.search.fitting import LEAST_AMONG_FEW, LEAST_CONFIDENCE, inputs
from vademecum.search.query_terms import LEAST_WEIGHT, RAREST
from vademecum.search.text_index import analyzer
from vademecum.search.words import HAN, prepared

Numbers = NDArray[np.float64]

FOLDS = 5
STRENGTH = 5.0  # of the pull of the coefficients towards zero
LEAST_SKILLS = 8
SMALL = {4: 3, 12: 1, 40: 3}  # sizes of small libraries, and every how manieth request is asked in them
SMALL_CHINESE = {8: 1, 28: 1}
FILES = ("queries.jsonl", "queries-zh.jsonl", "queries-hard.jsonl", "queries-none.jsonl")
EVERYDAY = "everyday.jsonl"
CHINESE = "chinese.jsonl"  # skills described in Chinese, Japanese and Korean, with requests
# Words that say nothing about the topic. Few skills say "our", but that does not make it a telling word.
_FUNCTION_WORDS = (
    "i me my myself we our ours us you your yours he him his she her it its they them their one what "
    "which who whom this that these those am is are was were be been being have has had having do does "
    "did doing done would should could ought may might can will shall must a an the and but if or because "
    "as until while of at by for with about against between into through during before after above below "
    "to from up down in out on off over under again further then once here there when where why how all "
    "any both each few more most other some such no nor not only own so than too very just don now "
    "also yet maybe though already anything everything something still s t m re ve ll d isn aren wasn won "
    "didn doesn"
)
AROUND = (
    ("", ""),
    ("Hello, I hope you are well. I am new in this company and my manager is away. ", ""),
    ("", " Thanks in advance, this is urgent. We leave for the holidays on Friday."),
)
AROUND_CHINESE = (
    ("", ""),
    ("你好，我刚来公司，经理今天不在。", ""),
    ("", "。谢谢，这件事很急，我们周五就放假了。"),
)


class Example(NamedTuple):
    file: str
    kind: str
    fold: int
    present: bool
    around: int
    right: bool
    first: str
    certain: bool  # it is asked for by its name: no model is asked
    values: dict[str, float] | None


def write_rarity() -> None:
    found, words = library(), analyzer()
    function_words = set(words.analyze(_FUNCTION_WORDS))
    times: Counter[str] = Counter()
    for skill in found:
        text = f"{skill.name} {skill.description} {skill.body}"
        times.update(word for word in set(words.analyze(prepared(text))) if word.isascii())
    levels: dict[float, list[str]] = {LEAST_WEIGHT: list(function_words)}
    for word, count in times.items():
        if count >= LEAST_SKILLS and not word.isdigit() and word not in function_words:
            levels.setdefault(round(4 * math.log((len(found) + 1) / (count + 1))) / 4, []).append(word)
    # Every skill says "skill", a request hardly ever: it counts like a word that one skill in ten contains.
    levels[min(level for level in levels if "skill" in levels[level])].remove("skill")
    levels[2.25].append("skill")
    path = Path(__file__).parent.parent / "src/vademecum/search/rarity.txt"
    lines = [f"{level} {' '.join(sorted(levels[level]))}\n" for level in sorted(levels)]
    path.write_text("".join(lines), "utf-8")
    print(f"{sum(map(len, levels.values())):,} words, the others count {RAREST}")


def examples(directory: Path) -> list[Example]:
    root = directory / "real"
    names = write_library(root)
    asked = [(file, number, query) for file in FILES for number, query in enumerate(queries(file))]
    gold = {names[each] for _, _, query in asked for each in query["gold"]}
    index = build_index(root, IndexOptions())
    found = []
    for present in (True, False):
        finder = Finder(index, skills=[s for s in index.skills if present or s.name not in gold])
        for file, number, query in asked:
            if present or query["gold"]:
                found += judged(finder, file, number, query, {names[each] for each in query["gold"]}, present)
    found += in_small_libraries(index, asked, names, sorted(gold), SMALL)
    return found + everyday() + other_languages(directory / "other-languages")


def everyday() -> list[Example]:
    """Ask what people try first, in the library that a newcomer has."""
    finder = Finder(build_index(BUILTIN_ROOT, IndexOptions()))
    found = []
    lines = Path(__file__).with_name(EVERYDAY).read_text("utf-8").splitlines()
    for number, query in enumerate(map(json.loads, lines)):
        judgement = judged(finder, EVERYDAY, number, query, set(query["gold"]), bool(query["gold"]))
        found += [each._replace(fold=number % FOLDS) for each in judgement]
    return found


def other_languages(root: Path) -> list[Example]:
    """Ask what skills answer that are described in Chinese, Japanese and Korean."""
    lines = [json.loads(line) for line in Path(__file__).with_name(CHINESE).read_text("utf-8").splitlines()]
    for line in lines:
        if "name" in line:
            (root / line["name"]).mkdir(parents=True)
            head = f"---\nname: {line['name']}\ndescription: {json.dumps(line['description'])}\n---\n"
            (root / line["name"] / "SKILL.md").write_text(head, "utf-8")
    queries = [
        {"query": request, "gold": [line["name"]] if "name" in line else []}
        for line in lines
        for request in line["requests"]
    ]
    asked = [(CHINESE, number, query) for number, query in enumerate(queries)]
    index = build_index(root, IndexOptions())
    names = sorted(skill.name for skill in index.skills)
    return in_small_libraries(index, asked, dict(zip(names, names, strict=True)), names, SMALL_CHINESE)


def in_small_libraries(
    index: SkillIndex,
    asked: list[tuple[str, int, dict[str, Any]]],
    names: dict[str, str],
    gold: list[str],
    sizes: dict[int, int],
) -> list[Example]:
    """Ask each request where its answer is one of a few skills, and where it is not."""
    random.Random(5).shuffle(gold)
    found = []
    for size, step in sizes.items():
        count = len(gold) // size
        parts = [set(gold[n::count]) for n in range(count)]
        finders = [Finder(index, skills=[s for s in index.skills if s.name in part]) for part in parts]
        for file, number, query in asked[::step]:
            wanted = {names[each] for each in query["gold"]}
            here = next((n for n, part in enumerate(parts) if wanted & part), number % count)
            found += judged(finders[here], f"{size} {file}", number, query, wanted, bool(wanted))
            if wanted:
                away = (here + 1) % count
                found += judged(finders[away], f"{size} {file}", number, query, wanted, present=False)
    return found


def judged(
    finder: Finder, file: str, number: int, query: dict[str, Any], gold: set[str], present: bool
) -> list[Example]:
    language = language_of(query["query"])
    found = []
    fold = crc32((min(gold) if gold else str(number // 3)).encode()) % FOLDS  # by skill
    for around, (before, after) in enumerate(AROUND_CHINESE if language == "Chinese" else AROUND):
        text = before + query["query"] + after
        findings = finder.find(text, 1)
        hits, values = findings.hits, None
        if hits:
            values = inputs(finder.evidence(text, hits[0]))
        kind = language if language != "English" or not query["gold"] else query.get("kind", "English")
        first = hits[0].name if hits else ""
        right = present and first in gold
        certain = findings.confidence == 1
        found.append(Example(file, kind, fold, present, around, right, first, certain, values))
    return found


def language_of(request: str) -> str:
    if re.search("[\u3040-\u30ff\uac00-\ud7af]", request):
        return "Japanese, Korean"
    return "Chinese" if re.search(HAN, request) else "English"


def matrix(found: list[Example]) -> tuple[list[str], Numbers]:
    names = list(next(each.values for each in found if each.values))
    rows = [[1.0, *((each.values or {}).get(name, 0.0) for name in names)] for each in found]
    return names, np.array(rows)


def fitted(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    scale = np.concatenate([[1.0], x[:, 1:].std(0) + 1e-9])
    z = x / scale

    def loss(b: Numbers) -> tuple[float, Numbers]:
        raw = z @ b
        pull = STRENGTH * b * np.concatenate([[0.0], np.ones(len(b) - 1)])
        value = (weights * np.logaddexp(0, np.where(y > 0, -raw, raw))).sum() + (pull * b).sum() / 2
        return float(value), z.T @ (weights * (1 / (1 + np.exp(-raw)) - y)) + pull

    result = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(result.x / scale)


def chances(x: Numbers, coefficients: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-(x @ coefficients))))


def least_in(file: str) -> float:
    return LEAST_CONFIDENCE if file in FILES else LEAST_AMONG_FEW


def report(found: list[Example], likely: Numbers) -> None:
    def part(file: str, kind: str, present: bool) -> list[int]:
        return [
            n
            for n, e in enumerate(found)
            if e.file == file and e.present == present and e.around == 0 and kind in ("", e.kind)
        ]

    rows = []
    for title, file, kind in (
        ("English, 1,006", FILES[0], ""),
        ("Chinese, 160", FILES[1], ""),
        ("typos, 40", FILES[2], "typo"),
        ("paraphrases, 80", FILES[2], "paraphrase"),
        *((f"English, among {size} skills", f"{size} {FILES[0]}", "") for size in SMALL),
        *(
            (f"{kind}, among {size} that are not in English", f"{size} {CHINESE}", kind)
            for size in SMALL_CHINESE
            for kind in ("Chinese", "English", "Japanese, Korean")
        ),
        ("everyday, built-in skills", EVERYDAY, ""),
    ):
        there, gone = part(file, kind, present=True), part(file, kind, present=False)
        bound = least_in(file)
        taken = [n for n in there if likely[n] >= bound]
        right = 100 * sum(found[n].right for n in taken) / max(1, len(taken))
        refused = 100 * sum(likely[n] < bound for n in gone) / len(gone)
        rows.append([title, f"{100 * len(taken) / len(there):.1f}", f"{right:.1f}", f"{refused:.1f}"])
    for title, kind in (("no skill, English, 100", "English"), ("no skill, Chinese, 50", "Chinese")):
        none = part(FILES[3], kind, present=True)
        bound = least_in(FILES[3])
        refused = 100 * sum(likely[n] < bound for n in none) / len(none)
        rows.append([title, "", "", f"{refused:.1f}"])
    head = ["", "said to fit %", "of these right %", "refused without the answer %"]
    print_table("Does anything fit? (cross-validated)", head, rows)


def reliability(found: list[Example], likely: Numbers) -> None:
    rows = []
    plain = [n for n, each in enumerate(found) if each.around == 0 and each.file in FILES]
    for low in range(0, 100, 10):
        inside = [n for n in plain if low <= 100 * likely[n] < low + 10]
        if inside:
            right = 100 * sum(found[n].right for n in inside) / len(inside)
            rows.append([f"{low}-{low + 10} %", f"{len(inside)}", f"{right:.0f} %"])
    print_table("Reliability (cross-validated)", ["confidence", "requests", "right"], rows)


def around(found: list[Example], likely: Numbers) -> None:
    answers = [
        each.first if chance >= LEAST_CONFIDENCE else "" for each, chance in zip(found, likely, strict=True)
    ]
    plain = answers[:: len(AROUND)]
    for n, (before, after) in enumerate(AROUND[1:], 1):
        same = sum(one == other for one, other in zip(plain, answers[n :: len(AROUND)], strict=True))
        print(f"{100 * same / len(plain):.1f} % of the answers are the same with {before or after!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"\nNo data: {DATA} is not there (set VADE_SHARED_DATA).")
        return
    if options.write:
        write_rarity()
    with tempfile.TemporaryDirectory(prefix="vade-fitting-") as name:
        found = examples(Path(name))
    names, x = matrix(found)
    y = np.array([float(each.right) for each in found])
    weights = np.array(
        [
            (
                0.0
                if each.certain
                else 2.0
                if each.file in {FILES[1], EVERYDAY}
                else 1.0
                if each.file in FILES
                else 0.3
            )
            / (2 if each.around else 1)
            for each in found
        ]
    )
    folds = np.array([each.fold for each in found])
    likely = np.zeros(len(found))
    for fold in range(FOLDS):
        rest = folds != fold
        likely[~rest] = chances(x[~rest], fitted(x[rest], y[rest], weights[rest]))
    likely[[n for n, each in enumerate(found) if each.values is None]] = 0.0
    likely[[n for n, each in enumerate(found) if each.certain]] = 1.0
    report(found, likely)
    reliability(found, likely)
    around(found, likely)
    if options.write:
        final = fitted(x, y, weights)
        print({name: round(float(value), 3) for name, value in zip(["", *names], final, strict=True)})


if __name__ == "__main__":
    main()
