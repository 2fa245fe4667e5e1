"""D2: names, spellings and languages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import write_skill
from vademecum import Finder, IndexOptions, build_index

SKILLS = {
    "resume-writer": "Write and tailor a resume or CV for a job application.",
    "excel-tables": "Read and write Excel spreadsheets, with charts.",
    "contract-review": "Review a contract and list the risky clauses.",
    "docker-images": "Build small Docker images.",
    "kubernetes-ops": "Operate Kubernetes clusters: pods, deployments, rollbacks.",
    "meeting-minutes": "把会议记录整理成纪要，列出待办事项。",
    "invoice-zh": "填写发票，核对金额和税号。",
    "simple-list": "简明清单。",
    "how-to-zh": "这个技能介绍怎么写一个故事。",
}


@pytest.fixture
def finder(root: Path) -> Finder:
    for name, description in SKILLS.items():
        write_skill(root, name, f"---\nname: {name}\ndescription: '{description}'\n---\nSteps.\n")
    return Finder(build_index(root, IndexOptions()))


def first(finder: Finder, query: str) -> str:
    hits = finder.search(query, 1)
    return hits[0].name if hits else ""


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("简历", "resume-writer"),
        ("簡歷", "resume-writer"),
        ("帮我审查一下这份合同", "contract-review"),
        ("請幫我檢查這份合約的風險", "contract-review"),
        ("怎么做一个电子表格？", "excel-tables"),
        ("怎么用 docker 打包这个项目", "docker-images"),
        ("會議記錄", "meeting-minutes"),
        ("简", "simple-list"),
    ],
)
def test_chinese_requests(finder: Finder, query: str, name: str) -> None:
    assert first(finder, query) == name


@pytest.mark.parametrize(
    ("query", "name"), [("fill in an invoice", "invoice-zh"), ("minutes of a meeting", "meeting-minutes")]
)
def test_english_requests_find_chinese_skills(root: Path, query: str, name: str) -> None:
    for each in ("invoice-zh", "meeting-minutes"):
        text = f"---\nname: {'x' + str(len(each))}\ndescription: '{SKILLS[each]}'\n---\nSteps.\n"
        write_skill(root, "x" + str(len(each)), text)
    assert first(Finder(build_index(root, IndexOptions())), query) == "x" + str(len(name))


@pytest.mark.parametrize("query", ["怎么", "这个", "一个", "请帮我", "這個怎麼做"])
def test_chinese_stop_words_match_nothing(finder: Finder, query: str) -> None:
    assert finder.search(query) == []


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("an exel sheet", "excel-tables"),
        ("dockr", "docker-images"),
        ("contrakt", "contract-review"),
        ("kuberntes", "kubernetes-ops"),
        ("k8s", "kubernetes-ops"),
    ],
)
def test_typos_and_abbreviations(finder: Finder, query: str, name: str) -> None:
    assert first(finder, query) == name


def test_a_word_that_the_library_knows_is_not_corrected(root: Path) -> None:
    for name, description in (("pots", "Paint flower pots."), ("pods", "Watch pods, pods and pods.")):
        write_skill(root, name, f"---\nname: {name}\ndescription: {description}\n---\n")
    finder = Finder(build_index(root, IndexOptions()))
    assert [hit.name for hit in finder.search("paint a pot")] == ["pots"]


@pytest.mark.parametrize(
    "query", ["paper", "Paper", "source:paper", "extra:paper", "paper_folding", "origami"]
)
def test_an_exact_name_or_alias_comes_first(root: Path, query: str) -> None:
    write_skill(root, "paper", "---\nname: paper\ndescription: x\n---\n")
    more = "metadata:\n  aliases: paper-folding, origami\n"
    write_skill(root, "cranes", f"---\nname: cranes\ndescription: x\n{more}---\n")
    for number in range(5):
        text = "paper folding origami source extra " * 9
        write_skill(root, f"s{number}", f"---\nname: s{number}\ndescription: {text}\n---\n{text}")
    hits = Finder(build_index(root, IndexOptions())).search(query, 3)
    wanted = {"paper_folding": "cranes", "origami": "cranes", "source:paper": "s0"}
    assert hits[0].name == wanted.get(query, "paper")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_english_requests_do_not_load_the_dictionary(root: Path) -> None:
    for name in ("docker-images", "excel-tables"):
        write_skill(root, name, f"---\nname: {name}\ndescription: {SKILLS[name]}\n---\n")
    code = (
        "import sys, vademecum as vm; from vademecum.search.words import dictionary\n"
        "finder = vm.Finder(vm.build_index(sys.argv[1], vm.IndexOptions()))\n"
        "for query in ('excel sheets', '表格'):\n"
        "    print(finder.search(query)[0].name, dictionary.cache_info().currsize)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert run.stdout == "excel-tables 0\nexcel-tables 1\n"


def test_a_real_word_is_not_corrected(root: Path) -> None:
    write_skill(
        root, "look-up", "---\nname: look-up\ndescription: Look up and summarise what is known.\n---\n"
    )
    finder = Finder(build_index(root, IndexOptions()))
    assert finder.search("write a book") == []
    assert first(finder, "summarize it") == "look-up"  # the other spelling of a long word
