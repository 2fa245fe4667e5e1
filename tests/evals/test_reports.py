"""L2: what an evaluation says, for people and for programs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from tests.evals.support import BASE, Lab, case, final, select, tool, write
from vademecum.evals.comparing import compare
from vademecum.evals.configurations import with_and_without
from vademecum.evals.junit import junit_of
from vademecum.evals.markdown import markdown_of
from vademecum.evals.page import page, write_pages
from vademecum.evals.reading import Malformed
from vademecum.evals.results import CaseLine, Evaluation, Result, read_evaluation
from vademecum.evals.summary import summarise
from vademecum.evals.triggers import Cell, SkillRate, triggers_of
from vademecum.evals.workspace import write_workspace

CASES = [
    case("通过", select("file-diff"), final("好"), expected={"skills_any_of": ["file-diff"], "output": "好"}),
    case("wrong <b>", select("csv-summary"), final("no | yes"), expected={"skills_any_of": ["file-diff"]}),
    case("slow", {"seconds": 5, "reply": final()}, constraints={"max_seconds": 0.1}),
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
    assert set(summary.never_discriminating) == {"wrong <b>", "writes"}
    assert msgspec.json.decode(msgspec.json.encode(summary))["columns"][0]["rate"]["passed"] == 3
    assert read_evaluation(Path(evaluation.place)).results == evaluation.results


def test_which_skill_took_whose_request() -> None:
    cases = [
        CaseLine("1", "", wanted=("pdf",), about_skills=True),
        CaseLine("2", "", wanted=("pdf",), about_skills=True),
        CaseLine("3", "", wanted=("csv",), about_skills=True),
        CaseLine("4", "", unwanted=("pdf",), about_skills=True),
        CaseLine("5", "", wanted=("pdf",), about_skills=True),
        CaseLine("6", ""),
    ]
    taken: list[tuple[str, ...]] = [("pdf",), ("csv",), (), ("pdf",), (), ("pdf",)]
    results = [
        Result(str(n), str(n), "x", 1, "error" if n == 5 else "pass", skills=skills, ranked=("pdf",))
        for n, skills in enumerate(taken, 1)
    ]
    found = triggers_of(cases, results)
    assert found is not None
    assert found.skills == (SkillRate("csv", 0, 1, 1), SkillRate("pdf", 1, 1, 1))
    assert [(rate.precision, rate.recall) for rate in found.skills] == [(0.0, 0.0), (0.5, 0.5)]
    assert found.confusion == (
        Cell("csv", "(none)", 1),
        Cell("not pdf", "pdf", 1),
        Cell("pdf", "csv", 1),
        Cell("pdf", "pdf", 1),
    )
    assert (found.ranked_first, found.wanted, found.unknown) == (2, 3, 1)


def test_a_comparison_reduces_repeats_first_and_knows_a_regression() -> None:
    def results(**passed: str) -> list[Result]:
        return [
            Result(f"{name}{n}", name, "x", n, "pass" if sign == "+" else "fail")
            for name, signs in passed.items()
            for n, sign in enumerate(signs)
        ]

    found = compare(
        results(a="++", b="+-", c="++"), results(a="--", b="++", c="++"), old_name="o", new_name="n"
    )
    assert [(change.case, change.old, change.new) for change in found.worse] == [("a", 1.0, 0.0)]
    assert [(change.case, change.old, change.new) for change in found.better] == [("b", 0.5, 1.0)]
    assert (found.regressions, found.is_regression, found.difference.verdict) == (
        ("a",),
        True,
        "inconclusive",
    )
    assert not compare(results(a="+-"), results(a="--"), old_name="o", new_name="n").regressions


def test_markdown(evaluation: Evaluation) -> None:
    text = markdown_of(summarise(evaluation))
    assert "| with\\_skill | 3 of 4 | 75.0% | 30.1% to 95.4% | 1 | 1 | 1 |" in text
    assert "- malformed: a.json, case x, field input: Field required" in text
    assert "| wrong \\<b> | with\\_skill | fail | skills\\_any\\_of file-diff: it took csv-summary |" in text
    assert "| file-diff | 100.0% | 50.0% | 1 | 0 | 1 |" in text


def test_junit_is_xml_whatever_a_run_says(evaluation: Evaluation) -> None:
    root = ET.fromstring(junit_of(evaluation))
    first, second, malformed = root.findall("testsuite")
    assert first.attrib | {"time": ""} == {
        "name": "with_skill", "tests": "7", "failures": "1", "errors": "2", "skipped": "1", "time": "",
    }  # fmt: skip
    assert malformed.attrib["errors"] == "1"
    cases = {found.attrib["name"]: found for found in first}
    failure = cases["wrong <b>"].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "skills_any_of file-diff: it took csv-summary"
    assert "writes [2]" in cases
    assert second.attrib["failures"] == "2"


def test_the_page_links_to_each_run_and_runs_nothing(evaluation: Evaluation, tmp_path: Path) -> None:
    written = write_pages(evaluation, summarise(evaluation), tmp_path / "报告.html")
    text = (tmp_path / "报告.html").read_text("utf-8")
    assert written == len(list((tmp_path / "报告-runs").iterdir())) == 12
    assert "<script" not in text
    assert "wrong &lt;b&gt;" in text
    assert text.count("<svg") == 4
    assert "http" not in text
    link = text.partition('href="')[2].partition('"')[0]
    from urllib.parse import unquote

    assert (tmp_path / unquote(link)).exists()
    assert page(summarise(evaluation), {}).count("href") == 0


def test_workspace_files_as_viewers_read_them(evaluation: Evaluation, tmp_path: Path) -> None:
    for number in (1, 2):
        place = write_workspace(evaluation, tmp_path)
        assert place == tmp_path / f"file-diff-workspace/iteration-{number}"
    run = place / "eval-writes/with_skill/run-2"
    assert (run / "outputs/out/a.txt").read_text() == "x"
    grading = json.loads((run / "grading.json").read_text())
    assert grading["assertion_results"] == grading["expectations"]
    assert set(grading["expectations"][0]) == {"text", "passed", "evidence"}
    assert set(grading["summary"]) == {"passed", "failed", "total", "pass_rate"}
    assert set(json.loads((run / "timing.json").read_text())) == {"total_tokens", "duration_ms"}
    benchmark = json.loads((place / "benchmark.json").read_text())
    assert set(benchmark) == {"metadata", "runs", "run_summary"}
    assert set(benchmark["runs"][0]) == {"eval_id", "configuration", "run_number", "result"}
    assert set(benchmark["runs"][0]["result"]) == {
        "pass_rate", "passed", "failed", "total", "time_seconds", "tokens", "tool_calls", "errors",
    }  # fmt: skip
    assert set(benchmark["run_summary"]) == {"with_skill", "without_skill", "delta"}
    assert (place / "eval-wrong-b/with_skill").is_dir()


def test_results_from_elsewhere_lead_nowhere_else(evaluation: Evaluation, tmp_path: Path) -> None:
    write(tmp_path / "place/outputs/secret.txt", "secret")
    write(tmp_path / "place/evaluation.json", "{}")
    hostile = [
        Result(
            "..",
            "../../up",
            "with_skill",
            1,
            "pass",
            run="../../up",
            files=("secret.txt", "../up.txt", "/etc/passwd"),
        ),
        Result(
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
    assert "<script" not in (tmp_path / "out/page.html").read_text()
    write_workspace(bad, tmp_path / "out")
    new = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert all(path.is_relative_to(tmp_path / "out") for path in new)
    assert "secret" not in "".join(path.read_text() for path in new if path.name == "secret.txt")
    ET.fromstring(junit_of(bad))
