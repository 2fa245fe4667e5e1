"""H1, H2: a reply becomes one action, or everything that is wrong with it; while it streams, its words are seen."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.agent import protocol
from vademecum.agent.protocol import ReplyWrong, Watched, parse_turn

FINAL = '{"action": {"type": "final_answer", "payload": {"text": "hi"}}}'


@pytest.mark.parametrize(
    "text",
    [
        FINAL,
        f"Sure, here it is:\n\n{FINAL}\n\nAnything else?",
        f"```json\n{FINAL}\n```",
        f"```\n{FINAL}\n``` and more",
        f'{{"thought": "x"}} then {FINAL}',
        '{"action": {"type": "final_answer", "payload": {"text": "hi",},},}',
        '{"action": {"type": "final_answer", "payload": {"text": "hi"}}, "diagnostics": {"a": [1, 2,]}}',
        'with { a brace } and {"action": {"type": "final_answer", "payload": {"text": "hi"}}}',
        f"one {{ brace that never closes, then {FINAL}",
        f'<think>if {{ x then {{"a": 1</think>{FINAL}',
        f'<think>{{"action": {{"type": "call_tool"}}}}</think>\n{FINAL}',
        FINAL + FINAL,
        f"```json\n{FINAL}\n```\n{FINAL}",
    ],
)
def test_noise_around_the_object(text: str) -> None:
    assert parse_turn(text).actions[0].call == protocol.FinalAnswer(text="hi")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no JSON object"),
        ("I think we should compare the files.", "has no JSON object"),
        ('{"action": ', "has no JSON object"),
        ('{"actions": []}', "no 'action' in it"),
        ('{"action": {"type": "fly", "payload": {}}}', "action.type: there is no 'fly'"),
        ('{"action": {"type": "final_answer", "payload": {}}}', "payload.text: it is missing"),
        (
            '{"action": {"type": "final_answer", "payload": {"text": 1}}}',
            "payload.text: Expected `str`, got `int`",
        ),
        ('{"action": {"type": "run_script", "payload": {"x": 1}}}', "relative_path: it is missing"),
        ('{"action": {"type": "select_skills", "payload": {"skills": []}}}', "length >= 1"),
        ("[" * 100_000, "has no JSON object"),
        ("{" * 2_000_000, "has no JSON object"),
        ("x" * 2_000_001, "more than 2,000,000 characters"),
        (FINAL + FINAL.replace("hi", "ho"), "two different actions"),
        ('{"action": 1, "action": 2}', "a key appears twice"),
        (FINAL.replace("hi", "\\ud800"), "half a character"),
        ('{"action": ' + '{"a":' * 70 + "1" + "}" * 71, "nested too deeply"),
        ("{" * 5_000, "has no JSON object"),
        ('{"' * 600_000, "has no JSON object"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ReplyWrong) as caught:
        parse_turn(text)
    assert problem in str(caught.value)


def test_every_problem_is_listed() -> None:
    with pytest.raises(ReplyWrong) as caught:
        parse_turn('{"action": {"type": "run_script", "payload": {"args": "x", "y": 1}}, "more": 2}')
    for part in (
        "skill: it is missing",
        "relative_path: it is missing",
        "args",
        "y: it is not known",
        "more: it is not known",
    ):
        assert part in str(caught.value)


def test_a_skill_may_be_a_name() -> None:
    (action,) = parse_turn(
        '{"action": {"type": "select_skills", "payload": {"skills": ["a", {"name": "b", "source": "user"}]}}}'
    ).actions
    assert isinstance(action.call, protocol.SelectSkills)
    assert [(named.name, named.source) for named in action.call.skills] == [("a", ""), ("b", "user")]


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_whatever_comes_is_an_action_or_a_sentence(text: str) -> None:
    for candidate in (text, text + FINAL, FINAL[:20] + text):
        with contextlib.suppress(ReplyWrong):
            assert parse_turn(candidate).actions


def test_the_schema_is_one_a_server_takes() -> None:
    found = protocol.schema()
    assert set(found["properties"]) == {"action", "plan_update", "diagnostics"}
    assert json.dumps(found)


def watched(reply: str, size: int) -> str:
    pieces: list[str] = []

    def tell(type_: str, text: str = "") -> None:
        pieces.append(text) if type_ == "answer_piece" else pieces.clear()

    watching = Watched(tell)
    for start in range(0, len(reply), size):
        watching(reply[start : start + size])
    (action,) = parse_turn(reply).actions
    if isinstance(action.call, protocol.FinalAnswer):
        watching.finish(action.call.text)
    return "".join(pieces)


@given(st.text(max_size=400), st.integers(1, 40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_pieces_joined_are_the_answer(text: str, size: int, escaped: bool) -> None:
    clean = text.encode("utf-8", "replace").decode()
    reply: dict[str, Any] = {"action": {"type": "final_answer", "payload": {"text": clean}}}
    assert watched(json.dumps(reply, ensure_ascii=escaped), size) == clean


def test_watching_is_linear() -> None:
    reply = json.dumps({"action": {"type": "final_answer", "payload": {"text": "x" * 300_000}}})
    assert len(watched(reply, 7)) == 300_000
