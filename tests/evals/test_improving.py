"""L2: drafts of suites, and descriptions that are tried on one half of the cases and tested on the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evals.support import write
from tests.support import Place, write_skill
from vademecum.evals.drafting import draft_triggers, requests_from
from vademecum.evals.suite import read_suite

BAD = "---\nname: greeter\ndescription: Does things.\nversion: 1.0.0\n---\nSay hello.\n"
GOOD = "Greet and welcome people, guests and new colleagues with a note."
QUERIES = [
    f"{verb} {whom}"
    for verb in ("greet", "welcome", "please greet", "please welcome")
    for whom in ("the new colleague", "our guests", "new people", "our new colleagues")
]


@pytest.fixture
def skill(place: Place) -> Path:
    found = place.cwd / ".agent/skills/greeter"
    write_skill(found.parent, "greeter", BAD)
    entries = [{"query": query, "should_trigger": True} for query in QUERIES]
    entries += [{"query": query, "should_trigger": False} for query in ("Compare a.txt with b.txt", "hi")]
    write(found / "evals/triggers.json", {"triggers": entries})
    return found


def test_a_description_that_wins_on_the_other_half_is_written(place: Place, skill: Path) -> None:
    file = write(place.cwd / "candidates.txt", f"Handles many requests.\n{GOOD}\n")
    words = ("eval", "improve", "greeter", "--candidates", str(file))
    shown = place.vade(*words)
    assert shown.code == 0, shown.err
    assert [line[:2] for line in shown.out.splitlines()[:2]] == ["- ", "+ "]
    assert "On the other half: better: +" in shown.out
    assert "Not written: add --write." in shown.out
    assert "Does things." in (skill / "SKILL.md").read_text()
    written = place.vade(*words, "--write", "--json")
    assert (written.json["better"], written.json["new"]) == (True, GOOD)
    text = (skill / "SKILL.md").read_text()
    assert text == BAD.replace("Does things.", json.dumps(GOOD))


def test_a_candidate_that_is_no_better_changes_nothing(place: Place, skill: Path) -> None:
    file = write(place.cwd / "candidates.json", ["Handles many requests."])
    done = place.vade("eval", "improve", "greeter", "--candidates", str(file), "--write")
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "No candidate is better on the first half: nothing was changed.",
    )
    assert (skill / "SKILL.md").read_text() == BAD


def test_a_model_proposes(place: Place, skill: Path) -> None:
    tape = write(place.cwd / "turns.json", [json.dumps([GOOD])])
    done = place.vade("eval", "improve", "greeter", "--model", f"scripted:{tape}", "--json")
    assert (done.code, done.json["new"]) == (0, GOOD)
    assert place.vade("eval", "improve", "greeter").code == 2


def test_a_draft_has_requests_and_near_misses(place: Place) -> None:
    index = place.build()
    drafted = draft_triggers(index.get("file-diff"), index)["triggers"]
    assert all(entry["tags"] == ["draft"] for entry in drafted)
    wanted = [entry["query"] for entry in drafted if entry["should_trigger"]]
    near = [entry["query"] for entry in drafted if not entry["should_trigger"]]
    assert wanted
    assert all(query in index.get("file-diff").description for query in wanted)
    others = " ".join(skill.description for skill in index if skill.name != "file-diff")
    assert any(query in others for query in near)


@pytest.mark.parametrize(
    ("description", "requests"),
    [
        ("统计字数。当用户问一篇文章有多少字、要读多久时使用。", ["一篇文章有多少字、要读多久"]),
        ("當使用者要求檢查發票金額與稅號時使用。", ["檢查發票金額與稅號"]),
        (
            "适用于周报、月报和工作总结；当需要向上级汇报本周进展的时候使用",
            ["周报、月报和工作总结", "向上级汇报本周进展"],
        ),
        ("当天的行业新闻，每条写两句摘要", ["当天的行业新闻，每条写两句摘要"]),
        ("统计每个项目花了多少工时", ["统计每个项目花了多少工时"]),
    ],
)
def test_chinese_requests_are_without_the_words_that_say_when(description: str, requests: list[str]) -> None:
    assert requests_from(description) == requests


def test_a_skill_without_a_suite_is_told_how_to_get_one(place: Place) -> None:
    write_skill(place.cwd / ".agent/skills", "bare", "---\nname: bare\ndescription: Bare.\n---\nx\n")
    done = place.vade("eval", "run", "bare")
    assert (done.code, "vade eval init bare writes a draft" in done.err) == (4, True)


def test_a_suite_of_the_project_runs_by_its_name(place: Place) -> None:
    case = {
        "input": "Say yes",
        "mock": {"turns": [{"action": {"type": "final_answer", "payload": {"text": "yes"}}}]},
    }
    write(place.cwd / ".agent/evals/mine/cases.json", [case, case])
    done = place.vade("eval", "run", "mine", "--json")
    assert [result["case"] for result in done.json["results"]] == ["say-yes", "cases-say-yes"]


def test_requests_that_no_skill_should_take(place: Place, tmp_path: Path) -> None:
    entries = [
        {"query": "hello there", "should_trigger": False},
        {"query": "Compare two files", "should_trigger": False},
    ]
    suite = write(tmp_path / "none.json", entries)
    assert [case.expected.skills_none_of for case in read_suite(suite).cases] == [("*",), ("*",)]
    done = place.vade("eval", "run", str(suite), "--model", "offline", "--json")
    found = done.json["columns"][0]["triggers"]
    assert (found["negatives"], found["false_triggers"]) == (2, 1)
    assert found["false_trigger_rate"] == 0.5
    assert 0 < found["false_trigger_interval"]["low"] < 0.5 < found["false_trigger_interval"]["high"] < 1


def test_requests_of_a_draft_are_whole_and_are_requests() -> None:
    description = "Write a skill. Use when asked to review a SKILL.md file. 编写技能：SKILL.md 的写法。"
    wanted = ["Write a skill", "review a SKILL.md file", "编写技能：SKILL.md 的写法"]
    assert requests_from(description) == wanted
