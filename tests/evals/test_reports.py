"""L2: what an evaluation says, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool, write
from vademecum.evals.reports.page import page, write_pages
from vademecum.evals.reports.summary import compare, side_by_side, summarise
from vademecum.evals.reports.texts import figures, notes, summary_document, trigger_rows
from vademecum.evals.reports.triggers import Cell, SkillRate, triggers_of
from vademecum.evals.results import (
    CaseLine,
    CaseResult,
    Evaluation,
    Header,
    Verdict,
    read_evaluation,
)
from vademecum.evals.suite import Malformed
from vademecum.evals.units import Configuration, with_and_without

CASES = [
    case("通过", select("file-diff"), final("好"), expected={"skills_any_of": ["file-diff"], "output": "好"}),
    case("wrong <b>", select("csv-summary"), final("no | yes"), expected={"skills_any_of": ["file-diff"]}),
    case("slow", {"seconds": 5, "reply": final()}, constraints={"max_seconds": 0.5}),
    case("crash", {"error": "crash", "message": "boom \x00"}),
    case("unjudged", final(), expected={"output": {"judge": "It is kind."}}),
    case("writes", tool("write_file", path="out/a.txt", content="x"), final(), repeat=2),
]


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    from tests.support import Place

    place = tmp_path_factory.mktemp("reports")
    (place / "project/.git").mkdir(parents=True)
    (place / "home").mkdir()
    lab = Lab(Place(place / "project", place / "home"), place / "out", workers=4)
    found = lab.evaluate(CASES, *with_and_without([BASE], "file-diff", lab.place.build()))
    wrong = (Malformed("a.json", "x", "input", "Field required"),)
    return msgspec.structs.replace(
        found, header=msgspec.structs.replace(found.header, malformed=wrong, skill="file-diff")
    )


def test_the_summary(evaluation: Evaluation) -> None:
    summary = summarise(evaluation)
    first, second = summary.columns
    assert (first.rate.passed, first.rate.total, first.timeouts, first.errors, first.unjudged) == (
        3,
        4,
        1,
        1,
        1,
    )
    assert (second.rate.passed, second.rate.total) == (2, 4)
    assert not summary.is_clean
    marks = {(row.case, row.configuration): row.mark for row in summary.rows}
    assert marks["wrong <b>", "with_skill"] == "fail"
    assert marks["slow", "with_skill"] == "timeout"
    assert summary.comparisons[0].unpaired == ("crash", "slow", "unjudged")
    assert summary.comparisons[0].difference.pairs == 3
    assert "inconclusive: +33.3% from without_skill to with_skill" in summary.comparisons[0].said
    assert msgspec.json.decode(msgspec.json.encode(summary))["columns"][0]["rate"]["passed"] == 3
    assert read_evaluation(Path(evaluation.place)).results == evaluation.results


def test_which_skill_took_whose_request() -> None:
    cases = [
        CaseLine("1", "", one_of=("pdf",)),
        CaseLine("2", "", one_of=("pdf",)),
        CaseLine("3", "", one_of=("csv",)),
        CaseLine("4", "", unwanted=("pdf",)),
        CaseLine("5", "", one_of=("pdf",)),
        CaseLine("6", ""),
    ]
    taken: list[tuple[str, ...]] = [("pdf",), ("csv",), (), ("pdf",), (), ("pdf",)]
    results = [
        CaseResult(str(n), str(n), "x", 1, "error" if n == 5 else "pass", skills=skills, ranked=("pdf",))
        for n, skills in enumerate(taken, 1)
    ]
    found = triggers_of(cases, results)
    assert found is not None
    assert found.skills == (SkillRate.of("csv", 0, 1, 1), SkillRate.of("pdf", 1, 1, 1))
    assert [(rate.precision, rate.recall) for rate in found.skills] == [(0.0, 0.0), (0.5, 0.5)]
    assert found.confusion == (
        Cell("csv", "(none)", 1),
        Cell("not pdf", "pdf", 1),
        Cell("pdf", "csv", 1),
        Cell("pdf", "pdf", 1),
    )
    assert (found.ranked_first, found.wanted, found.unknown) == (2, 3, 1)


def test_a_comparison_reduces_repeats_first_and_knows_a_regression() -> None:
    def results(**passed: str) -> list[CaseResult]:
        return [
            CaseResult(f"{name}{n}", name, "x", n, "pass" if sign == "+" else "fail")
            for name, signs in passed.items()
            for n, sign in enumerate(signs)
        ]

    found = compare(
        results(a="++", b="+-", c="++"), results(a="--", b="++", c="++"), old_name="o", new_name="n"
    )
    assert [(change.case, change.old, change.new) for change in found.worse] == [("a", 1.0, 0.0)]
    assert [(change.case, change.old, change.new) for change in found.better] == [("b", 0.5, 1.0)]
    assert (found.regressions, found.regression, found.verdict) == (
        ("a",),
        True,
        "inconclusive",
    )
    assert not compare(results(a="+-"), results(a="--"), old_name="o", new_name="n").regressions
    assert not compare(results(a="+"), results(a="+"), old_name="o", new_name="n").regression


def one(name: str, outcome: Verdict, number: int = 1, **fields: Any) -> CaseResult:
    return CaseResult(f"{name}{number}", name, "x", number, outcome, **fields)


@pytest.mark.parametrize("lost", ["error", "timeout", "unusable", "unjudged", None])
def test_a_case_that_has_no_verdict_any_more_is_not_well(lost: Verdict | None) -> None:
    """Errors, missing cases and malformed ones on one side are no pairs; what passed and is gone is said."""
    old = [one(name, "pass") for name in "abcde"] + [one("f", "fail")]
    new = [one("a", "pass")] + ([one(name, lost) for name in "bcdef"] if lost else [])
    found = compare(old, new, old_name="o", new_name="n")
    assert (found.lost, found.regressions, found.difference.pairs) == (("b", "c", "d", "e"), (), 1)
    assert found.unpaired == ("b", "c", "d", "e", "f")
    assert found.regression
    assert not compare(old[-1:] + old[:1], new[:1], old_name="o", new_name="n").regression
    none = compare(old, [], old_name="o", new_name="n")
    assert (none.regression, none.said) == (
        True,
        "inconclusive: from o to n no case has a verdict on both sides",
    )
    assert compare([], [], old_name="o", new_name="n").regression


def test_a_comparison_says_what_is_so() -> None:
    both = compare(
        [one("a", "pass"), one("b", "fail")], [one("a", "fail"), one("b", "pass")], old_name="o", new_name="n"
    )
    assert both.said == (
        "inconclusive: +0.0% from o to n (95 % interval -100.0% to +100.0%, 2 cases); "
        "the cases differ in both directions, so no number of cases can be advised"
    )
    single = compare([one("a", "fail")], [one("a", "pass")], old_name="o", new_name="n")
    assert "1 case); only 1 of them differs, and fewer than 6 settle nothing" in single.said


def test_what_did_not_run_through_costs_nothing() -> None:
    """A run that crashed early is not cheap, and pairs have the same cases on both sides."""
    cheap: dict[str, Any]
    dear: dict[str, Any]
    cheap, dear = (
        {"input_tokens": 100, "seconds": 1.0, "turns": 1},
        {"input_tokens": 900, "seconds": 9.0, "turns": 9},
    )
    old = [one("a", "pass", **cheap), one("b", "pass", **dear)]
    new = [one("a", "pass", **cheap), one("b", "error"), one("c", "timeout", turns=1)]
    found = compare(old, new, old_name="o", new_name="n")
    assert (found.tokens, found.seconds) == (0.0, 0.0)
    header = Header("n", "", 0.0, (Configuration("x"),), (), (), ())
    (column,) = summarise(Evaluation(header, tuple(new))).columns
    assert (column.cost.turns, column.cost.tokens, column.cost.seconds) == (1.0, 100.0, 1.0)


@pytest.mark.parametrize(
    ("outcomes", "mark"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "error", "error"], "error"),
        (["pass", "timeout"], "timeout"),
        (["pass", "unusable"], "unusable"),
        (["pass", "unjudged"], "unjudged"),
        (["pass", "fail", "error"], "flaky"),
        (["fail", "error"], "fail"),
    ],
)
def test_only_what_passed_every_time_passes(outcomes: list[Verdict], mark: str) -> None:
    results = tuple(one("a", outcome, n) for n, outcome in enumerate(outcomes, 1))
    units = tuple((result.key, "a", "x", result.repetition) for result in results)
    header = Header("n", "", 0.0, (Configuration("x"),), (CaseLine("a", ""),), (), units)
    summary = summarise(Evaluation(header, results))
    assert (summary.rows[0].mark, summary.is_clean) == (mark, mark == "pass")
    assert summary_document(Evaluation(header, results), summary)["rows"][0]["mark"] == mark


def test_a_rate_is_over_cases_however_often_they_run() -> None:
    """A hundred runs of one case are one case; of thirty that all passed, a tenth may still fail."""
    header = Header("n", "", 0.0, (Configuration("x"),), (), (), ())
    often = summarise(Evaluation(header, tuple(one("a", "pass", n) for n in range(100))))
    rate = often.columns[0].rate
    assert (rate.passed, rate.total, rate.cases, rate.failures_at_most) == (100, 100, 1, None)
    assert rate.interval.low < 0.25
    assert "rate and interval are over 1 case, the runs of each reduced to their mean" in notes(often)
    uneven = [one("a", "pass", n) for n in range(9)] + [one("b", "fail")]
    assert summarise(Evaluation(header, tuple(uneven))).columns[0].rate.rate == 0.5
    many = summarise(Evaluation(header, tuple(one(str(n), "pass") for n in range(30))))
    assert "no failure in 30 cases: at most 10.0% of such cases can be expected to fail" in notes(many)


def test_all_of_several_skills_are_wanted() -> None:
    lines = [
        CaseLine("1", "", needed=("csv", "diff")),
        CaseLine("2", "", one_of=("csv", "diff")),
        CaseLine("3", "", one_of=("csv", "diff"), needed=("csv",)),
    ]
    found = triggers_of(lines, [one(str(n), "fail", skills=("csv",)) for n in (1, 2, 3)])
    assert found is not None
    assert found.skills == (SkillRate.of("csv", 3, 0, 0), SkillRate.of("diff", 0, 0, 1))
    assert (found.overall.recall, found.overall.missed) == (0.75, 1)


def test_programs_get_every_number_and_word(evaluation: Evaluation) -> None:
    document = summary_document(evaluation, summarise(evaluation))
    assert {
        (row["case"], row["mark"]) for row in document["rows"] if row["configuration"] == "with_skill"
    } == {
        ("通过", "pass"),
        ("wrong <b>", "fail"),
        ("slow", "timeout"),
        ("crash", "error"),
        ("unjudged", "unjudged"),
        ("writes", "pass"),
    }
    overall = document["columns"][0]["triggers"]["overall"]
    assert (overall["precision"], overall["recall"]) == (0.5, 0.5)
    assert {rate["skill"]: rate["recall"] for rate in document["columns"][0]["triggers"]["skills"]} == {
        "csv-summary": None,
        "file-diff": 0.5,
    }
    (comparison,) = document["comparisons"]
    assert (comparison["verdict"], comparison["regression"]) == ("inconclusive", False)
    assert comparison["said"].startswith("inconclusive: +33.3%")
    assert json.loads(json.dumps(document))["expecting_nothing"] == ["crash", "writes"]


def test_figures_and_notes_are_texts(evaluation: Evaluation) -> None:
    summary = summarise(evaluation)
    heads, rows = figures(summary)
    costs = dict.fromkeys(("turns", "calls", "tokens", "seconds"), "")
    assert dict(zip(heads, rows[0], strict=True)) | costs == costs | {
        "configuration": "with_skill", "passed": "3 of 4 runs", "rate": "66.7%", "95 % interval": "20.8% to 93.9%",
        "time-outs": "1", "errors": "1", "not judged": "1", "precision": "50.0%", "recall": "50.0%",
    }  # fmt: skip
    assert "with_skill: precision 50.0% (9.5% to 90.5%), recall 50.0% (9.5% to 90.5%)" in notes(summary)
    cases = [story.case for story in summary.stories]
    assert cases.index("通过") < cases.index("wrong <b>") < cases.index("writes")  # changed first
    triggers = summary.columns[0].triggers
    assert triggers is not None
    assert trigger_rows(triggers)[-1] == [
        "file-diff", "100.0% (20.7% to 100.0%)", "50.0% (9.5% to 90.5%)", "1", "0", "1",
    ]  # fmt: skip


def test_the_page_links_to_each_run_and_runs_nothing(evaluation: Evaluation, tmp_path: Path) -> None:
    written = write_pages(evaluation, summarise(evaluation), tmp_path / "报告.html")
    text = (tmp_path / "报告.html").read_text("utf-8")
    made = sum(bool(result.run) for result in evaluation.results)
    assert written == len(list((tmp_path / "报告-runs").iterdir())) == made >= 12
    assert text.count("<script") == 1
    assert "wrong &lt;b&gt;" in text
    assert text.count("<svg") == 4
    assert "http" not in text.replace("http-equiv", "")
    link = text.partition('href="')[2].partition('"')[0]
    from urllib.parse import unquote

    assert (tmp_path / unquote(link)).exists()
    assert page(summarise(evaluation), {}).count("href") == 0


def test_results_from_elsewhere_lead_nowhere_else(evaluation: Evaluation, tmp_path: Path) -> None:
    write(tmp_path / "place/evaluation.json", "{}")
    hostile = [
        CaseResult(
            "..",
            "../../up",
            "with_skill",
            1,
            "pass",
            run="../../up",
        ),
        CaseResult(
            "k",
            "<script>alert(1)</script>",
            "with_skill",
            1,
            "error",
            error="\x1b[2J </td><script>",
            run="x/../../y",
        ),
    ]
    header = msgspec.structs.replace(evaluation.header, name="../../n", skill="../../s")
    bad = Evaluation(header, tuple(hostile), str(tmp_path / "place"))
    before = sorted(tmp_path.rglob("*"))
    assert write_pages(bad, summarise(bad), tmp_path / "out/page.html") == 0
    assert (tmp_path / "out/page.html").read_text().count("<script") == 1
    new = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert all(path.is_relative_to(tmp_path / "out") for path in new)


def test_nothing_of_nothing_is_a_dash() -> None:
    line = CaseLine("a", "", unwanted=("*",))
    header = Header("n", "", 0.0, (Configuration("x"),), (line,), (), (("1", "a", "x", 1),))
    evaluation = Evaluation(header, (one("a", "pass"),))
    summary = summarise(evaluation)
    text = page(summary, {})
    assert ("0 of 0" not in text, "nan" not in text) == (True, True)
    assert "precision –, recall –" in notes(summary)


def test_two_evaluations_side_by_side_have_the_cases_of_both() -> None:
    def evaluation(place: str, *cases: str) -> Evaluation:
        lines = tuple(CaseLine(case, f"asked {case}") for case in cases)
        header = Header(
            "n",
            "",
            0.0,
            (Configuration("x"),),
            lines,
            (),
            tuple((case, case, "x", 1) for case in cases),
        )
        return Evaluation(header, tuple(one(case, "pass") for case in cases), place)

    both = side_by_side(evaluation("/new", "a", "b"), evaluation("/old", "b", "gone"))
    assert sorted(story.case for story in summarise(both).stories) == ["a", "b", "gone"]
