"""D3: whether anything fits, and how sure search is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.documents import TOP
from tests.support import write_skill
from vademecum import BUILTIN_ROOT, Finder, IndexOptions, build_index
from vademecum.search.query_terms import asked_for

# Requests in English and Chinese, and the built-in skill that answers each, if one does.
EVERYDAY = TOP / "bench/everyday.jsonl"

SKILLS = {
    "pdf-forms": "Fill in PDF forms and sign them.",
    "csv-summary": "Summarise a CSV table: column types, ranges and missing values.",
    "docker-images": "Build small Docker images for a service.",
    "contract-review": "Review a contract and list the risky clauses.",
}
FITTING = {
    "fill in this pdf form": "pdf-forms",
    "review the contract with our supplier": "contract-review",
    "summarise the columns of this csv": "csv-summary",
    "审查这份合同": "contract-review",
    "build a docker image": "docker-images",
}
CONTEXT = "I have been with the company for two years and my boss is on holiday. "


@pytest.fixture
def finder(root: Path) -> Finder:
    for name, description in SKILLS.items():
        write_skill(root, name, f"---\nname: {name}\ndescription: '{description}'\n---\nSteps.\n")
    return Finder(build_index(root, IndexOptions()))


def answer(finder: Finder, query: str) -> str:
    found = finder.find(query)
    return found.hits[0].name if found.fits else ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("please ", ""),
        ("Hello! ", " Thanks, this is urgent."),
        (CONTEXT, ""),
        ("", f". {CONTEXT}"),
        ("你好，", "，谢谢，很急。"),
    ],
)
def test_filler_does_not_change_the_answer(finder: Finder, before: str, after: str) -> None:
    assert {query: answer(finder, before + query + after) for query in FITTING} == FITTING
    for query in ("book a flight to Rome", "how do I repair the gears of my bicycle", "明天北京会下雨吗"):
        assert answer(finder, before + query + after) == ""


@pytest.mark.parametrize("query", ["hey, how are you?", "你好", "the table in my kitchen wobbles", "zzz"])
def test_nothing_fits(finder: Finder, query: str) -> None:
    found = finder.find(query)
    assert not found.fits
    assert found.confidence < 0.5


def test_names_of_files_do_not_count_against_a_skill(finder: Finder) -> None:
    plain = finder.find("summarise the columns")
    for query in ("summarise the columns quux.txt", "summarise the columns ~/plugh/xyzzy.md"):
        found = finder.find(query)
        assert (found.hits[0].name, found.fits) == ("csv-summary", True)
        assert found.confidence == plain.confidence


def test_an_exact_name_is_certain(finder: Finder) -> None:
    found = finder.find("docker-images", 1)
    assert (found.fits, found.confidence, found.hits[0].name) == (True, 1.0, "docker-images")


@pytest.mark.parametrize(
    "query",
    [
        "Use the docker-images skill to review the contract with our supplier.",
        "run /docker-images and then fill in this pdf form",
        "请用docker-images技能审查这份合同",
    ],
)
def test_a_skill_that_is_asked_for_by_its_name_is_first_and_certain(finder: Finder, query: str) -> None:
    found = finder.find(query, 1)
    assert (found.fits, found.confidence, found.hits[0].name) == (True, 1.0, "docker-images")


@pytest.mark.parametrize(
    "query", ["do not use docker-images, fill in this pdf form", "不要使用docker-images"]
)
def test_a_skill_that_is_not_wanted_is_not_certain(finder: Finder, query: str) -> None:
    assert finder.find(query, 1).confidence < 1


def test_a_request_for_a_skill_that_is_not_there_fits_less(finder: Finder) -> None:
    plain = finder.find("build a docker image", 1)
    for query in ("build a docker image with the podman-images skill", "/podman-images build a docker image"):
        found = finder.find(query, 1)
        assert found.hits[0].name == "docker-images"
        assert found.confidence < plain.confidence


def test_words_without_a_topic_hardly_count(finder: Finder) -> None:
    plain = finder.find("summarise the columns", 1).confidence
    found = finder.find("should we summarise the columns for them", 1)
    assert found.fits
    assert abs(found.confidence - plain) < 0.1


def test_findings_as_json(finder: Finder) -> None:
    found = finder.find("fill in a pdf form", 1).to_json()
    assert list(found) == ["results", "fits", "confidence"]
    assert (found["fits"], [hit["name"] for hit in found["results"]]) == (True, ["pdf-forms"])


OTHERS = {
    "会议纪要": "把会议记录或录音文字稿整理成会议纪要，列出结论、待办事项、负责人和截止日期。",
    "字数统计": "统计文章的字数、段落数和预计阅读时间。",
    "發票核對": "核對發票的金額與稅號，列出重複的發票。",
    "翻译": "中英互译，保留术语和排版。",
    "api-docs": "Write API docs for HTTP endpoints. 为后端接口编写 API 文档。",
    "領収書整理": "領収書を日付と金額で整理し、経費の一覧を作成します。",
    "일정-관리": "회의 일정을 잡고 참석자에게 알림을 보냅니다.",
}


@pytest.fixture
def others(root: Path) -> Finder:
    for name, description in OTHERS.items():
        write_skill(root, name, f"---\nname: {name}\ndescription: {description}\n---\n步骤。\n")
    return Finder(build_index(root, IndexOptions()))


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("整理会议纪要", "会议纪要"),
        ("把会议记录整理成会议纪要", "会议纪要"),
        ("提取待办事项和负责人", "会议纪要"),
        ("把會議記錄整理一下，列出待辦事項", "会议纪要"),
        ("这篇文章有多少字，阅读要多长时间", "字数统计"),
        ("检查这些发票有没有重复", "發票核對"),
        ("写一份后端接口文档", "api-docs"),
        ("write meeting minutes with the conclusions", "会议纪要"),
        ("check the amount of these invoices", "發票核對"),
        ("領収書を日付で整理して", "領収書整理"),
        ("회의 일정을 잡아 줘", "일정-관리"),
    ],
)
def test_skills_that_are_not_described_in_english_fit(others: Finder, query: str, name: str) -> None:
    assert answer(others, query) == name


@pytest.mark.parametrize(
    "query",
    ["你好", "今天天气怎么样", "写一首诗", "画一只猫", "book a flight to Rome", "今日の天気は？", "고마워요"],
)
def test_nothing_of_another_language_fits_everything(others: Finder, query: str) -> None:
    assert answer(others, query) == ""


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("用 字数统计 看 文章.txt", "字数统计"),
        ("用字数统计技能看 文章.txt", "字数统计"),
        ("请使用“会议纪要”处理", "会议纪要"),
        ("用会议纪要整理字数统计的结果", "会议纪要"),
        ("run the 字数统计 skill", "字数统计"),
        ("用翻译技能看会议纪要", "翻译"),
        ("用일정-관리로 처리해 줘", "일정-관리"),
    ],
)
def test_a_name_in_a_language_without_spaces_selects_its_skill(others: Finder, query: str, name: str) -> None:
    found = others.find(query, 1)
    assert (found.hits[0].name, found.confidence) == (name, 1.0)


@pytest.mark.parametrize("query", ["不要用字数统计", "别用会议纪要", "用翻译软件看看", "用 字数统计-x 看"])
def test_names_that_are_not_called(others: Finder, query: str) -> None:
    assert asked_for(query, OTHERS) == []


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("Compare cities.csv with b.csv", "file-diff"),
        ("diff cities.csv b.csv", "file-diff"),
        ("比较 a.csv 和 b.csv", "file-diff"),
        ("what is in cities.csv", "csv-summary"),
        ("analyse cities.csv", "csv-summary"),
        ("分析 cities.csv", "csv-summary"),
        ("delete cities.csv", ""),
        ("删除 cities.csv", ""),
        ("send cities.csv to Anna", ""),
    ],
)
def test_names_of_files_do_not_choose_against_the_other_words(query: str, name: str) -> None:
    assert answer(Finder(build_index(BUILTIN_ROOT, IndexOptions())), query) == name


def test_find_and_search_agree(finder: Finder) -> None:
    for query in FITTING:
        assert list(finder.find(query, 3).hits) == finder.search(query, 3)


def test_explained(finder: Finder) -> None:
    def told(query: str) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
        (hit,) = finder.search(query, 1)
        return [(m.word, m.kind, m.found, m.fields) for m in finder.explain(query, hit)]

    assert told("docker kitchen") == [("docker", "word", ("docker",), ("name", "description"))]
    assert told("contrakt") == [
        ("contrakt", "correction", ("contract",), ("name", "description")),
    ]
    assert ("合同", "translation", ("contract",), ("name", "description")) in told("审查合同")


def test_everyday_requests_to_the_skills_that_ship_with_it() -> None:
    finder = Finder(build_index(BUILTIN_ROOT, IndexOptions()))
    wrong = []
    asked = [json.loads(line) for line in EVERYDAY.read_text("utf-8").splitlines()]
    for query in asked:
        if answer(finder, query["query"]) != "".join(query["gold"]):
            wrong.append(query["query"])
    assert len(wrong) / len(asked) <= 0.08
    for sure in (
        "compare a.txt with b.txt",
        "汇总 sales.csv",
        "write a book",
        "嗯嗯，知道了",
        "create a website",
    ):
        assert sure not in wrong
