"""H4: scripted and offline models; recorded ones, with strict replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Place, write_skill
from vademecum import Agent, models
from vademecum.errors import ModelReplyWrong
from vademecum.masking import Secrets
from vademecum.models import choose_model
from vademecum.models.base import Message
from vademecum.models.recorded_model import Recorded
from vademecum.policy.approval import Consent

FINAL = {"action": {"type": "final_answer", "payload": {"text": "hi"}}}


def asked(place: Place, request: str, status: str = "done") -> str:
    agent = Agent(model="offline", index=place.build(), context=place.context, approver=Consent())
    outcome = agent.run(request)
    assert outcome.status == status
    return outcome.answer


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("Compare a.txt with b.txt", ["The files differ", "not a language model"]),
        ("are a.txt and b.txt the same?", ["The files differ"]),
        ("请比较 a.txt 和 b.txt", ["The files differ", "不是语言模型"]),
        ("a.txt 与 b.txt 有什么差异？", ["The files differ"]),
        ("Summarise sales.csv", ["1 row, 2 columns"]),
        ("汇总 sales.csv", ["1 row, 2 columns", "离线模型"]),
        ("sales.csv 的数据概览", ["1 row, 2 columns"]),
        ("比较a.txt和b.txt", ["The files differ"]),
        ('compare "a b.txt" with b.txt', ["The files differ", "a b.txt"]),
        ("/file-diff a.txt b.txt", ["The files differ"]),
    ],
)
def test_offline_does_real_work(place: Place, request_: str, words: list[str]) -> None:
    (place.cwd / "a.txt").write_text("a\nb\n")
    (place.cwd / "b.txt").write_text("a\nc\n")
    (place.cwd / "a b.txt").write_text("a\nb\n")
    (place.cwd / "sales.csv").write_text("city,people\nOslo,7\n")
    answer = asked(place, request_)
    assert all(word in answer for word in words), answer


def test_offline_says_what_it_cannot_do(place: Place) -> None:
    write_skill(
        place.cwd,
        ".agent/skills/poems",
        "---\nname: poems\ndescription: Write poems about the sea.\n---\nUse rhymes.\n",
    )
    answer = asked(place, "write a poem about the sea", "degraded")
    assert "not a language model" in answer
    assert "Use rhymes." in answer


def test_offline_names_the_skill_that_cannot_be_loaded(place: Place) -> None:
    body = "Use rhymes.\n" * 600
    document = f"---\nname: poems\ndescription: Write poems about the sea.\n---\n{body}"
    write_skill(place.cwd, ".agent/skills/poems", document)
    answer = asked(place, "write a poem about the sea", "degraded")
    assert "with the skill 'poems'" in answer
    assert "600 lines" in answer


def test_offline_reports_a_refusal(place: Place) -> None:
    (place.cwd / "a.txt").write_text("a\n")
    agent = Agent(model=models.offline(), index=place.build(), context=place.context)
    outcome = agent.run("Compare a.txt with a.txt")
    assert (outcome.status, "nobody is there to ask" in outcome.answer) == ("refused", True)


def test_scripted_from_a_case_file(tmp_path: Path) -> None:
    for content in ([FINAL], {"turns": [FINAL]}, {"mock": {"turns": [FINAL]}}):
        file = tmp_path / "case.json"
        file.write_text(json.dumps(content))
        reply = choose_model(f"scripted:{file}").reply([Message("user", "x")], schema={})
        assert json.loads(reply.text) == FINAL


def test_a_tape_is_recorded_and_replayed(tmp_path: Path) -> None:
    tape = tmp_path / "deep" / "tape.jsonl"
    secrets = Secrets({"MY_KEY": "secret-value-1"})
    inner = models.scripted(["first secret-value-1", "second"])
    recording = Recorded(tape, inner, secrets=secrets)
    one = [Message("user", "one secret-value-1")]
    assert recording.reply(one, schema={}).text == "first secret-value-1"
    assert "secret-value-1" not in tape.read_text()
    pieces: list[str] = []
    replaying = Recorded(tape, inner, secrets=secrets)
    assert replaying.reply(one, schema={}, on_text=pieces.append).text == "first [secret]"
    assert pieces == ["first [secret]"]
    assert len(inner.seen) == 1
    assert replaying.reply([Message("user", "two")], schema={}).text == "second"
    strict = Recorded(tape, secrets=secrets)
    assert strict.reply([Message("user", "two")], schema={}).text == "second"
    with pytest.raises(ModelReplyWrong, match="has no reply to this: delete the file and record it"):
        strict.reply([Message("user", "three\ntwo")], schema={})
    with pytest.raises(ModelReplyWrong):
        strict.reply([Message("user", "two")], schema={"another": 1})


def test_tapes_that_are_no_tapes(tmp_path: Path) -> None:
    with pytest.raises(
        ModelReplyWrong, match="has no reply: delete the file and record it with the model itself"
    ):
        Recorded(tmp_path / "none").reply([Message("user", "x")], schema={})
    (tmp_path / "bad").write_text("not json\n")
    with pytest.raises(ModelReplyWrong, match="cannot be read"):
        Recorded(tmp_path / "bad")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("What is the weather in Paris?", ["No skill here fits", "not a language model"]),
        ("今天天气怎么样？", ["没有适合", "不是语言模型"]),
        (
            "Compare missing.txt with ../secret.txt",
            ["I cannot find 'missing.txt', '../secret.txt': name a file"],
        ),
        ("汇总 没有.csv", ["找不到 '没有.csv'：请写本项目里的文件名。"]),
    ],
)
def test_offline_says_when_it_did_nothing(place: Place, request_: str, words: list[str]) -> None:
    answer = asked(place, request_, "degraded")
    assert all(word in answer for word in words), answer


def test_a_tape_leaves_out_the_secrets_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "correct-horse-battery")
    model = models.recorded(tmp_path / "tape", models.scripted(["correct-horse-battery"]))
    model.reply([Message("user", "correct-horse-battery")], schema={})
    assert "correct-horse" not in (tmp_path / "tape").read_text()
